"""Kernels of products of blocks (BSR, SR-BCRS) on Tensor Cores."""

from __future__ import annotations

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.language.types import BYTES
from ...compiler.schedules.primitives.cuda.mma import multiply_fragments
from ...compiler.schedules.teams import team_schedule
from ...planner.cuda.plan import shares
from ...planner.cuda.tensor_cores import COLUMNS, LANES
from ..core import cuda_build
from ..core.tiles.windows import instructions
from .programs.bsr_tiles import SHARED, BsrTilesSpec, bsr_tiles

# Warps of a block, and tiles of 8 features of each, at most.
WARPS = 4
TILES = 4
# Blocks are loaded while the one before is multiplied. Without, a block of warps waits for each of them, after an index
# that the rows are found by. A lane holds 16 registers or fewer of what is loaded ahead, beside 16 accumulators, so
# that 32 warps or more have room on a multiprocessor, as many as could be where blocks are one warp.
PIPELINED = True


@kept
def bsr_kernel(
    features: int, mean: bool, dtype: str, index_dtype: str, arch: str, listed: bool = False, heads: int = 1
) -> Kernel:
    """The kernel of a product of blocks of `block_of(dtype)`. listed: of SR-BCRS. heads: with elements of their own."""
    wide = -(-features // COLUMNS)
    warps = 1 << min(WARPS.bit_length() - 1, (wide - 1).bit_length())
    tiles = 1 << min(TILES.bit_length() - 1, (-(-wide // warps) - 1).bit_length())
    part = shares(features, BYTES[dtype]).part
    spec = BsrTilesSpec(features, warps, tiles, part, mean, listed, heads, PIPELINED, dtype, index_dtype)
    return cuda_build.build(
        bsr_tiles(spec), team_schedule(LANES, *map(multiply_fragments, instructions(PIPELINED)), shared=(SHARED,)), arch
    )
