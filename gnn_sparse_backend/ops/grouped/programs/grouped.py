"""Grouped matrix products: rows that belong to relations, each relation with a matrix of its own.

The rows of a relation are neighbours in some order: the stored one, or one that an index array gives. Two programs are
closed under differentiation: the product C[n] = A[n] W[r(n)], and the sum of outer products W[r] += A[n]^T G[n] over
the rows of each relation, which is the gradient of the weights.

Both keep a block of accumulators in registers: some rows (of C, or of W) by a tile of columns. The block is written
out row by row here, since a local buffer becomes registers only if its elements are named by constants. A block at the
end of a relation is filled up with copies of its last row: they compute and store what that row does, so no row of
another relation is touched, and no condition stands in a loop.
"""

from __future__ import annotations

from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast, minimum
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from ...core.tiles.tiles import each_term, each_tile, pairs_of_features, tiles_of


@dataclass(frozen=True)
class GroupedSpec:
    """What is static in a grouped product or sum.

    in_features, out_features: widths of the two operands' rows: (A, C) of a product, (A, G) of a sum.
    block: rows of the block of accumulators. tile: its columns.
    gathered: for each of the two operands, whether its rows are named by an index array.
    dtype: of values; a sum is in its accumulator. index_dtype: of all index arrays.
    bf16_pairs: a product takes two features of A at a time, and W has them side by side (``grouped_product``); F_in is
        even.
    """

    in_features: int
    out_features: int
    block: int
    tile: int
    gathered: tuple[bool, bool] = (False, False)
    dtype: str = "float32"
    index_dtype: str = "int32"
    bf16_pairs: bool = False


def grouped_product(spec: GroupedSpec) -> Program:
    """C[n] = A[n] W[r] for all rows n of each relation r.

    Parameters: (num_groups, num_panels, relations, rows_a, rows_c, [positions], group_ptr, Start, Stop, Relation,
    [RowsA], [RowsC], A, W, C). A panel is up to `block` positions Start .. Stop - 1 of one relation; panels come in
    groups, which are independent. Position p is row p, or row RowsA[p] of A and row RowsC[p] of C.

    W is (relations, F_in, F_out); in pairs (relations, F_in / 2, 2 F_out), element [r, i, 2 k + q] for that of row
    2 i + q and column k, so that the two rows that an instruction takes together are neighbours
    (`primitives.cpu.bf16_pair_dot`).
    """
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("grouped_product")
    num_groups, panels, relations, rows_a, rows_c = p.sizes("num_groups", "num_panels", "relations", "rows_a", "rows_c")
    G = p.dense_fixed("G", num_groups)
    P = p.dense_variable("P", G, (panels, panels), "group_ptr", spec.index_dtype)
    Start, Stop, Relation = (p.buffer(name, (G, P), spec.index_dtype) for name in ("Start", "Stop", "Relation"))
    rows = row_indices(p, spec.gathered, spec.index_dtype, "RowsA", "RowsC")
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    A = p.buffer("A", (p.dense_fixed("NA", rows_a), FI), spec.dtype, strided=True)
    steps, step = FI, None
    if spec.bf16_pairs:
        steps, step = pairs_of_features(p, "grouped_product", spec.in_features)
    columns = p.dense_fixed("FQ", 2 * spec.out_features) if spec.bf16_pairs else FO
    W = p.buffer("W", (p.dense_fixed("R", relations), steps, columns), spec.dtype)
    C = p.buffer("C", (p.dense_fixed("NC", rows_c), FO), spec.dtype)
    tiles = tiles_of(p, spec.out_features, spec.tile, "KQL")
    with p.iterate("panels", (G, P), "SS") as (g, panel):
        at = [minimum(Start[g, panel] + m, Stop[g, panel] - 1) for m in range(spec.block)]
        for name, axis, first in each_tile(p, tiles, "tiles"):
            sums = [p.local(f"Sum{name}{m}", (axis,), accumulator) for m in range(spec.block)]
            with each_term(p, f"sum{name}", steps, step, axis) as (i, feature, k, place):
                with p.init():
                    for total in sums:
                        total[k] = 0.0
                w = cast(accumulator, W[Relation[g, panel], i, place(first + k)])
                for total, position in zip(sums, at):
                    total[k] = total[k] + cast(accumulator, A[row_at(rows[0], position), feature]) * w
            with p.iterate(f"out{name}", (axis,), "S", ("f",)) as (f,):
                for total, position in zip(sums, at):
                    C[row_at(rows[1], position), first + f] = cast(spec.dtype, total[f])
    return p.finish()


