"""Where the operands of a message stand, and how they broadcast.

A message has features of shape ``dims``; an operand has, for each of them, the same extent or 1, as in NumPy after
leading ones are added. Features are stored flat, in C order.
"""

from __future__ import annotations

from math import prod

from ....compiler.language.axes import Axis, given
from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast
from ....compiler.language.program import Program
from ....compiler.language.types import FLOATS
from ....compiler.transforms.group import group_axis
from ....frozen import dataclass

PLACES = ("row", "column", "edge", "all", "number")


@dataclass(frozen=True)
class Operand:
    """One operand of a message.

    at: ``row`` (a feature vector per row), ``column``, ``edge``, ``all`` (one for all edges), or ``number`` (no
        buffer: the number of the edge).
    dims: for each feature dimension its extent, or 1 where the operand is the same along it.
    dtype: of its buffer.
    strided: rows may lie further apart than they are long, where it stands at rows or columns. Where they may not, an
        address is a shift or nothing instead of a multiplication by a number that is known at run time.
    """

    at: str
    dims: tuple[int, ...]
    dtype: str
    strided: bool = True

    @property
    def width(self) -> int:
        return prod(self.dims)


class Edges:
    """The axes that every operator over edges visits: rows I, and the edges J of a row.

    Parameters, in order: m, n, nnz, [num_edges], indptr, indices, [E]. A program is written over rows; `grouped`
    finishes it with the rows in groups of equal cost, which puts num_groups and group_ptr before these.
    numbered: edge arrays are in another order than the non-zeros; E gives the number of each non-zero.
    flat: edges stand under groups G of whole rows, and not under rows; `declare_rows` gives the row of each, a place on
    axis M.
    mapped: the rows of the structure are in another order than those of arrays; Row has the row of each.
    """

    def __init__(
        self, p: ProgramBuilder, index_dtype: str, numbered: bool, flat: bool = False, mapped: bool = False
    ) -> None:
        self.p, self.numbered, self.flat, self.mapped = p, numbered, flat, mapped
        if flat:
            self.G = p.dense_fixed("G", p.size("num_groups"))
        m, self.n, nnz = p.sizes("m", "n", "nnz")
        self.I = p.dense_variable("I", self.G, (m, m), "group_ptr", index_dtype) if flat else p.dense_fixed("I", m)
        self.top = self.G if flat else self.I
        arrays = "indptr", "indices"
        self.J = p.sparse_variable("J", self.top, (self.n, nnz), arrays, index_dtype, sorted=False, unique=False)
        self.index_dtype = index_dtype
        self.N = p.dense_fixed("N", self.n)
        if flat or mapped:
            self.M = p.dense_fixed("M", m)
        if numbered:
            self.Z = p.dense_fixed("Z", p.size("num_edges"))
            self.E = p.buffer("E", (self.top, self.J), index_dtype)
        self._features: dict[int, Axis] = {}

    def grouped(self) -> Program:
        """The program, its rows in num_groups groups, cut at group_ptr, each visited by one thread."""
        return group_axis(self.p.finish(), "I", "G", self.index_dtype, count="num_groups", cuts="group_ptr")

    def declare_rows(self) -> BufferHandle:
        """The row of each non-zero, where these are flat, or of each row of the structure, where it is mapped."""
        self.Row = self.p.buffer("Row", (self.top, self.J) if self.flat else (self.I,), self.index_dtype)
        return self.Row

    def features(self, width: int, name: str | None = None) -> Axis:
        """The axis of a feature vector of this width."""
        if width not in self._features:
            self._features[width] = self.p.dense_fixed(name or f"F{width}", width)
        return self._features[width]

    def axes(self, at: str) -> tuple[Axis, ...]:
        """Axes of an array with one entry for each row, column or edge."""
        if at == "edge":
            return (self.Z,) if self.numbered else (self.top, self.J)
        return {"row": (self.M if self.flat or self.mapped else self.I,), "column": (self.N,), "all": ()}[at]

    def buffer(self, name: str, operand: Operand) -> BufferHandle | None:
        """The parameter of an operand; row and column features may be row-strided."""
        if operand.at == "number":
            return None
        axes = (*self.axes(operand.at), self.features(operand.width))
        return self.p.buffer(name, axes, operand.dtype, strided=operand.strided and operand.at in ("row", "column"))

    def at(self, place: str, i: Expr, j: Expr | None) -> tuple[Expr, ...]:
        """Indices into ``axes(place)`` of the edge that the iterators i, j visit; flat, i is that of its group.

        j may be left out where the place is a row that is visited.
        """
        if place == "edge":
            return (self.E[i, given(j)],) if self.numbered else (i, given(j))
        if place == "row":
            if self.flat:
                return (self.Row[i, given(j)],)
            return (self.Row[i],) if self.mapped else (i,)
        return (given(j),) if place == "column" else ()

    def load(
        self, handle: BufferHandle | None, operand: Operand, i: Expr, j: Expr, feature: Expr, accumulator: str
    ) -> Expr:
        """The operand at an edge, in the type to compute in; whole numbers stay as they are."""
        if operand.at == "number":
            return self.E[i, j]
        value = given(handle)[(*self.at(operand.at, i, j), feature)]
        return cast(accumulator, value) if operand.dtype in FLOATS else value


