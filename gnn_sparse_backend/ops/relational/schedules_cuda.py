"""Kernels and plans of relational products for a GPU.

Three orders of one product, with P distinct (row, relation) pairs and Q distinct (column, relation) pairs among E
edges:

- ``rows``: a block owns rows of the result, and goes through the relations of their edges: rows of X are summed over
  the edges of each row pair, multiplied where they are, and the products added up in registers
  (`schedules_cuda_rows`). One launch, and nothing is stored but the result. A block reads the matrix of each relation
  that its rows have edges of, for the rows that have. Where Tensor Cores take matrices of the shape and type, or lanes
  multiply float32 in full precision, and there are blocks enough.
- ``tiles``: the same sums and products, but in panels of P pairs of a relation, whatever their rows, so that a matrix
  is read for 16 or 32 of them; P products are stored, and added up by rows. Where Tensor Cores take the matrices.
- ``transform``: the rows of X of all column pairs are multiplied, and gathered over the edges: Q products stored.

The one that moves fewest bytes is taken, where those of matrices, which come from the second-level cache, count for
less (`order_bytes`). Tensor Cores do the arithmetic while rows are on their way; in full precision products take as
long as rows do from about 64 features on, so that a launch counts for what takes longer, and a block of rows multiplies
those without edges of a relation, too. None of the orders adds atomically: the order of additions, and with it every
bit, is the structure's, whether PyTorch asks for deterministic algorithms or not.

Dots of products at the edges go the same ways (`dot_bytes`): a block owns rows, multiplies them by the matrices of
their relations and keeps the products in shared memory for the edges; or the products of all row pairs are stored.

The sum of outer products adds up, over the edges of the pairs of one end, the rows of the other end, and multiplies
them by the rows of the pairs, in one kernel: by the pairs of the end where that loads fewer elements
(`sums_by_columns`). None of it has been measured yet.
"""

from __future__ import annotations

from dataclasses import replace

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.language.types import BYTES
from ...compiler.schedules.primitives.cuda.mma import multiply_fragments
from ...compiler.schedules.teams import team_schedule
from ...compiler.transforms.dense_axes.share import share_axis
from ...planner.cpu.relational import RelationCounts
from ...planner.cuda.cost import NEARER
from ...planner.cuda.plan import shares
from ...planner.cuda.tensor_cores import LANES, ROWS
from ..core import cuda_build
from ..grouped.programs.outer_tiles import rgms_sum_tiles
from ..grouped.schedules_cuda import FULL_ROWS, build_outer, outer_spec, tiles
from .programs.rgms_tiles import SHARED, RgmsTilesSpec, rgms_tiles
from .schedules_cuda_rows import ProductShape, dots_spec, rows_of_block, rows_spec

# Multiply-adds of float32 in full precision for each byte of memory, in the same time: data sheets of A100 and H200 say
# 6 and 7, of which products of this kind reach about two thirds.
MULTIPLIED = 4.0


