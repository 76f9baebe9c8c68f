"""Relational gather-matmul-scatter, a panel of pairs at a time (RGMS; Ye et al., SparseTIR, section 4.4).

    Y[i] = sum over relations r and edges e of r into i of A[e] * X[j(e)] W[r]

A *pair* is a node with a relation r of some edge at it, on either side. All edges of a row's pair share the matrix, so
their rows of X are summed before the product; all edges of a column's pair share the product, so it is made once, and
added to their rows. A *panel* is a few pairs of one relation, whose sums or products fill a buffer that stays in the
first-level cache. Nothing of the size of the edges or the pairs times a width is stored. The programs are closed under
differentiation: the product (``gather`` by row pairs, ``scatter`` by column pairs), the sum of outer products W[r] =
sum over pairs of (sum of A[e] * X[j(e)])^T G[i], and the dots of each edge, A[e] = <X[j(e)] W[r], G[i(e)]>. All are
derivatives of one form that is linear in A, X, W and G.

Matrices are block-diagonal with `blocks` blocks on the diagonal, 1 for a full matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ....compiler.language.axes import Axis
from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast, minimum
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from ...core.tiles.tiles import each_term, each_tile, pairs_of_features, tiles_of


@dataclass(frozen=True)
class RgmsSpec:
    """What is static in either program.

    in_features, out_features: of one block of the matrix, whose shape is (in_features, out_features).
    blocks: blocks on the diagonal. panel: pairs of a panel at most.
    rows: of the block of accumulators, by a tile of ``tile`` columns. piece: columns that a sum over edges holds at a
    time.
    weighted: there is a number A for each edge. dtype: of X, W, G; the result and A have its accumulation type.
    tiled: matrices come tile by tile (``rgms_gather``).
    bf16_pairs: products of rows as they are stored (``scatter``, ``dot``) take two features at a time; F_in is even.
    """

    in_features: int
    out_features: int
    blocks: int
    panel: int
    rows: int
    tile: int
    piece: int
    weighted: bool = False
    dtype: str = "float32"
    index_dtype: str = "int32"
    tiled: bool = True
    bf16_pairs: bool = False

    @property
    def wide_in(self) -> int:
        """Features of a row of X."""
        return self.blocks * self.in_features

    @property
    def wide_out(self) -> int:
        """Features of a row of Y, or of G."""
        return self.blocks * self.out_features


Keep: TypeAlias = Callable[[str, Axis, Expr, Sequence[Expr], Sequence[BufferHandle]], None]


class _Pairs:
    """The axes of all programs: tasks, panels of a task, pairs of a panel, edges of a pair.

    Parameters, in order: num_tasks, num_panels, pairs, cols, nnz, ..., panel_ptr, pair_ptr, indptr, indices, Count,
    Row, [A]. Count is the number of pairs of a panel, Row the node that a pair belongs to; indices have the nodes at
    the other end of its edges, of which there are cols.
    """

    def __init__(self, p: ProgramBuilder, spec: RgmsSpec, *more: str) -> None:
        self.p, self.spec, self.accumulator = p, spec, ACCUMULATOR[spec.dtype]
        tasks, panels, pairs, cols, nnz, *self.sizes = p.sizes("num_tasks", "num_panels", "pairs", "cols", "nnz", *more)
        index = spec.index_dtype
        self.T = p.dense_fixed("T", tasks)
        self.P = p.dense_variable("P", self.T, (panels, panels), "panel_ptr", index)
        self.M = p.dense_variable("M", self.P, (pairs, pairs), "pair_ptr", index)
        self.J = p.sparse_variable("J", self.M, (cols, nnz), ("indptr", "indices"), index, sorted=False, unique=False)
        self.D = p.dense_fixed("D", spec.blocks)
        self.FI, self.FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
        self.WI, self.WO = p.dense_fixed("WI", spec.wide_in), p.dense_fixed("WO", spec.wide_out)
        self.panel_rows = p.dense_fixed("PM", spec.panel)
        self.Count = p.buffer("Count", (self.T, self.P), index)
        self.Row = p.buffer("Row", (self.T, self.P, self.M), index)
        self.A = p.buffer("A", (self.T, self.P, self.M, self.J), self.accumulator) if spec.weighted else None
        self.cols = cols

    def gathered(self) -> None:
        """Declare X with a row for each edge's other end."""
        p, spec = self.p, self.spec
        self.pieces = tiles_of(p, spec.wide_in, min(spec.piece, spec.wide_in), "SVU")
        self.X = p.buffer("X", (p.dense_fixed("N", self.cols), self.WI), spec.dtype, strided=True)

    def relations(self) -> None:
        """Declare the relation of each panel, and the matrices (``rgms_gather``)."""
        p, spec = self.p, self.spec
        self.Relation = p.buffer("Relation", (self.T, self.P), spec.index_dtype)
        elements = p.dense_fixed("WT", spec.in_features * spec.out_features)
        self.W = p.buffer("W", (p.dense_fixed("R", self.sizes[0]), self.D, elements), spec.dtype)
        self.tiles = tiles_of(p, spec.out_features, spec.tile, "KQL")
        self.B = p.dense_fixed("B", -(-spec.panel // spec.rows))
        self.steps, self.step = self.FI, None
        if spec.bf16_pairs:
            self.steps, self.step = pairs_of_features(p, "rgms", spec.in_features)

    def multiply(self, t: Expr, panel: Expr, left: Callable[[Expr, Expr], Expr], keep: Keep) -> None:
        """The products of a panel's pairs by the matrix of its relation, a block of accumulators at a time.

        left(m, f): feature f of the left operand of pair m. keep(suffix, axis, column, at, sums) says what becomes of
        the block: sums[n] are the columns from `column` on, over `axis`, of the product of pair at[n].
        """
        p, spec = self.p, self.spec
        last = self.Count[t, panel] - 1
        with p.iterate("diagonal", (self.D,), "S", ("d",)) as (d,):
            for suffix, axis, first in each_tile(p, self.tiles, "tiles"):
                with p.iterate(f"blocks{suffix}", (self.B,), "S", ("b",)) as (b,):
                    p.where(b * spec.rows <= last)
                    # past the end of a panel the last pair is repeated: all of the block is read before any of it
                    # is stored, so that copies store alike
                    at = [minimum(b * spec.rows + m, last) for m in range(spec.rows)]
                    sums = [p.local(f"Sum{suffix}{m}", (axis,), self.accumulator) for m in range(spec.rows)]
                    with each_term(p, f"sum{suffix}", self.steps, self.step, axis) as (i, feature, k, place):
                        with p.init():
                            for total in sums:
                                total[k] = 0.0
                        if spec.tiled:
                            element = first * spec.in_features + place(i * axis.length + k)
                        else:
                            element = place(i * spec.out_features + first + k)
                        value = cast(self.accumulator, self.W[self.Relation[t, panel], d, element])
                        for total, m in zip(sums, at):
                            total[k] = total[k] + left(m, d * spec.in_features + feature) * value
                    keep(suffix, axis, d * spec.out_features + first, at, sums)

    def local_panel(self, name: str, features: Axis) -> BufferHandle:
        """A row of features for each pair of a panel."""
        return self.p.local(name, (self.panel_rows, features), self.accumulator)

    def gather(self, Sums: BufferHandle, t: Expr, panel: Expr, also: Callable[[Expr], None] | None = None) -> None:
        """Sums[m] = sum of A[e] * X[j(e)] over the edges of pair m; ``also(m)`` adds statements for the pair."""
        p, accumulator = self.p, self.accumulator
        with p.iterate("gather", (self.M,), "S", ("m",)) as (m,):
            for suffix, axis, first in each_tile(p, self.pieces, "pieces"):
                Edge = p.local(f"Edge{suffix}", (axis,), accumulator)
                with p.iterate(f"edges{suffix}", (self.J, axis), "RS", ("j", "s")) as (j, s):
                    with p.init():
                        Edge[s] = 0.0
                    value = cast(accumulator, self.X[j, first + s])
                    Edge[s] = Edge[s] + (value if self.A is None else self.A[t, panel, m, j] * value)
                with p.iterate(f"keep{suffix}", (axis,), "S", ("c",)) as (c,):
                    Sums[m, first + c] = Edge[c]
            if also is not None:
                also(m)


def rgms_gather(spec: RgmsSpec) -> Program:
    """Y[i] = the sum over the pairs (i, r) of (sum over the pair's edges of A[e] * X[j(e)]) W[r].

    Parameters: (num_tasks, num_panels, pairs, cols, nnz, relations, rows, panel_ptr, pair_ptr, indptr, indices,
    row_ptr, Count, Row, [A], X, First, Relation, W, Y). Task t has the rows First[t], First[t] + 1, ..., as many as
    row_ptr says, and the pairs of these rows; Y has the accumulation type. Tiled matrices are, of each block on the
    diagonal, the first `tile` columns, as rows of this width, then the next ones; the last tile may be narrower. The
    rows of a tile of a large matrix would be so far apart otherwise that they compete for the same places of the cache.
    """
    p = ProgramBuilder("rgms_gather")
    w = _Pairs(p, spec, "relations", "rows")
    rows = w.sizes[1]
    w.gathered()
    I = p.dense_variable("I", w.T, (rows, rows), "row_ptr", spec.index_dtype)
    First = p.buffer("First", (w.T,), spec.index_dtype)
    w.relations()
    Y = p.buffer("Y", (p.dense_fixed("NY", rows), w.WO), w.accumulator)
    with p.iterate("tasks", (w.T,), "S", ("t",)) as (t,):
        Sums = w.local_panel("Sums", w.WI)
        with p.iterate("clear", (I,), "S", ("i0",)) as (i,):
            with p.iterate("clear_blocks", (w.D,), "S", ("d0",)) as (d,):
                for suffix, axis, first in each_tile(p, w.tiles, "clear_tiles"):
                    with p.iterate(f"zero{suffix}", (axis,), "S", ("z",)) as (z,):
                        Y[First[t] + i, d * spec.out_features + first + z] = 0.0
        with p.iterate("panels", (w.P,), "R", ("panel",)) as (panel,):

            def keep(suffix: str, axis: Axis, column: Expr, at: Sequence[Expr], sums: Sequence[BufferHandle]) -> None:
                # read last, so that products do not wait for it
                with p.iterate(f"before{suffix}", (axis,), "S", ("k0",)) as (k,):
                    for total, m in zip(sums, at):
                        total[k] = total[k] + Y[w.Row[t, panel, m], column + k]
                with p.iterate(f"after{suffix}", (axis,), "S", ("k1",)) as (k,):
                    for total, m in zip(sums, at):
                        Y[w.Row[t, panel, m], column + k] = total[k]

            w.gather(Sums, t, panel)
            w.multiply(t, panel, lambda m, f: Sums[m, f], keep)
    return p.finish()


def rgms_scatter(spec: RgmsSpec) -> Program:
    """Y[i(e)] += A[e] * (X[j] W[r]) for all edges e of all pairs (j, r), each of whose products is made once in a task.

    Parameters: (num_tasks, num_panels, pairs, rows, nnz, relations, cols, panel_ptr, pair_ptr, indptr, indices, Count,
    Row, [A], X, Relation, W, Y). Tasks add to rows of their own; indices are rows of Y, Row rows of X. Y has the
    accumulation type; matrices as in ``rgms_gather``, in pairs with rows 2 i and 2 i + 1 of a tile side by side, column
    by column.
    """
    p = ProgramBuilder("rgms_scatter")
    w = _Pairs(p, spec, "relations", "far")
    X = p.buffer("X", (p.dense_fixed("N", w.sizes[1]), w.WI), spec.dtype, strided=True)
    w.relations()
    Y = p.buffer("Y", (p.dense_fixed("NY", w.cols), w.WO), w.accumulator)
    added = tiles_of(p, spec.wide_out, min(spec.piece, spec.wide_out), "OCE")
    with p.iterate("tasks", (w.T,), "S", ("t",)) as (t,):
        Products = w.local_panel("Products", w.WO)
        with p.iterate("panels", (w.P,), "R", ("panel",)) as (panel,):
            w.multiply(t, panel, lambda m, f: cast(w.accumulator, X[w.Row[t, panel, m], f]), _kept(p, Products))
            with p.iterate("scatter", (w.M,), "R", ("m",)) as (m,):
                with p.iterate("edges", (w.J,), "R", ("j",)) as (j,):
                    for suffix, axis, first in each_tile(p, added, "pieces"):
                        with p.iterate(f"add{suffix}", (axis,), "S", ("o",)) as (o,):
                            value = Products[m, first + o]
                            Y[j, first + o] = Y[j, first + o] + (value if w.A is None else w.A[t, panel, m, j] * value)
    return p.finish()


def rgms_dot(spec: RgmsSpec) -> Program:
    """C[number of e] = <G[i] W[r], X[j(e)]> for all edges e of all pairs (i, r), each of whose products is made once.

    Parameters: (num_tasks, num_panels, pairs, cols, nnz, relations, far, numbers, panel_ptr, pair_ptr, indptr, indices,
    Count, Row, Number, X, G, Relation, W, C). Row are rows of G, of the width that X has beside W; indices are rows of
    X; C (numbers, 1) has the accumulation type; matrices as in ``rgms_scatter``.
    """
    p = ProgramBuilder("rgms_dot")
    w = _Pairs(p, spec, "relations", "far", "numbers")
    Number = p.buffer("Number", (w.T, w.P, w.M, w.J), spec.index_dtype)
    X = p.buffer("X", (p.dense_fixed("N", w.cols), w.WO), spec.dtype, strided=True)
    G = p.buffer("G", (p.dense_fixed("NG", w.sizes[1]), w.WI), spec.dtype, strided=True)
    w.relations()
    C = p.buffer("C", (p.dense_fixed("NE", w.sizes[2]), p.dense_fixed("One", 1)), w.accumulator)
    terms = p.dense_fixed("VD", spec.wide_out)
    with p.iterate("tasks", (w.T,), "S", ("t",)) as (t,):
        Products = w.local_panel("Products", w.WO)
        with p.iterate("panels", (w.P,), "R", ("panel",)) as (panel,):
            w.multiply(t, panel, lambda m, f: cast(w.accumulator, G[w.Row[t, panel, m], f]), _kept(p, Products))
            with p.iterate("pairs_of_panel", (w.M,), "R", ("m",)) as (m,):
                with p.iterate("edges", (w.J,), "R", ("j",)) as (j,):
                    Dot = p.local("Dot", (), w.accumulator)
                    with p.iterate("dot", (terms,), "R", ("v",)) as (v,):
                        with p.init():
                            Dot[()] = 0.0
                        Dot[()] = Dot[()] + Products[m, v] * cast(w.accumulator, X[j, v])
                    C[Number[t, panel, m, j], 0] = Dot[()]
    return p.finish()


def _kept(p: ProgramBuilder, Products: BufferHandle) -> Keep:
    """What becomes of a block of accumulators: rows of a panel."""

    def keep(suffix: str, axis: Axis, column: Expr, at: Sequence[Expr], sums: Sequence[BufferHandle]) -> None:
        with p.iterate(f"after{suffix}", (axis,), "S", ("k1",)) as (k,):
            for total, m in zip(sums, at):
                Products[m, column + k] = total[k]

    return keep


def rgms_sum(spec: RgmsSpec) -> Program:
    """W[slot] = the sum over pairs of (sum over the pair's edges of A[e] * X[j(e)])^T G[i], the blocks on the diagonal.

    Parameters: (num_tasks, num_panels, pairs, cols, nnz, slots, rows, panel_ptr, pair_ptr, indptr, indices, Count, Row,
    [A], X, Slot, G, W). Task t fills the matrix Slot[t] of W, which has the accumulation type; Slot names none twice.
    """
    p = ProgramBuilder("rgms_sum")
    w = _Pairs(p, spec, "slots", "rows")
    slots, rows = w.sizes
    w.gathered()
    Slot = p.buffer("Slot", (w.T,), spec.index_dtype)
    G = p.buffer("G", (p.dense_fixed("NG", rows), w.WO), spec.dtype, strided=True)
    W = p.buffer("W", (p.dense_fixed("R", slots), w.D, w.FI, w.FO), w.accumulator)
    tiles = tiles_of(p, spec.out_features, spec.tile, "KQL")
    copied = tiles_of(p, spec.wide_out, min(spec.piece, spec.wide_out), "OCE")
    B = p.dense_fixed("B", -(-spec.in_features // spec.rows))
    with p.iterate("tasks", (w.T,), "S", ("t",)) as (t,):
        Sums, Rows = w.local_panel("Sums", w.WI), w.local_panel("Rows", w.WO)
        with p.iterate("clear", (w.D, w.FI), "SS", ("d0", "i0")) as (d, i):
            for suffix, axis, first in each_tile(p, tiles, "clear_tiles"):
                with p.iterate(f"zero{suffix}", (axis,), "S", ("z",)) as (z,):
                    W[Slot[t], d, i, first + z] = 0.0
        with p.iterate("panels", (w.P,), "R", ("panel",)) as (panel,):

            def copy(m: Expr) -> None:
                for suffix, axis, first in each_tile(p, copied, "copies"):
                    with p.iterate(f"copy{suffix}", (axis,), "S", ("o",)) as (o,):
                        Rows[m, first + o] = cast(w.accumulator, G[w.Row[t, panel, m], first + o])

            w.gather(Sums, t, panel, copy)
            with p.iterate("diagonal", (w.D, B), "SS", ("d", "b")) as (d, b):
                at = [minimum(b * spec.rows + m, as_expr(spec.in_features - 1)) for m in range(spec.rows)]
                for suffix, axis, first in each_tile(p, tiles, "tiles"):
                    sums = [p.local(f"Sum{suffix}{i}", (axis,), w.accumulator) for i in range(spec.rows)]
                    with p.iterate(f"before{suffix}", (axis,), "S", ("k0",)) as (k,):
                        for total, row in zip(sums, at):
                            total[k] = W[Slot[t], d, row, first + k]
                    with p.iterate(f"sum{suffix}", (w.M, axis), "RS", ("n", "k")) as (n, k):
                        value = Rows[n, d * spec.out_features + first + k]
                        for total, row in zip(sums, at):
                            total[k] = total[k] + Sums[n, d * spec.in_features + row] * value
                    with p.iterate(f"after{suffix}", (axis,), "S", ("k1",)) as (k,):
                        for total, row in zip(sums, at):
                            W[Slot[t], d, row, first + k] = total[k]
    return p.finish()
