"""Sums of outer products by blocks of warps: the gradient of the matrices of relations.

    W[s] = sum over the positions n of a task of Left[n]^T Right[n]

The sum goes over positions, so positions are the terms of a product, of which fragments of Tensor Cores hold a few
neighbouring ones of one feature. Rows in memory hold neighbouring features. So a block of a few warps leaves a chunk of
positions in shared memory, row by row as they are loaded, and each lane takes its elements from there, for fragments or
for products of its own (``row_products``). What a chunk lacks of positions, and rows of features, is zero on both
sides, so that an Inf or NaN of anybody else's is not met. A task has positions of one matrix only, and a matrix may
have several tasks, whose results are added up afterwards in their order: nothing is atomic.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, ExprLike, Var, both, cast, equal
from ....compiler.language.program import Program
from ....frozen import dataclass
from ....planner.cuda.tensor_cores import COLUMNS, LANES, SIDE_BY_SIDE
from ...core.tiles.accumulators import Accumulators
from ...core.tiles.row_products import BlockSpec, refuses_lanes
from ...core.tiles.shared_rows import SharedRows
from ...core.tiles.windows import each_window
from .grouped import row_at, row_indices

SHARED = ("Left", "Right")
# Instructions along the positions of a chunk.
STEPS = 2


@dataclass(frozen=True)
class OuterSpec(BlockSpec):
    """What is static in a sum of outer products, as of a `BlockSpec`.

    in_features, out_features: of Left and Right, which are the rows and columns of W; any widths.
    parts: neighbouring elements of Left and Right that a lane loads together, which divide their widths; powers of two.
    gathered: for Left and Right, whether their rows are named by an index array (`grouped_sum_tiles`). weighted: a
    number A for each edge, in float32; blocks: on the diagonal of W, which is zero elsewhere, of in_features x
    out_features each (`rgms_sum_tiles`). pipelined: a chunk is loaded while the one before is multiplied
    (`grouped_sum_tiles`, ``windows``).
    dtype: float16, bfloat16, or float32, of which Tensor Cores take ten bits of the fraction (tf32). index_dtype: of
    all index arrays.
    """

    parts: tuple[int, int] = (1, 1)
    gathered: tuple[bool, bool] = (False, False)
    weighted: bool = False
    blocks: int = 1
    pipelined: bool = False
    dtype: str = "float16"
    index_dtype: str = "int32"

    @property
    def chunk(self) -> int:
        """Positions of a chunk at most."""
        return chunk_of(self.dtype)

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of W that a block of warps accumulates."""
        return self.rows, self.width

    @property
    def grid(self) -> tuple[int, int]:
        """Such blocks that W, or a block on its diagonal, is cut into."""
        return -(-self.in_features // self.block[0]), -(-self.out_features // self.block[1])


def chunk_of(dtype: str) -> int:
    """Positions of a chunk at most, which are loaded together."""
    return STEPS * 8 * SIDE_BY_SIDE[dtype]


class _Outer:
    """Writes the parts of a program that load, multiply and store; inside an iteration over tasks and blocks of W."""

    def __init__(self, p: ProgramBuilder, spec: OuterSpec) -> None:
        self.p, self.spec, self.sums = p, spec, Accumulators(p, spec)
        self.warp, self.lane = self.sums.warp, self.sums.lane
        widths = spec.in_features, spec.out_features
        self.left, self.right = (
            SharedRows(p, name, letter, spec.chunk, width, total, part, self.warp, self.lane, spec.dtype)
            for name, letter, width, total, part in zip(SHARED, "XY", spec.block, widths, spec.parts)
        )
        self.product_of_chunk = self.sums.multiplier(
            spec.chunk,
            spec.block[1],
            spec.of_warp,
            lambda row, term: self.left[term, row],
            lambda column, term: self.right[term, column],
            terms_aside=False,
            unrolled=True,
        )

    def start(self, tile: Expr) -> None:
        """Begin block `tile` of W."""
        across = self.spec.grid[1]
        self.left.start(tile // across * self.spec.block[0])
        self.right.start(tile % across * self.spec.block[1])
        self.total = self.sums.zeros("CF")

    def multiply(self, suffix: str = "") -> None:
        """Add the products of what lies in shared memory. suffix: of the names of its iterations and buffers."""
        self.product_of_chunk(self.total, suffix)

    def blank(self) -> None:
        """Zeros in shared memory."""
        self.left.blank()
        self.right.blank()

    def store(self, put: Callable[[Expr, Expr, Expr], None]) -> None:
        """put(row, column, value): where an element of W goes."""

        def place(w: Expr, m: ExprLike, n: ExprLike) -> tuple[Expr, Expr]:
            row, column = self.spec.of_warp(w, m, n)
            return self.left.first + row, self.right.first + column

        self.sums.store(self.total, place, put, None if self.left.whole else lambda row: row < self.spec.in_features)


def grouped_sum_tiles(spec: OuterSpec) -> Program:
    """W[slot] = the sum of A[n]^T G[n] over the positions n of each task, in float32.

    Parameters: (num_tasks, num_chunks, slots, rows_a, rows_g, [positions], task_ptr, Slot, Start, Stop, [RowsA],
    [RowsG], A, G, W). Chunks task_ptr[t], ... of task t have positions Start .. Stop - 1, `spec.chunk` at most, each;
    positions are as of `grouped.grouped_sum`. W is (slots, F_in, F_out), of which a task fills Slot[t].
    """
    _check("grouped_sum_tiles", spec)
    p = ProgramBuilder("grouped_sum_tiles")
    tasks, chunks, slots, rows_a, rows_g = p.sizes("num_tasks", "num_chunks", "slots", "rows_a", "rows_g")
    outer = _Outer(p, spec)
    T, B = p.dense_fixed("T", tasks), p.role_axis("B", spec.grid[0] * spec.grid[1], "grid")
    C = p.dense_variable("C", T, (chunks, chunks), "task_ptr", spec.index_dtype)
    Slot = p.buffer("Slot", (T,), spec.index_dtype)
    Start, Stop = (p.buffer(name, (T, C), spec.index_dtype) for name in ("Start", "Stop"))
    rows = row_indices(p, spec.gathered, spec.index_dtype, "RowsA", "RowsG")
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    A = p.buffer("A", (p.dense_fixed("NA", rows_a), FI), spec.dtype)
    G = p.buffer("G", (p.dense_fixed("NG", rows_g), FO), spec.dtype)
    W = p.buffer("W", (p.dense_fixed("NW", slots), FI, FO), "float32")
    with p.iterate("tasks", (T, B), "SS", ("t", "b")) as (t, b):
        outer.start(b)

        def here(c: Expr) -> Callable[[Expr], Expr]:
            return lambda row: row < Stop[t, c] - Start[t, c]

        def left(c: Expr) -> Callable[[], None]:
            return outer.left.fetch(here(c), lambda row, column: A[row_at(rows[0], Start[t, c] + row), column])

        def right(c: Expr) -> Callable[[], None]:
            return outer.right.fetch(here(c), lambda row, column: G[row_at(rows[1], Start[t, c] + row), column])

        each_window(p, "chunks", C, "c", (left, right), outer.multiply, outer.blank if spec.pipelined else None)

        def put(row: Expr, column: Expr, value: Expr) -> None:
            W[Slot[t], row, column] = value

        outer.store(put)
    return p.finish()


def rgms_sum_tiles(spec: OuterSpec) -> Program:
    """W[slot, d] = the sum over the pairs p of each task of (sum over the edges e of p of A[e] * X[j(e), d])^T
    G[Row[p], d].

    Parameters: (num_tasks, num_chunks, slots, pairs, cols, nnz, rows, task_ptr, pair_ptr, indptr, indices, Slot, Start,
    Stop, Row, [A], X, G, W), where chunks have the pairs from pair_ptr on, which is Start again. X is (cols, blocks,
    F_in), G (rows, blocks, F_out) and W (slots, blocks, F_in, F_out): each block d on the diagonal of W is a sum of its
    own, of its own features, by warps of its own. The warps of a block take the pairs of a chunk in turns, the lanes of
    a warp the features of a row; sums are in float32, and rounded where they lie in shared memory.
    """
    _check("rgms_sum_tiles", spec)
    p = ProgramBuilder("rgms_sum_tiles")
    tasks, chunks, slots, pairs, cols, nnz, rows = p.sizes(
        "num_tasks", "num_chunks", "slots", "pairs", "cols", "nnz", "rows"
    )
    outer = _Outer(p, spec)
    of_block = spec.grid[0] * spec.grid[1]
    T, B = p.dense_fixed("T", tasks), p.role_axis("B", spec.blocks * of_block, "grid")
    D = p.dense_fixed("D", spec.blocks)
    C = p.dense_variable("C", T, (chunks, chunks), "task_ptr", spec.index_dtype)
    I = p.dense_variable("I", C, (pairs, pairs), "pair_ptr", spec.index_dtype)
    J = p.sparse_variable("J", I, (cols, nnz), ("indptr", "indices"), spec.index_dtype, sorted=False, unique=False)
    Slot = p.buffer("Slot", (T,), spec.index_dtype)
    Start, Stop = (p.buffer(name, (T, C), spec.index_dtype) for name in ("Start", "Stop"))
    Row = p.buffer("Row", (p.dense_fixed("Z", pairs),), spec.index_dtype)
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    A = p.buffer("A", (T, C, I, J), "float32") if spec.weighted else None
    X = p.buffer("X", (p.dense_fixed("NX", cols), D, FI), spec.dtype)
    G = p.buffer("G", (p.dense_fixed("NG", rows), D, FO), spec.dtype)
    W = p.buffer("W", (p.dense_fixed("NW", slots), D, FI, FO), "float32")
    width, part = spec.block[0], spec.parts[0]
    turn = p.role_axis("F", -(-width // (LANES * part)), "turn")
    with p.iterate("tasks", (T, B), "SS", ("t", "b")) as (t, b):
        d = b // of_block
        outer.start(b % of_block)
        axes = (turn, outer.lane, outer.left.part)

        def visit(name: str) -> AbstractContextManager[tuple[Var, ...]]:
            return p.iterate(name, axes, "SSS", tuple(f"{name}_{n}" for n in "tle"))

        with p.iterate("chunks", (C,), "R", ("c",)) as (c,):
            count = Stop[t, c] - Start[t, c]
            outer.right.load(lambda row: row < count, lambda row, column: G[Row[Start[t, c] + row], d, column])
            outer.left.blank(count)
            with p.iterate("gather", (outer.warp,), "S", ("w",)) as (w,), p.iterate("each", (I,), "S", ("i",)) as (i,):
                if outer.warp.static_length > 1:
                    p.where(equal(i % outer.warp.static_length, w))
                Edge = p.local("Edge", (outer.lane, turn, outer.left.part), "float32")
                with visit("zero") as (s, lane, e):
                    Edge[lane, s, e] = 0.0
                with p.iterate("edges", (J,), "R", ("j",)) as (j,):
                    with visit("add") as (s, lane, e):
                        first = (s * LANES + lane) * part
                        checks = [] if turn.static_length * LANES * part == width else [first < width]
                        if not outer.left.whole:
                            checks.append(outer.left.first + first < spec.in_features)
                        if checks:
                            p.where(checks[0] if len(checks) == 1 else both(*checks))
                        value = cast("float32", X[j, d, outer.left.first + first + e])
                        Edge[lane, s, e] = Edge[lane, s, e] + (value if A is None else A[t, c, i, j] * value)
                with visit("put") as (s, lane, e):
                    first = (s * LANES + lane) * part
                    if turn.static_length * LANES * part != width:
                        p.where(first < width)
                    outer.left[i, first + e] = cast(spec.dtype, Edge[lane, s, e])
            outer.multiply()

        def put(row: Expr, column: Expr, value: Expr) -> None:
            W[Slot[t], d, row, column] = value

        outer.store(put)
    return p.finish()


def _check(program: str, spec: OuterSpec) -> None:
    reason = refuses_lanes(spec.dtype, spec.across)
    if spec.dtype not in SIDE_BY_SIDE:
        reason = f"Tensor Cores do not multiply {spec.dtype} here"
    if reason:
        raise StageIError(f"{program}: {reason}")
    for width, part in zip((spec.in_features, spec.out_features), spec.parts):
        if width < 1 or width % part or COLUMNS % part:
            raise StageIError(
                f"{program}: parts of {part} do not divide rows of {width} features and tiles of {COLUMNS}"
            )
