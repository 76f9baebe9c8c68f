"""Programs of coordinate space (stage I): sparse buffers and sparse iterations. Immutable values.

A sparse buffer is a tuple of axes and a value type; it holds values only, so buffers on the same axes share their
structure. A sparse iteration visits the elements of its axes; each axis is spatial ("S") or a reduction ("R").

Semantics. An iteration binds each of its variables to the coordinates of its axis, under the elements of the parent
axis that this iteration or an enclosing one visits. `init` runs once for every element of the spatial axes, before
the body runs for any element of the reduction axes, and so also where the reduction is empty. An access `A[i, j]`
whose indices are the very variables that visit A's axes means the element being visited (also where a coordinate
occurs twice). Any other index of a sparse axis is looked up: an absent coordinate reads as zero, and a store to
it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import TypeAlias, TypeVar

from ...frozen import dataclass
from .axes import Axis, Size, StageIError
from .expr import Binary, Expr, ExprLike, Load, Var, as_expr
from .traversal import walk
from .types import FLOATS, INTEGERS

# what the text of a program is written with: no part of a program may have such a name
WORDS = (
    *("minimum", "maximum", "equal", "differ", "both", "either", "select", "cast", "call", "number", "present"),
    *(
        "float",
        "program",
        "ProgramBuilder",
        "stored",
        "begin_of",
        "end_of",
        "offset_of",
        "owner_of",
        "bit_and",
        "bit_or",
    ),
)
SCOPES = ("param", "temporary", "local")

Indices: TypeAlias = ExprLike | tuple[ExprLike, ...]
"""What stands in the brackets of an access."""


@dataclass(frozen=True)
class Buffer:
    """Values on the elements of `axes`.

    Attributes:
        scope: "param" is an argument of the program, "temporary" lives for one run of it, "local" for one element of
            the iteration that declares it.
        strided: the elements of the first axis may lie further apart than the others need (rows of a wider tensor); the
            kernel reads the stride from the tensor it is given.
    """

    name: str
    axes: tuple[Axis, ...]
    dtype: str
    scope: str = "param"
    strided: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in FLOATS + INTEGERS:
            raise StageIError(f"buffer {self.name!r}: unknown value type {self.dtype!r}")
        if self.scope not in SCOPES:
            raise StageIError(f"buffer {self.name!r}: scope {self.scope!r} is not one of {', '.join(SCOPES)}")

    def __getitem__(self, indices: Indices) -> Load:
        if not isinstance(indices, tuple):
            indices = (indices,)
        if len(indices) != len(self.axes):
            axes = ", ".join(str(a) for a in self.axes)
            raise StageIError(
                f"buffer {self.name!r} has {len(self.axes)} axes ({axes}) and was indexed with {len(indices)}"
            )
        return Load(self, tuple(as_expr(i) for i in indices))


@dataclass(frozen=True)
class Store:
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    @property
    def added(self) -> Expr | None:
        """The term of a store of the form X = X + term; None of any other."""
        match self.value:
            case Binary("+", own, term) if own == Load(self.buffer, self.indices):
                return term
        return None


@dataclass(frozen=True)
class Bounds:
    """Which elements of an axis an iteration visits: those from `low` up to `high`, which is not one of them.

    Attributes:
        low, high: expressions of what is visited around the iteration.
        by: "position", counted from the first element under the element above, or "coordinate".
        most: high - low is no more than this; None where that is not known.
    """

    axis: Axis
    low: Expr
    high: Expr
    by: str = "position"
    most: int | None = None


@dataclass(frozen=True)
class Iteration:
    """One sparse iteration.

    Attributes:
        kinds: one letter per axis, "S" spatial or "R" reduction.
        variables: one iterator per axis.
        body: stores and nested iterations, in order.
        locals: buffers that live for one element of this iteration.
        fused: groups of consecutive axes that are visited by one loop over their elements; the meaning is the same.
        where: the body runs only for the elements for which this condition holds; init runs for all.
        merged: sparse axes, of which `where` asks whether they store the coordinate being visited. They are walked
            together instead of every coordinate being tried; the meaning is the same.
        points: how a lowering walks the axes of `merged`, in order. Then the body is in their cases.
        bounds: of some of the axes, which elements are visited.
    """

    name: str
    axes: tuple[Axis, ...]
    kinds: str
    variables: tuple[Var, ...]
    init: tuple[Store, ...] = ()
    body: tuple[Store | Iteration, ...] = ()
    locals: tuple[Buffer, ...] = ()
    fused: tuple[tuple[Axis, ...], ...] = ()
    where: Expr | None = None
    merged: tuple[Axis, ...] = ()
    points: tuple[Point, ...] = ()
    bounds: tuple[Bounds, ...] = ()

    @property
    def statements(self) -> tuple[Store | Iteration, ...]:
        """Statements of the body, or of all the cases that a lowering made of it."""
        if not self.points:
            return self.body
        return (*self.body, *(s for point in self.points for case in point.cases for s in case.body))

    @property
    def spatial(self) -> tuple[Axis, ...]:
        return tuple(a for a, kind in zip(self.axes, self.kinds) if kind == "S")

    @property
    def reduction(self) -> tuple[Axis, ...]:
        return tuple(a for a, kind in zip(self.axes, self.kinds) if kind == "R")

    @property
    def stores(self) -> tuple[Store, ...]:
        """Stores of the body, without those of iterations in it."""
        return tuple(s for s in self.body if isinstance(s, Store))

    @property
    def nested(self) -> tuple[Iteration, ...]:
        """The iterations in the body, without those in them."""
        return tuple(s for s in self.body if isinstance(s, Iteration))

    def bounds_of(self, axis: Axis) -> Bounds | None:
        """What is visited of an axis; None where all of it is."""
        return next((bounds for bounds in self.bounds if bounds.axis == axis), None)

    def variable(self, axis: Axis) -> Var:
        return self.variables[self.axes.index(axis)]


@dataclass(frozen=True)
class Case:
    """What runs for a coordinate that exactly the axes `present`, of those being walked, store."""

    present: tuple[Axis, ...]
    body: tuple[Store | Iteration, ...]
    where: Expr | None = None


@dataclass(frozen=True)
class Point:
    """A walk along `axes` until one of them ends (a point of a merge lattice), or along `every` coordinate.

    There is a case for each set of axes that may store a coordinate.

    Attributes:
        joint: what does for all cases alike, so that nobody needs to ask which it is; empty where nothing does.
        once: there is one case alone, which asks as it goes which axes store the coordinate; the walk goes on while its
            condition may hold.
    """

    axes: tuple[Axis, ...]
    cases: tuple[Case, ...]
    every: bool = False
    joint: tuple[Store, ...] = ()
    once: bool = False


Named = TypeVar("Named", Axis, Buffer, Iteration)


@dataclass(frozen=True)
class Program:
    """A stage I program.

    Parameters of the compiled kernel, in order: the sizes, the index arrays of the axes (indptr before indices,
    axes in order), the buffers of scope "param".
    """

    name: str
    sizes: tuple[Size, ...]
    axes: tuple[Axis, ...]
    buffers: tuple[Buffer, ...]
    iterations: tuple[Iteration, ...]
    # where the program came from: the transformations applied, oldest first
    provenance: tuple[str, ...] = field(default=(), compare=False)

    def axis(self, name: str) -> Axis:
        return self._named("axis", self.axes, name)

    def buffer(self, name: str) -> Buffer:
        return self._named("buffer", self.buffers, name)

    def iteration(self, name: str) -> Iteration:
        return self._named("iteration", tuple(walk_iterations(self.iterations)), name)

    def _named(self, kind: str, members: tuple[Named, ...], name: str) -> Named:
        for member in members:
            if member.name == name:
                return member
        names = ", ".join(member.name for member in members)
        raise StageIError(f"program {self.name!r} has no {kind} {name!r}; it has {names}")

    @property
    def names(self) -> list[str]:
        """The names that the program declares, all but the iterators'."""
        found = [s.name for s in self.sizes] + [a.name for a in self.axes]
        found += [array for a in self.axes for array in (a.indptr, a.indices) if array is not None]
        found += [b.name for b in self.buffers]
        for it in walk_iterations(self.iterations):
            found += [it.name, *(b.name for b in it.locals)]
        return found

    @property
    def parameters(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.scope == "param")

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the compiled kernel's parameters, in their order."""
        arrays = [array for axis in self.axes for array in (axis.indptr, axis.indices) if array is not None]
        return (*(s.name for s in self.sizes), *arrays, *(b.name for b in self.parameters))

    def script(self) -> str:
        """The program as Python text that builds it again."""
        from .printer import script

        return script(self)


