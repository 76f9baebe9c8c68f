"""Products of a matrix in BSR or SR-BCRS on Tensor Cores: tiles of stored elements, zeros between them, times rows of
X.

    Y[i] = sum over the blocks of the tile of 16 rows of i, and their columns j, of A[i, j] * X[j]

A block of warps takes 16 rows and some features. For each block of the matrix, 16 rows by the columns of one
instruction, the rows of X that it meets go through shared memory (`shared_rows`), its elements straight to the fragment
of the lane that holds them (``grouped_tiles`` has the layouts), and each warp multiplies its own features. The two
formats differ in which columns a block has: neighbours, known by the number of the block (BSR), or any, each named by
an array (SR-BCRS), where a block may lack some.

0 * Inf is NaN, and a row may have nothing in a column that its neighbours have: where an element of the result comes
out NaN, which is the only trace that such a product leaves, the lane that holds it adds up the elements of its row
anew, those alone that the mask says are there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from ....compiler.language.axes import StageIError, given
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, Var, both, cast, differ, is_nan, maximum, number
from ....compiler.language.program import Program
from ....frozen import dataclass
from ....planner.cuda.tensor_cores import COLUMNS, LANES, ROWS, SIDE_BY_SIDE, block_of
from ...core.tiles.shared_rows import SharedRows
from ...core.tiles.windows import each_window

SHARED = "Rows"


@dataclass(frozen=True)
class BsrTilesSpec:
    """What is static. features: of a row of X, for each of `heads`, which have elements of their own. warps: of a
    block, each with `tiles` of 8 features. part: neighbouring features that a lane loads together, which divides
    ``features``, a power of two.
    mean: divide by the Degrees of the rows. listed: the columns of a block are named one by one (SR-BCRS).
    pipelined: a block is loaded while the one before is multiplied (``windows``). dtype, index_dtype: as of an
    `OuterSpec`."""

    features: int
    warps: int = 1
    tiles: int = 1
    part: int = 1
    mean: bool = False
    listed: bool = False
    heads: int = 1
    pipelined: bool = False
    dtype: str = "float16"
    index_dtype: str = "int32"

    @property
    def width(self) -> int:
        """Features of a block of warps."""
        return COLUMNS * self.tiles * self.warps


def bsr_tiles(spec: BsrTilesSpec) -> Program:
    """The program, accumulating in float32.

    Parameters: (block_rows, block_cols, blocks, rows, cols, indptr, indices, A, Mask, [Degrees], X, Y), as of a
    `BsrFormat` with blocks of `block_of(dtype)`; or, where columns are listed, (block_rows, blocks, rows, cols, indptr,
    Columns, A, Mask, [Degrees], X, Y), as of an `SrBcrsFormat`, whose Columns are (blocks, columns of a block), -1 for
    none. A is (heads, blocks, 16, columns of a block), Mask (uint8) the same of one head, X (cols, heads, features), Y
    (rows, heads, features).
    """
    if spec.dtype not in SIDE_BY_SIDE:
        raise StageIError(f"bsr_tiles: Tensor Cores do not multiply {spec.dtype} here")
    if spec.features < 1 or spec.features % spec.part or COLUMNS % spec.part:
        raise StageIError(
            f"bsr_tiles: parts of {spec.part} do not divide rows of {spec.features} features and tiles of {COLUMNS}"
        )
    q, (height, depth) = SIDE_BY_SIDE[spec.dtype], block_of(spec.dtype)
    p = ProgramBuilder("sr_bcrs_tiles" if spec.listed else "bsr_tiles")
    block_rows = p.size("block_rows")
    block_cols = None if spec.listed else p.size("block_cols")
    blocks, rows, cols = p.sizes("blocks", "rows", "cols")
    across = -(-spec.features // spec.width)
    IO, B = p.dense_fixed("IO", block_rows), p.role_axis("B", spec.heads * across, "grid")
    H = p.dense_fixed("H", spec.heads)
    II, JI, F = p.dense_fixed("II", height), p.dense_fixed("JI", depth), p.dense_fixed("F", spec.features)
    if spec.listed:
        JO = p.dense_variable("JO", IO, (blocks, blocks), "indptr", spec.index_dtype)
        Columns = p.buffer("Columns", (IO, JO, JI), spec.index_dtype)
    else:
        JO = p.sparse_variable("JO", IO, (given(block_cols), blocks), ("indptr", "indices"), spec.index_dtype)
    A = p.buffer("A", (H, IO, JO, II, JI), spec.dtype)
    Mask = p.buffer("Mask", (IO, JO, II, JI), "uint8")
    NY = p.dense_fixed("NY", rows)
    Degrees = p.buffer("Degrees", (NY,), spec.index_dtype) if spec.mean else None
    X = p.buffer("X", (p.dense_fixed("NX", cols), H, F), spec.dtype)
    Y = p.buffer("Y", (NY, H, F), spec.dtype)
    warp, lane_axis = p.role_axis("V", spec.warps, "warp"), p.role_axis("W", LANES, "lane")
    columns = p.role_axis("N", spec.tiles, "turn")
    four, half, pair, side = (
        p.role_axis(*x) for x in (("R", 4, "turn"), ("H", 2, "turn"), ("Q", q, "part"), ("E", q, "turn"))
    )
    out = p.role_axis("O", 2, "part" if spec.features % 2 == 0 else "turn")
    again = p.dense_fixed("Again", 4 * spec.tiles)
    extents = tuple(p.dense_fixed(name, extent) for name, extent in zip("MNK", (ROWS, COLUMNS, depth)))
    window = SharedRows(p, SHARED, "X", depth, spec.width, spec.features, spec.part, warp, lane_axis, spec.dtype)

    def column(io: Expr, jo: Expr, at: Expr) -> Expr:
        """The column of the matrix that is column `at` of a block."""
        return Columns[io, jo, at] if spec.listed else jo * depth + at

    def present(io: Expr, jo: Expr, at: Expr) -> Expr:
        """Whether the matrix has it."""
        return column(io, jo, at) >= 0 if spec.listed else column(io, jo, at) < number(cols)

    with p.iterate("tasks", (IO, B), "SS", ("io", "b")) as (io, b):
        head = b // across
        window.start(b % across * spec.width)
        CF = p.local("CF", (lane_axis, warp, columns, four), "float32")
        with p.iterate("clear", (warp, columns, four, lane_axis), "SSSS", ("wz", "nz", "rz", "lz")) as (w, n, r, lane):
            CF[lane, w, n, r] = 0.0
        AF = p.local("AF", (lane_axis, four, pair), spec.dtype)

        def visit(name: str) -> AbstractContextManager[tuple[Var, ...]]:
            return p.iterate(name, (four, lane_axis, pair), "SSS", tuple(f"{v}_{name}" for v in "rlq"))

        def blank() -> None:
            window.blank()
            with visit("blank_a") as (r, lane, e):
                AF[lane, r, e] = 0.0

        def elements(jo: Expr) -> Callable[[], None]:
            held = p.local("Held_a", (lane_axis, four, pair), spec.dtype)
            with visit("fetch_a") as (r, lane, e):
                held[lane, r, e] = A[head, io, jo, lane // 4 + r % 2 * 8, (r // 2) * (4 * q) + lane % 4 * q + e]

            def keep() -> None:
                with visit("keep_a") as (r, lane, e):
                    AF[lane, r, e] = held[lane, r, e]

            return keep

        def met(jo: Expr) -> Callable[[], None]:
            return window.fetch(
                lambda at: present(io, jo, at), lambda at, feature: X[column(io, jo, at), head, feature]
            )

        def multiply(suffix: str) -> None:
            with p.iterate("warps" + suffix, (warp,), "S", ("w",)) as (w,):
                with p.iterate("across" + suffix, (columns,), "S", ("nt",)) as (nt,):
                    BF = p.local("BF" + suffix, (lane_axis, half, side), spec.dtype)
                    axes = half, side, lane_axis
                    with p.iterate("load_b" + suffix, axes, "SSS", ("rb", "eb", "lb")) as (r, e, lane):
                        row, feature = r * (4 * q) + lane % 4 * q + e, (w * spec.tiles + nt) * COLUMNS + lane // 4
                        BF[lane, r, e] = window[row, feature]
                    with p.iterate("mma" + suffix, extents, "SSR", ("m", "n", "k")) as (m, n, k):
                        a = AF[(m % 8) * 4 + k % (4 * q) // q, m // 8 + 2 * (k // (4 * q)), k % q]
                        x = BF[n * 4 + k % (4 * q) // q, k // (4 * q), k % q]
                        at = ((m % 8) * 4 + n // 2, w, nt, (m // 8) * 2 + n % 2)
                        CF[at] = CF[at] + cast("float32", a) * cast("float32", x)

        each_window(p, "tiles", JO, "jo", (elements, met), multiply, blank if spec.pipelined else None)

        def place(w: Expr, n: Expr, h: Expr, lane: Expr) -> tuple[Expr, Expr]:
            """(row in the block, feature) of an even element of a fragment."""
            return lane // 4 + h * 8, window.first + (w * spec.tiles + n) * COLUMNS + lane % 4 * 2

        def there(row: Expr, feature: Expr) -> Expr:
            inside = io * height + row < number(rows)
            return inside if window.whole else both(inside, feature < spec.features)

        def put(row: Expr, feature: Expr, total: Expr) -> None:
            at = io * height + row
            if Degrees is not None:
                total = total / cast("float32", maximum(cast("int64", Degrees[at]), 1))
            Y[at, head, feature] = cast(spec.dtype, total)

        axes = (warp, columns, half, lane_axis, out)
        with p.iterate("store", axes, "SSSSS", ("wo", "no", "ho", "lo", "eo")) as (w, n, h, lane, e):
            row, feature = place(w, n, h, lane)
            p.where(there(row, feature if spec.features % 2 == 0 else feature + e))
            put(row, feature + e, CF[lane, w, n, h * 2 + e])
        Bad = p.local("Bad", (lane_axis, warp), "int32")
        with p.iterate("trust", (warp, lane_axis), "SS", ("wt", "lt")) as (w, lane):
            Bad[lane, w] = 0
        with p.iterate("doubt", (warp, columns, four, lane_axis), "SSSS", ("wd", "nd", "rd", "ld")) as (w, n, r, lane):
            p.where(is_nan(CF[lane, w, n, r]))
            Bad[lane, w] = 1
        with p.iterate("repair", (warp, lane_axis, again), "SSS", ("wr", "lr", "z")) as (w, lane, z):
            row, feature = place(w, z // 4, z % 4 // 2, lane)
            feature = feature + z % 2
            p.where(both(differ(Bad[lane, w], 0), there(row, feature)))
            Exact = p.local("Exact", (), "float32")
            Exact[()] = 0.0
            with p.iterate("listed", (JO, JI), "RR", ("jr", "kr")) as (jo, k):
                p.where(differ(Mask[io, jo, row, k], 0))
                x = X[column(io, jo, k), head, feature]
                Exact[()] = Exact[()] + cast("float32", A[head, io, jo, row, k]) * cast("float32", x)
            put(row, feature, Exact[()])
    return p.finish()