def order_bytes(counts: RelationCounts, of: ProductShape, panels: int | None = None) -> dict[str, float]:
    """Bytes that a product moves in each order that can be had, those of matrices by what a byte of memory costs; in
    full precision multiply-adds count as well, where they take a launch longer than its bytes.

    panels: relations of the tiles of rows, summed over the tiles; None for as few as there could be.
    """
    of_x, of_y, of_matrix = _bytes_of(of)
    multiplied = tiles(*of[:5])
    found, result = {}, counts.rows * of_y
    spec = rows_spec(of, rows_of_block(counts.rows, of.blocks))
    if spec is not None:
        panels = -(-counts.row_pairs // spec.rows) if panels is None else panels
        moved = spec.grid * counts.edges * of_x + panels * of_matrix + result
        found["rows"] = _of_launch(of, moved, panels * spec.rows * spec.grid * spec.width)
    if multiplied and not of.full:
        # stored rows are written and read again
        found["tiles"] = counts.edges * of_x + counts.row_pairs * (2 * of_y + of_matrix / (ROWS * multiplied)) + result
    found["transform"] = _of_pairs(of, counts.column_pairs) + counts.edges * of_y + result
    return found


def dot_bytes(counts: RelationCounts, of: ProductShape, panels: int | None = None) -> dict[str, float]:
    """Bytes that dots at the edges move, of products of rows of ``in_features`` by rows of ``out_features``: "rows",
    where blocks own rows, and "stored", the products of all row pairs."""
    of_near, of_far, of_matrix = _bytes_of(of)
    found = {}
    spec = dots_spec(of, rows_of_block(counts.rows, of.blocks))
    if spec is not None:
        panels = -(-counts.row_pairs // spec.rows) if panels is None else panels
        moved = counts.rows * of_near + panels * of_matrix + counts.edges * of_far
        found["rows"] = _of_launch(of, moved, panels * spec.rows * spec.turns * spec.width)
    found["stored"] = _of_pairs(of, counts.row_pairs) + counts.row_pairs * of_far + counts.edges * of_far
    return found


def _bytes_of(of: ProductShape) -> tuple[int, int, float]:
    """Bytes of a row of either operand, and of a matrix."""
    row = BYTES[of.dtype] * of.blocks
    return row * of.in_features, row * of.out_features, row * of.in_features * of.out_features / NEARER


def _of_pairs(of: ProductShape, pairs: int) -> float:
    """Bytes of the launch that multiplies and stores a row for each of ``pairs`` pairs."""
    of_x, of_y, of_matrix = _bytes_of(of)
    of_panel = FULL_ROWS if of.full else ROWS * max(1, tiles(*of[:5]))
    return _of_launch(of, pairs * (of_x + of_y + of_matrix / of_panel), pairs * of.out_features)


def _of_launch(of: ProductShape, moved: float, results: int) -> float:
    """Bytes ``moved`` by a launch, or what multiplying for ``results`` results of each block takes if that is more."""
    return max(moved, results * of.blocks * of.in_features / MULTIPLIED) if of.full else moved


def order_of(moved: dict[str, float]) -> str:
    """The order that moves fewest bytes."""
    return min(moved, key=moved.__getitem__)


@kept
def tiles_kernel(spec: RgmsTilesSpec, arch: str) -> Kernel:
    """The kernel of sums of pairs and their products: a block of one team for each panel."""
    features = spec.blocks * spec.in_features
    part = min(shares(features, BYTES[spec.dtype]).part, _each(features))
    program = share_axis(rgms_tiles(spec), "FI", LANES, part, exchanged=(SHARED,))
    return cuda_build.build(program, team_schedule(LANES, multiply_fragments("mma"), shared=(SHARED,)), arch)


# Edges of a pair that the shape of the blocks of a sum is chosen for: one binary serves all graphs.
EDGES_OF_PAIR = 2


def sums_by_columns(edges: int, row_pairs: int, column_pairs: int, in_features: int, out_features: int) -> bool:
    """Whether the sum of outer products goes by (column, relation) pairs."""
    return edges * out_features + column_pairs * in_features < edges * in_features + row_pairs * out_features


@kept
def sum_tiles_kernel(of: ProductShape, weighted: bool, index_dtype: str) -> Kernel:
    """The kernel of the sum of outer products of sums over the edges of pairs, and of rows of the pairs."""
    spec = outer_spec(of.in_features, of.out_features, of.dtype, index_dtype, EDGES_OF_PAIR, of.full)
    parts = min(spec.parts[0], _each(spec.block[0])), spec.parts[1]
    program = rgms_sum_tiles(replace(spec, parts=parts, weighted=weighted, blocks=of.blocks))
    return build_outer(program, of.arch, spec)


def _each(elements: int) -> int:
    """Neighbouring elements that a lane loads at most, a power of two: all lanes load before any loads twice."""
    return 1 << (max(1, elements // LANES).bit_length() - 1)