def walk_iterations(statements: Iterable[Store | Iteration]) -> Iterator[Iteration]:
    """Every iteration in `statements`, outer ones before the ones they hold."""
    left = [*statements][::-1]
    while left:
        statement = left.pop()
        if isinstance(statement, Iteration):
            yield statement
            left += reversed(statement.statements)


def stores_in(statements: Iterable[Store | Iteration]) -> Iterator[Store]:
    """Every store in `statements`, initial values too."""
    for statement in statements:
        if isinstance(statement, Iteration):
            yield from (*statement.init, *stores_in(statement.statements))
        else:
            yield statement


def expressions_in(statements: Sequence[Store | Iteration]) -> Iterator[Expr]:
    """Every expression in `statements`, parts of others too: of indices, values and conditions."""
    for store in stores_in(statements):
        for root in (*store.indices, store.value):
            yield from walk(root)
    for it in walk_iterations(statements):
        for condition in (it.where, *(case.where for point in it.points for case in point.cases)):
            if condition is not None:
                yield from walk(condition)
        for bounds in it.bounds:
            yield from (*walk(bounds.low), *walk(bounds.high))


def loads_in(statements: Sequence[Store | Iteration]) -> Iterator[Load]:
    """Every load in `statements`."""
    return (e for e in expressions_in(statements) if isinstance(e, Load))


Statement = TypeVar("Statement", Iteration, "Store | Iteration")


def map_iterations(
    statements: tuple[Statement, ...], f: Callable[[Iteration], tuple[Iteration, ...]]
) -> tuple[Statement, ...]:
    """`statements` with f applied to every iteration, inner ones first; f gives what takes its place."""
    out: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Iteration):
            inner = replace(statement, body=map_iterations(statement.body, f))
            out.extend(f(inner))
        else:
            out.append(statement)
    return tuple(out)


def map_expressions(it: Iteration, change: Callable[[Expr], Expr]) -> Iteration:
    """The iteration with `change` applied to its own stores, condition and bounds, not to those of iterations in it."""
    return replace(
        it,
        init=tuple(map_store(s, change) for s in it.init),
        body=tuple(map_store(s, change) if isinstance(s, Store) else s for s in it.body),
        where=None if it.where is None else change(it.where),
        bounds=tuple(replace(b, low=change(b.low), high=change(b.high)) for b in it.bounds),
    )


def map_store(store: Store, change: Callable[[Expr], Expr]) -> Store:
    """The store with `change` applied to its element, which stays one of a buffer, and to its value."""
    element = change(Load(store.buffer, store.indices))
    assert isinstance(element, Load)
    return Store(element.buffer, element.indices, change(store.value))
