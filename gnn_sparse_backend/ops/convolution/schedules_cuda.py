"""Kernels of sparse convolution for a GPU, and the shape of their blocks. None of it has been measured yet.

A block has ``WARPS`` warps. Each reads a row of X for every stretch of columns, and a matrix for every tile of rows, so
that rows and columns are about alike; and there are no more rows than leave blocks enough to keep a GPU busy.
"""

from __future__ import annotations

from itertools import product

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.schedules.cuda_teams import CudaTeams
from ...planner.cuda.plan import shares, teams
from ...planner.cuda.tensor_cores import FASTER, LANES, has_instructions, padded, refuses
from ...planner.problem import STORED
from ..core import cuda_build
from ..core.tiles.row_products import product_of
from ..core.tiles.shared_rows import PAD
from ..grouped.schedules_cuda import STRETCHES
from .programs.depthwise_cuda import DepthwiseSpec, depthwise_parts, depthwise_rows
from .programs.tiles_cuda import SHARED, ConvTilesSpec, conv_tiles

# Warps of a block, and tiles of 128 elements that each of them accumulates at most: 32 registers a lane for the sums of
# rows, and as many for the products of an offset.
WARPS = 4
ACCUMULATED = 8
# Rows of a block at most, and bytes of shared memory for what they gather at a time.
MOST_ROWS = 128
SHARED_BYTES = 24 << 10
# Blocks that keep every multiprocessor busy.
LEAST_BLOCKS = 264
# Vectors that a lane has of a row in a depthwise convolution at most, and pairs of a part of a sum.
MOST_TURNS = 4
PART_PAIRS = 512


@kept
def tiles_spec(
    in_features: int, out_features: int, dtype: str, arch: str, groups: int, rows: int, full: bool = False
) -> ConvTilesSpec | None:
    """The shape of a block for a result of so many rows; None where neither Tensor Cores nor lanes multiply such
    matrices, where Tensor Cores gain nothing, and where the fewest rows of a block take too much shared memory.

    full: numbers are not to be cut to what Tensor Cores take of them. Of the shapes that fit: where fewest columns are
    computed for nothing, then where there are blocks enough, then where least is loaded for a product, then widest
    windows.
    """
    if refuses(in_features, out_features, dtype):
        return None
    covered = padded(in_features, out_features, dtype)
    if not full and not (
        has_instructions(arch) and in_features * out_features * FASTER[STORED[dtype]] >= covered[0] * covered[1]
    ):
        return None

    def cost(spec: ConvTilesSpec) -> tuple:
        blocks = -(-rows // spec.rows) * groups * spec.grid
        return (
            spec.grid * spec.width,
            -min(blocks, LEAST_BLOCKS),
            1 / spec.rows + 1 / min(spec.width, out_features),
            -spec.window,
            spec.product.loads(spec.tiles),
            -spec.across,
            spec.warps,
        )

    sizes = [1 << exponent for exponent in range(ACCUMULATED.bit_length())]
    found = []
    for down, tiles, across in product((1, 2, 4), product(sizes, sizes), STRETCHES if full else (0,)):
        if tiles[0] * tiles[1] > ACCUMULATED:
            continue
        block = ConvTilesSpec(in_features, out_features, (down, WARPS // down), tiles, across, dtype=dtype)
        window = window_of(in_features, dtype, block.rows, across, tiles[1])
        if block.rows <= MOST_ROWS and window:
            part = shares(in_features, STORED[dtype]).part
            while product_of(dtype, across, tiles[1]).covered(window) % part or window % part:
                part //= 2
            found.append(
                ConvTilesSpec(
                    in_features, out_features, block.warps, tiles, across, window, part, groups, dtype=dtype
                )
            )
    return min(found, default=None, key=cost)


def window_of(in_features: int, dtype: str, rows: int, across: int, wide: int) -> int:
    """The most channels of so many rows that fit the shared memory at a time, 0 for none."""
    multiply = product_of(dtype, across, wide)
    for count in range(1, in_features + 1):
        window, rest = divmod(in_features, count)
        if rest or (count > 1 and multiply.covered(window) != window):
            continue
        if rows * (multiply.covered(window) + PAD) * STORED[dtype] <= SHARED_BYTES:
            return window
    return 0


@kept
def tiles_kernel(spec: ConvTilesSpec, arch: str) -> Kernel:
    """The kernel: a block for each tile of rows, group of channels, and stretch of its columns."""
    schedule = CudaTeams(LANES, 1, shared=(SHARED,), mma=spec.product.instruction)
    return cuda_build.build(conv_tiles(spec), schedule, arch)


@kept
def depthwise_kernel(make: str, width: int, dtype: str, index_dtype: str, arch: str) -> Kernel:
    """The kernel of products by "rows", or of sums by "parts"."""
    of = shares(width, STORED[dtype])
    turns = min(MOST_TURNS, -(-width // (of.lanes * of.part)))
    spec = DepthwiseSpec(width, of.lanes, of.part, turns, dtype, index_dtype)
    program = {"rows": depthwise_rows, "parts": depthwise_parts}[make](spec)
    return cuda_build.build(program, CudaTeams(of.lanes, teams(of.lanes)), arch)


__all__ = ["PART_PAIRS", "depthwise_kernel", "tiles_kernel", "tiles_spec"]
