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

from dataclasses import dataclass, field, replace

from .axes import Axis, Size, StageIError
from .expr import FLOATS, INTEGERS, Expr, Load, Var, as_expr

# what the text of a program is written with: no part of a program may have such a name
WORDS = (
    "minimum",
    "maximum",
    "equal",
    "differ",
    "both",
    "either",
    "select",
    "cast",
    "call",
    "number",
    "present",
    "float",
    "program",
    "ProgramBuilder",
)
SCOPES = ("param", "temporary", "local")


@dataclass(frozen=True)
class Buffer:
    """Values on the elements of `axes`.

    scope: "param" is an argument of the program, "temporary" lives for one run of it, "local" for one element of the
    iteration that declares it.
    strided: the elements of the first axis may lie further apart than the others need (rows of a wider tensor); the
        kernel reads the stride from the tensor it is given.
    """

    name: str
    axes: tuple[Axis, ...]
    dtype: str
    scope: str = "param"
    strided: bool = False

    def __post_init__(self):
        if self.dtype not in FLOATS + INTEGERS:
            raise StageIError(f"buffer {self.name!r}: unknown value type {self.dtype!r}")
        if self.scope not in SCOPES:
            raise StageIError(f"buffer {self.name!r}: scope {self.scope!r} is not one of {', '.join(SCOPES)}")

    def __getitem__(self, indices) -> Load:
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


@dataclass(frozen=True)
class Iteration:
    """One sparse iteration.

    kinds: one letter per axis, "S" spatial or "R" reduction.
    variables: one iterator per axis.
    body: stores and nested iterations, in order.
    locals: buffers that live for one element of this iteration.
    fused: groups of consecutive axes that are visited by one loop over their elements; the meaning is the same.
    where: the body runs only for the elements for which this condition holds; init runs for all.
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

    @property
    def spatial(self) -> tuple[Axis, ...]:
        return tuple(a for a, kind in zip(self.axes, self.kinds) if kind == "S")

    @property
    def reduction(self) -> tuple[Axis, ...]:
        return tuple(a for a, kind in zip(self.axes, self.kinds) if kind == "R")

    def variable(self, axis: Axis) -> Var:
        return self.variables[self.axes.index(axis)]


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
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise StageIError(f"program {self.name!r} has no axis {name!r}; it has {', '.join(a.name for a in self.axes)}")

    def buffer(self, name: str) -> Buffer:
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        names = ", ".join(b.name for b in self.buffers)
        raise StageIError(f"program {self.name!r} has no buffer {name!r}; it has {names}")

    def iteration(self, name: str) -> Iteration:
        found = [it for it in walk_iterations(self.iterations) if it.name == name]
        if not found:
            names = ", ".join(it.name for it in walk_iterations(self.iterations))
            raise StageIError(f"program {self.name!r} has no iteration {name!r}; it has {names}")
        return found[0]

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

    def with_provenance(self, step: str) -> Program:
        return replace(self, provenance=self.provenance + (step,))

    def script(self) -> str:
        """The program as Python text that builds it again."""
        from .printer import script

        return script(self)


def walk_iterations(statements):
    """Every iteration in `statements`, outer ones before the ones they hold."""
    for statement in statements:
        if isinstance(statement, Iteration):
            yield statement
            yield from walk_iterations(statement.body)


def map_iterations(statements, f):
    """`statements` with f applied to every iteration, inner ones first; f returns a tuple of statements."""
    out = []
    for statement in statements:
        if isinstance(statement, Iteration):
            inner = replace(statement, body=map_iterations(statement.body, f))
            out.extend(f(inner))
        else:
            out.append(statement)
    return tuple(out)
