"""Kernels of grouped matrix products and sums for a GPU: a team of lanes for each block of accumulators.

A lane keeps, of each row of the block, the columns that it stores together, so that the matrix is read in vectors by the
lanes of a team and the other operand once for all of them.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.grouped import GroupedSpec, grouped_product, grouped_sum
from ..compiler.programs.grouped_tiles import LANES, ROWS, TilesSpec, grouped_tiles, refuses
from ..compiler.programs.operands import ACCUMULATOR
from ..compiler.schedule.cuda_teams import CudaTeams
from ..compiler.transform.compact import compact_parameters
from ..compiler.transform.share import share_axis
from ..compiler.transform.tile import tile_axis
from . import cuda_kernels
from .cuda_kernels import STORED
from .cuda_plan import WARP, shares, teams

# Columns of the block of accumulators: a vector for each lane; and its rows.
TILE = 128
BLOCK_ROWS = 4
# Rows of A that a lane holds its elements of in registers while it goes through all columns of a matrix: elements of 32
# bits at most, and tiles of 16 rows at most, which share what is loaded of the matrix.
HELD = 64
# The first architecture with mma.m16n8k16, bfloat16 and tf32.
FIRST_ARCH = 80
MOST_TILES = 2


def tiles(in_features: int, out_features: int, dtype: str, arch: str) -> int:
    """Tiles of 16 rows of a panel on Tensor Cores; 0 where they do not take such matrices, or are too old for it."""
    version = arch.removeprefix("sm_").rstrip("af")
    if refuses(in_features, out_features, dtype) or version.isdecimal() and int(version) < FIRST_ARCH:
        return 0
    held = ROWS * in_features * STORED[dtype] // (4 * LANES)  # registers for a tile
    return min(MOST_TILES, HELD // held)


@functools.lru_cache(maxsize=None)
def product_kernel(spec: GroupedSpec, arch: str) -> Kernel:
    """The kernel of a grouped product; the tile is chosen here."""
    return _kernel(grouped_product, spec, arch, STORED[spec.dtype])


@functools.lru_cache(maxsize=None)
def sum_kernel(spec: GroupedSpec, arch: str) -> Kernel:
    """The kernel of a grouped sum; the tile is chosen here."""
    return _kernel(grouped_sum, spec, arch, STORED[ACCUMULATOR[spec.dtype]])


@functools.lru_cache(maxsize=None)
def tiles_kernel(spec: GroupedSpec, arch: str) -> Kernel:
    """The kernel of a grouped product on Tensor Cores; the block of accumulators is a panel of whole tiles."""
    program = grouped_tiles(TilesSpec(spec.in_features, spec.out_features, spec.block // ROWS, spec.gathered, spec.dtype,
                                      spec.index_dtype))
    return cuda_kernels.build(program, CudaTeams(LANES, teams(LANES), mma=("mma",)), arch)


def _kernel(make, spec: GroupedSpec, arch: str, itemsize: int) -> Kernel:
    spec = replace(spec, tile=min(TILE, spec.out_features))
    program = compact_parameters(make(spec))
    lanes = shares(spec.tile, itemsize, WARP).lanes
    for axis in [a for a in program.axes if a.name in ("K", "L")]:
        program = tile_axis(program, axis.name, ((axis.length,),))
        program = share_axis(program, f"{axis.name}_0", lanes, shares(axis.length, itemsize).part)
    return cuda_kernels.build(program, CudaTeams(lanes, teams(lanes)), arch)


__all__ = ["BLOCK_ROWS", "ROWS", "product_kernel", "sum_kernel", "tiles", "tiles_kernel"]
