"""Kernels of grouped matrix products and sums for a GPU: a team of lanes for each block of accumulators.

A lane keeps, of each row of the block, the columns that it stores together, so that the matrix is read in vectors by the
lanes of a team and the other operand once for all of them.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.grouped import GroupedSpec, grouped_product, grouped_sum
from ..compiler.programs.operands import ACCUMULATOR
from ..compiler.schedule.cuda_teams import CudaTeams
from ..compiler.transform.compact import compact_parameters
from ..compiler.transform.share import share_axis
from ..compiler.transform.tile import tile_axis
from . import cuda_kernels
from .cuda_kernels import STORED
from .cuda_plan import WARP, shares, teams

# Columns of the block of accumulators: a vector for each lane.
TILE = 128


@functools.lru_cache(maxsize=None)
def product_kernel(spec: GroupedSpec, arch: str) -> Kernel:
    """The kernel of a grouped product; the tile is chosen here."""
    return _kernel(grouped_product, spec, arch, STORED[spec.dtype])


@functools.lru_cache(maxsize=None)
def sum_kernel(spec: GroupedSpec, arch: str) -> Kernel:
    """The kernel of a grouped sum; the tile is chosen here."""
    return _kernel(grouped_sum, spec, arch, STORED[ACCUMULATOR[spec.dtype]])


def _kernel(make, spec: GroupedSpec, arch: str, itemsize: int) -> Kernel:
    spec = replace(spec, tile=min(TILE, spec.out_features))
    program = compact_parameters(make(spec))
    lanes = shares(spec.tile, itemsize, WARP).lanes
    for axis in [a for a in program.axes if a.name in ("K", "L")]:
        program = tile_axis(program, axis.name, ((axis.length,),))
        program = share_axis(program, f"{axis.name}_0", lanes, shares(axis.length, itemsize).part)
    return cuda_kernels.build(program, CudaTeams(lanes, teams(lanes)), arch)


__all__ = ["product_kernel", "sum_kernel"]
