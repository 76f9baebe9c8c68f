"""The plan of sums and means over locally dense graphs on a GPU: BSR, multiplied by Tensor Cores.

A row of the graph costs a gather for each of its non-zeros; a block of 16 rows in BSR one for each column of its blocks, which
all of its rows share. Half of the gathers and less, then, where a block of 16 columns holds 32 non-zeros, an eighth of what it
stores. Rules, not measured on a GPU yet:

- stored elements over non-zeros are 8 at most (`MOST_STORED`; it bounds the memory as well);
- the graph has a million edges, since the blocks take a sort of them, once: that is for graphs that stay;
- rows have 8 features, a tile, or more.
"""

from __future__ import annotations

import functools

from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.bsr_tiles import SHARED, BsrTilesSpec, block_of, bsr_tiles
from ..compiler.programs.grouped_tiles import COLUMNS, LANES, SIDE_BY_SIDE
from ..compiler.schedule.cuda_teams import CudaTeams
from . import cuda_kernels
from .cuda_grouped import has_instructions
from .cuda_kernels import STORED
from .cuda_plan import shares

LEAST_EDGES = 1 << 20
MOST_STORED = 8
# Warps of a block, and tiles of 8 features of each, at most.
WARPS = 4
TILES = 4


def may_pay(edges: int, features: int, dtype: str, arch: str) -> bool:
    """Whether it is worth looking at the blocks of a graph."""
    return edges >= LEAST_EDGES and features >= COLUMNS and dtype in SIDE_BY_SIDE and has_instructions(arch)


def most_slots(edges: int) -> int:
    """Elements that the blocks of a graph may store."""
    return MOST_STORED * edges


@functools.lru_cache(maxsize=None)
def bsr_kernel(features: int, mean: bool, dtype: str, index_dtype: str, arch: str) -> Kernel:
    """The kernel of a product of blocks of `block_of(dtype)`."""
    wide = -(-features // COLUMNS)
    warps = 1 << min(WARPS.bit_length() - 1, (wide - 1).bit_length())
    tiles = 1 << min(TILES.bit_length() - 1, (-(-wide // warps) - 1).bit_length())
    spec = BsrTilesSpec(features, warps, tiles, shares(features, STORED[dtype]).part, mean, dtype, index_dtype)
    return cuda_kernels.build(bsr_tiles(spec), CudaTeams(LANES, 1, shared=(SHARED,), mma=("mma",)), arch)


__all__ = ["block_of", "bsr_kernel", "may_pay", "most_slots"]