def feature_index(flat: Expr, dims: tuple[int, ...], own: tuple[int, ...]) -> Expr:
    """The place in an operand of shape ``own`` of position ``flat`` among features of shape ``dims``."""
    index: Expr = as_expr(0)
    last = len(dims)
    below = 1
    while last:
        if own[last - 1] == 1:
            last -= 1
            continue
        first = last
        while first and own[first - 1] > 1:
            first -= 1
        run = prod(dims[first:last])
        inner = prod(dims[last:])
        term = flat // inner if inner > 1 else flat
        if prod(dims[:first]) > 1:
            term = term % run
        index = term if below == 1 else term * below + index
        below *= run
        last = first
    return index


def flat_position(dims: tuple[int, ...], reduced: tuple[bool, ...], kept: Expr, inner: Expr) -> Expr:
    """The position among features of shape ``dims`` of ``kept`` among those kept and ``inner`` among those reduced.

    Both count in C order over their own dimensions. Where the reduced dimensions are the last ones this is
    ``kept * width + inner``.
    """
    first = next((at for at, gone in enumerate(reduced) if gone), len(dims))
    if all(reduced[first:]):
        width = prod(dims[first:])
        return kept if width == 1 else inner if first == 0 else kept * width + inner
    flat: Expr = as_expr(0)
    for at, (extent, gone) in enumerate(zip(dims, reduced)):
        source = inner if gone else kept
        below = prod(e for e, g in zip(dims[at + 1 :], reduced[at + 1 :]) if g == gone)
        digit = (source // below) % extent if extent > 1 else as_expr(0)
        flat = flat * extent + digit
    return flat


def broadcast_features(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The common feature shape: NumPy's rules. Raises ValueError that quotes the shapes."""
    rank = max(map(len, shapes))
    dims = [1] * rank
    for shape in shapes:
        for at, extent in enumerate(shape, rank - len(shape)):
            if extent != 1:
                if dims[at] not in (1, extent):
                    raise ValueError(
                        f"feature shapes {', '.join(map(str, shapes))} do not broadcast: {dims[at]} against {extent}"
                    )
                dims[at] = extent
    return tuple(dims)


def collapse(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Shapes of equal rank, each extent that of the first shape or 1, with neighbouring dimensions merged.

    Two dimensions merge where every shape is full on both or broadcast on both; dimensions of extent 1 go.
    The result has at least one dimension.

        collapse(((4, 8, 2), (4, 1, 1))) == ((4, 16), (4, 1))
    """
    merged: list[list[int]] = []
    pattern = None
    for extents in zip(*shapes):
        if extents[0] == 1:
            continue
        present = tuple(e > 1 for e in extents)
        if present == pattern:
            merged[-1] = [a * b for a, b in zip(merged[-1], extents)]
        else:
            merged.append(list(extents))
            pattern = present
    if not merged:
        return tuple((1,) for _ in shapes)
    return tuple(zip(*merged))