def grouped_sum(spec: GroupedSpec) -> Program:
    """W[r, i] += the sum of A[n, i] G[n] over the rows n of each relation r.

    Parameters: (num_groups, num_units, relations, rows_a, rows_g, work, [positions], group_ptr, work_ptr, Start, Block,
    Relation, [RowsA], [RowsG], A, G, W). A unit adds to rows Block, Block + 1, ... of one matrix what the work_ptr[u +
    1]
    - work_ptr[u] positions from Start on contribute. Units of one group run in order, so several may share a matrix;
    groups are independent. W has the accumulation type.
    """
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("grouped_sum")
    num_groups, units, relations, rows_a, rows_g, work = p.sizes(
        "num_groups", "num_units", "relations", "rows_a", "rows_g", "work"
    )
    T = p.dense_fixed("T", num_groups)
    U = p.dense_variable("U", T, (units, units), "group_ptr", spec.index_dtype)
    N = p.dense_variable("N", U, (work, work), "work_ptr", spec.index_dtype)
    Start, Block, Relation = (p.buffer(name, (T, U), spec.index_dtype) for name in ("Start", "Block", "Relation"))
    rows = row_indices(p, spec.gathered, spec.index_dtype, "RowsA", "RowsG")
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    A = p.buffer("A", (p.dense_fixed("NA", rows_a), FI), spec.dtype, strided=True)
    G = p.buffer("G", (p.dense_fixed("NG", rows_g), FO), spec.dtype, strided=True)
    W = p.buffer("W", (p.dense_fixed("R", relations), FI, FO), accumulator)
    tiles = tiles_of(p, spec.out_features, spec.tile, "KQL")
    with p.iterate("units", (T, U), "SR") as (t, u):
        relation = Relation[t, u]
        at = [minimum(Block[t, u] + m, as_expr(spec.in_features - 1)) for m in range(spec.block)]
        for name, axis, first in each_tile(p, tiles, "tiles"):
            sums = [p.local(f"Sum{name}{m}", (axis,), accumulator) for m in range(spec.block)]
            # all of the block is read before any of it is stored: copies of the last row start alike
            with p.iterate(f"before{name}", (axis,), "S", ("b",)) as (b,):
                for total, i in zip(sums, at):
                    total[b] = W[relation, i, first + b]
            with p.iterate(f"sum{name}", (N, axis), "RS", ("n", "k")) as (n, k):
                position = Start[t, u] + n
                value = cast(accumulator, G[row_at(rows[1], position), first + k])
                for total, i in zip(sums, at):
                    total[k] = total[k] + cast(accumulator, A[row_at(rows[0], position), i]) * value
            with p.iterate(f"after{name}", (axis,), "S", ("f",)) as (f,):
                for total, i in zip(sums, at):
                    W[relation, i, first + f] = total[f]
    return p.finish()


def row_indices(
    p: ProgramBuilder, gathered: tuple[bool, bool], index_dtype: str, *names: str
) -> list[BufferHandle | None]:
    """What row a position is in each of two operands, of these names where they are ``gathered``, or None where it is
    that row itself; with the number of positions as a further size where there is one.
    """
    if not any(gathered):
        return [None, None]
    axis = p.dense_fixed("Z", p.size("positions"))
    return [p.buffer(name, (axis,), index_dtype) if wanted else None for name, wanted in zip(names, gathered)]


def row_at(rows: BufferHandle | None, position: Expr) -> Expr:
    return position if rows is None else rows[position]
