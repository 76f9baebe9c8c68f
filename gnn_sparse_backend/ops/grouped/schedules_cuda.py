"""Kernels of grouped matrix products and sums for a GPU: a team of lanes for each block of accumulators.

A lane keeps, of each row of the block, the columns that it stores together, so that the matrix is read in vectors by
the lanes of a team and the other operand once for all of them.

On Tensor Cores a product is a team's work too; for float32 in full precision that of a block of four warps, from shared
memory (`rows_spec`). A sum of outer products is that of a block of up to four warps both ways (`sum_shape`,
`sum_length`). None of the rules has been measured on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, TypeAlias

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.language.program import Program
from ...compiler.language.types import ACCUMULATOR, BYTES
from ...compiler.schedules.primitives.cuda.mma import multiply_fragments
from ...compiler.schedules.teams import team_schedule
from ...compiler.transforms.compact import compact_parameters
from ...compiler.transforms.dense_axes.share import share_axis
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...planner.cuda.plan import WARP, shares
from ...planner.cuda.tensor_cores import COLUMNS, FASTER, LANES, ROWS, SIDE_BY_SIDE, has_instructions, padded, refuses
from ..core import cuda_build
from ..core.tiles.row_products import STRETCH
from ..core.tiles.shared_rows import PAD
from ..core.tiles.windows import instructions
from .programs.grouped import GroupedSpec, grouped_product, grouped_sum
from .programs.grouped_rows import SHARED as ROWS_SHARED
from .programs.grouped_rows import GroupedRowsSpec, grouped_rows
from .programs.grouped_tiles import TilesSpec, grouped_tiles
from .programs.outer_tiles import SHARED, OuterSpec, chunk_of, grouped_sum_tiles

# Columns of the block of accumulators: a vector for each lane; and its rows.
TILE = 128
BLOCK_ROWS = 4
# Rows of A that a lane holds its elements of in registers while it goes through all columns of a matrix: elements of 32
# bits at most, and tiles of 16 rows at most, which share what is loaded of the matrix.
HELD = 64
MOST_TILES = 2
# Warps of a block that sums outer products, and tiles that each of them accumulates, of 4 registers a lane.
WARPS = 4
ACCUMULATED = 16
# The part of the elements of tiles that have to be elements of a matrix. Below, a lane for each costs no more.
LEAST_FILL = 1 / 4
# Registers of a lane, by bytes of an element, that its accumulators and its part of the next chunk may take.
HELD_AHEAD = {2: 64, 4: 96}
# Stretches of columns among the lanes of a warp that multiply in full precision: 4 to 16 rows of a tile.
STRETCHES = (2, 4, 8)
# Rows of a panel at most where blocks of warps multiply in full precision, as many as they have columns then; bytes of
# shared memory for a window of their features; and fewest features of a window, unless rows have fewer.
FULL_ROWS = 64
WINDOW_BYTES = 16 << 10
LEAST_WINDOW = 8
# Tasks of a sum that keep every multiprocessor busy, and bytes gathered for each byte of a partial result.
TASKS = 4096
GATHERED_PER_RESULT = 4


def tiles(in_features: int, out_features: int, dtype: str, arch: str, blocks: int = 1) -> int:
    """Tiles of 16 rows of a panel on Tensor Cores; 0 where they do not take such matrices, gain nothing, or are too old
    for it.

    blocks: on the diagonal of a matrix, whose sums are all kept until the last is multiplied.
    """
    if refuses(in_features, out_features, dtype) or not has_instructions(arch):
        return 0
    rows, columns = padded(in_features, out_features, dtype)
    if in_features * out_features * FASTER[BYTES[dtype]] < rows * columns:
        return 0
    by_pairs = SIDE_BY_SIDE[dtype] == 2 and in_features % 2 == 0  # else each element comes in a register of its own
    held = ROWS * blocks * rows // (LANES * (2 if by_pairs else 1))  # registers for a tile
    return min(MOST_TILES, HELD // held)


_Shape: TypeAlias = tuple[tuple[int, int], tuple[int, int], int]


@kept
def sum_shape(in_features: int, out_features: int, left: int = 1, full: bool = False) -> _Shape:
    """(warps, tiles, across) of a block that sums outer products, as of an `OuterSpec`.

    The block is the one that fits with fewest elements loaded, then with fewest computed for nothing, then with most
    warps, and fewest loads from shared memory. left: rows that are loaded for one of Left. full: float32 is not to be
    cut to what Tensor Cores take.
    """

    def cost(shape: _Shape) -> tuple[Any, ...]:
        (down, along), (rows, columns), across = shape
        block = OuterSpec(in_features, out_features, *shape, dtype="float32")
        high, wide = block.grid
        computed = high * wide * block.block[0] * block.block[1]
        loaded = left * in_features * wide + out_features * high
        return loaded, computed, -down * along, rows * columns, block.product.loads((rows, columns)), -across, shape

    sizes = (1, 2, 4, 8)
    shapes = [
        ((d, a), (r, c), across)
        for d, a, r, c in product(sizes, repeat=4)
        for across in (STRETCHES if full else (0,))
        if d * a <= WARPS and r * c <= ACCUMULATED and (full or r < 8)
    ]
    return min(shapes, key=cost)


def sums_in_tiles(in_features: int, out_features: int, dtype: str, arch: str, full: bool = False) -> bool:
    """Whether outer products of rows of such widths are summed by blocks of warps: any that fill their tiles somewhat,
    on Tensor Cores where there are any, or float32 in full precision."""
    if full:
        across = sum_shape(in_features, out_features, 1, True)[2]
        tile = LANES // across, STRETCH * across
    else:
        tile = ROWS, COLUMNS
    if dtype not in SIDE_BY_SIDE or not (full or has_instructions(arch)):
        return False
    whole = -(-in_features // tile[0]) * tile[0] * -(-out_features // tile[1]) * tile[1]
    return in_features * out_features >= LEAST_FILL * whole


def sum_length(
    positions: int,
    in_features: int,
    out_features: int,
    dtype: str,
    left: int = 1,
    diagonal: int = 1,
    full: bool = False,
) -> int:
    """Positions of a task at most, a power of two: no more than keeps a GPU busy, no fewer than pay for a partial
    result.

    diagonal: blocks of these features on the diagonal of a matrix, which are summed side by side.
    """
    high, wide = OuterSpec(
        in_features, out_features, *sum_shape(in_features, out_features, left, full), dtype=dtype
    ).grid
    pays = GATHERED_PER_RESULT * 8 * in_features * out_features // ((in_features + out_features) * BYTES[dtype])
    wanted = max(chunk_of(dtype), pays, positions * diagonal * high * wide // TASKS)
    return 1 << (wanted - 1).bit_length()


def pipelines(spec: OuterSpec) -> bool:
    """Whether chunks are loaded while the one before is multiplied: where registers are left for it.

    A block would otherwise wait for every chunk, with only other blocks to fill the time. What is loaded ahead stays in
    registers during the product, beside the accumulators. The limits (`HELD_AHEAD`) keep kernels at 128 registers,
    which is four blocks of four warps on a multiprocessor, as they have without; beyond them 16-bit kernels take up to
    168. Fragments of 16-bit elements are put together from two loads a register, which takes registers as well, so
    their limit is lower.
    """
    itemsize, lanes = BYTES[spec.dtype], LANES * spec.warps[0] * spec.warps[1]
    loaded = spec.chunk * sum(spec.block) * itemsize // (4 * lanes)
    return 4 * spec.tiles[0] * spec.tiles[1] + loaded <= HELD_AHEAD[itemsize]


@kept
def product_kernel(spec: GroupedSpec, arch: str) -> Kernel:
    """The kernel of a grouped product; the tile is chosen here."""
    return _kernel(grouped_product, spec, arch, BYTES[spec.dtype])


@kept
def sum_kernel(spec: GroupedSpec, arch: str) -> Kernel:
    """The kernel of a grouped sum; the tile is chosen here."""
    return _kernel(grouped_sum, spec, arch, BYTES[ACCUMULATOR[spec.dtype]])


@kept
def tiles_kernel(spec: GroupedSpec, arch: str, by_columns: bool = False) -> Kernel:
    """The kernel of a grouped product on Tensor Cores; the block of accumulators is a panel of whole tiles.

    by_columns: as of `core.tiles.matrices.Matrices`.
    """
    shape = spec.in_features, spec.out_features, spec.block // ROWS
    program = grouped_tiles(TilesSpec(*shape, spec.gathered, spec.dtype, spec.index_dtype, by_columns))
    return cuda_build.build(program, team_schedule(LANES, multiply_fragments("mma")), arch)


def panel_of(rows: int, segments: int) -> int:
    """Rows of a panel at most in full precision, a power of two: no more than segments have on average."""
    return 1 << (max(BLOCK_ROWS, min(FULL_ROWS, rows // max(segments, 1))).bit_length() - 1)


@kept
def rows_spec(in_features: int, out_features: int, dtype: str, rows: int) -> GroupedRowsSpec | None:
    """The shape of a block for panels of ``rows`` rows in full precision; None where lanes do not multiply the type,
    where they would compute most columns for nothing, and where no number of features that fits the shared memory
    divides those of a row.

    The shape is the one that fits with fewest columns computed for nothing, then with rows loaded by fewest blocks,
    then with fewest loads of what is multiplied, then with the widest stretches of columns.
    """
    fits = [
        n
        for n in range(1, in_features + 1)
        if in_features % n == 0 and rows * (n + PAD) * BYTES["float32"] <= WINDOW_BYTES
    ]
    if dtype != "float32" or not fits or fits[-1] < min(in_features, LEAST_WINDOW):
        return None
    window = fits[-1]
    part = next(part for part in (4, 2, 1) if window % part == 0)
    sizes = [1 << exponent for exponent in range(ACCUMULATED.bit_length())]
    found = [
        GroupedRowsSpec(in_features, out_features, (down, WARPS // down), tiles, across, window, part)
        for down in (1, 2, 4)
        for tiles in product(sizes, sizes)
        for across in STRETCHES
        if tiles[0] * tiles[1] <= ACCUMULATED // 2
    ]
    found = [one for one in found if one.rows == rows and out_features >= LEAST_FILL * one.grid * one.width]
    return min(
        found,
        default=None,
        key=lambda one: (one.grid * one.width, one.grid, one.product.loads(one.tiles), -one.across, one.tiles),
    )


@kept
def rows_kernel(spec: GroupedSpec, arch: str, by_columns: bool = False) -> Kernel:
    """The kernel of a grouped product in full precision, where `rows_spec` has a shape for it. by_columns: as of
    `tiles_kernel`.
    """
    found = rows_spec(spec.in_features, spec.out_features, spec.dtype, spec.block)
    assert found is not None  # which the caller has asked
    program = grouped_rows(replace(found, gathered=spec.gathered, index_dtype=spec.index_dtype, by_columns=by_columns))
    return cuda_build.build(program, team_schedule(LANES, shared=(ROWS_SHARED,)), arch)


@kept
def sum_tiles_kernel(spec: GroupedSpec, arch: str, full: bool = False) -> Kernel:
    """The kernel of a grouped sum by blocks of warps; the block of accumulators is chosen here. full: in full
    precision, not on Tensor Cores."""
    found = outer_spec(spec.in_features, spec.out_features, spec.dtype, spec.index_dtype, full=full)
    found = replace(found, gathered=spec.gathered, pipelined=pipelines(found))
    return build_outer(grouped_sum_tiles(found), arch, found)


def sum_lanes_kernel(spec: GroupedSpec, arch: str) -> Kernel:
    """`sum_tiles_kernel` in full precision."""
    return sum_tiles_kernel(spec, arch, True)


def outer_spec(
    in_features: int, out_features: int, dtype: str, index_dtype: str, left: int = 1, full: bool = False
) -> OuterSpec:
    """What is static in a sum of outer products of rows of such widths."""
    shape = sum_shape(in_features, out_features, left, full)
    parts = shares(in_features, BYTES[dtype]).part, shares(out_features, BYTES[dtype]).part
    return OuterSpec(in_features, out_features, *shape, parts, dtype=dtype, index_dtype=index_dtype)


def build_outer(program: Program, arch: str, spec: OuterSpec) -> Kernel:
    """The kernel of a program of ``outer_tiles``: a block for each task and block of its matrix."""
    instruction = instructions(spec.pipelined) if spec.product.instruction else ()
    return cuda_build.build(program, team_schedule(LANES, *map(multiply_fragments, instruction), shared=SHARED), arch)


def _kernel(make: Callable[[GroupedSpec], Program], spec: GroupedSpec, arch: str, itemsize: int) -> Kernel:
    spec = replace(spec, tile=min(TILE, spec.out_features))
    program = compact_parameters(make(spec))
    lanes = shares(spec.tile, itemsize, WARP).lanes
    for axis in [a for a in program.axes if a.name in ("K", "L")]:
        program = tile_axis(program, axis.name, ((axis.static_length,),))
        program = share_axis(program, f"{axis.name}_0", lanes, shares(axis.static_length, itemsize).part)
    return cuda_build.build(program, team_schedule(lanes), arch)
