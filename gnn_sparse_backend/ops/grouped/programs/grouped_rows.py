"""Grouped matrix products in full precision on a GPU: a block of warps multiplies a panel of rows from shared memory.

    C[n] = A[n] W[r] for all rows n of each relation r

A block goes through the features in windows: it leaves those of its rows in shared memory, from where each lane takes
the terms of its rows, beside vectors of the matrix (`row_products.InLanes`). So a row is loaded once for all columns of
a block, and a matrix once for all rows of a panel. Rows that a panel lacks are zeros, whose products are not stored.
"""

from __future__ import annotations

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, ExprLike
from ....compiler.language.program import Program
from ....frozen import dataclass
from ...core.tiles.accumulators import Accumulators
from ...core.tiles.matrices import Matrices
from ...core.tiles.row_products import BlockSpec, refuses_lanes
from ...core.tiles.shared_rows import SharedRows
from .grouped import row_at, row_indices

SHARED = "Rows"


@dataclass(frozen=True)
class GroupedRowsSpec(BlockSpec):
    """What is static, as of a `BlockSpec`.

    across: is never 0. window: features that are kept at a time, which divides ``in_features``. part: neighbouring
    features that a lane loads together, which divides the window; a power of two. gathered: for A and for C, whether
    its rows are named by an index array.
    by_columns: as of `Matrices`. index_dtype: of all index arrays.
    """

    across: int = 8
    window: int = 1
    part: int = 1
    gathered: tuple[bool, bool] = (False, False)
    dtype: str = "float32"
    index_dtype: str = "int32"
    by_columns: bool = False

    @property
    def grid(self) -> int:
        """Blocks that the columns of a matrix take."""
        return -(-self.out_features // self.width)


def grouped_rows(spec: GroupedRowsSpec) -> Program:
    """The program.

    Parameters: (num_groups, num_panels, relations, rows_a, rows_c, [positions], group_ptr, Start, Stop, Relation,
    [RowsA], [RowsC], A, W, C), as of `grouped.grouped_product`, but that a panel has up to `spec.rows` positions and W
    may be by columns.
    """
    _check(spec)
    p = ProgramBuilder("grouped_rows")
    num_groups, panels, relations, rows_a, rows_c = p.sizes("num_groups", "num_panels", "relations", "rows_a", "rows_c")
    G = p.dense_fixed("G", num_groups)
    P = p.dense_variable("P", G, (panels, panels), "group_ptr", spec.index_dtype)
    B = p.role_axis("B", spec.grid, "grid")
    Start, Stop, Relation = (p.buffer(name, (G, P), spec.index_dtype) for name in ("Start", "Stop", "Relation"))
    rows = row_indices(p, spec.gathered, spec.index_dtype, "RowsA", "RowsC")
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    A = p.buffer("A", (p.dense_fixed("NA", rows_a), FI), spec.dtype)
    W = Matrices(p, (p.dense_fixed("NW", relations),), FI, FO, spec.by_columns, spec.dtype)
    C = p.buffer("C", (p.dense_fixed("NC", rows_c), FO), spec.dtype)
    products, chunk = Accumulators(p, spec), p.dense_fixed("K", spec.in_features // spec.window)
    kept = SharedRows(
        p, SHARED, "X", spec.rows, spec.window, spec.in_features, spec.part, products.warp, products.lane, spec.dtype
    )
    with p.iterate("panels", (G, P, B), "SSS", ("g", "panel", "b")) as (g, panel, b):

        def place(w: Expr, m: ExprLike, n: ExprLike) -> tuple[Expr, Expr]:
            row, column = spec.of_warp(w, m, n)
            return row, b * spec.width + column

        def present(row: Expr) -> Expr:
            return row < Stop[g, panel] - Start[g, panel]

        def put(row: Expr, column: Expr, value: Expr) -> None:
            C[row_at(rows[1], Start[g, panel] + row), column] = value

        CF = products.zeros("CF")
        with p.iterate("windows", (chunk,), "R", ("c",)) as (c,):
            kept.start(c * spec.window)
            kept.load(present, lambda row, feature: A[row_at(rows[0], Start[g, panel] + row), feature])
            right = W[Relation[g, panel],]
            multiply = products.multiplier(
                spec.window,
                spec.out_features,
                place,
                lambda row, term: kept[row, term],
                lambda column, term: right(column, c * spec.window + term),
                by_columns=spec.by_columns,
            )
            multiply(CF)
        products.store(CF, place, put, present)
    return p.finish()


def _check(spec: GroupedRowsSpec) -> None:
    reason = refuses_lanes(spec.dtype, spec.across)
    if not spec.across:
        reason = "lanes multiply in one stretch of columns at least"
    if spec.window < 1 or spec.in_features % spec.window or spec.window % spec.part:
        reason = f"windows of {spec.window} features in parts of {spec.part} do not divide {spec.in_features}"
    if reason:
        raise StageIError(f"grouped_rows: {reason}")
