"""Kernels of relational products in one pass, by blocks that own rows of the result (``programs.rgms_rows``), and their shape.

A block has ``WARPS`` warps and all columns of a matrix, as far as its accumulators reach: then a row of X is gathered once. It has as
many rows as then fit, so that a matrix, which a block reads once for each relation of its rows, serves many; but no more than leave
blocks enough to keep a GPU busy. None of it has been measured yet.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import product

from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.grouped_tiles import LANES, padded, refuses
from ..compiler.programs.rgms_rows import SHARED, RgmsRowsSpec, rgms_rows
from ..compiler.schedule.cuda_teams import CudaTeams
from . import cuda_kernels
from .cuda_grouped import FASTER, has_instructions
from .cuda_kernels import STORED
from .cuda_plan import shares

# Warps of a block, and tiles of 16 by 8 that each of them accumulates at most: 32 registers a lane for the sums of rows, and as many for
# the products of a relation, which leaves room for four blocks on a multiprocessor.
WARPS = 4
ACCUMULATED = 8
# Rows of a block at most, and bytes of shared memory for what they gather of a relation.
MOST_ROWS = 128
SHARED_BYTES = 24 << 10
# Lanes that gather a row at least: with fewer, a panel has more shares than edges.
TEAM = 8
# Blocks that keep every multiprocessor busy, about two for each place of one on the largest GPUs.
LEAST_BLOCKS = 1024


def rows_of_block(rows: int, blocks: int = 1) -> int:
    """Rows of a block at most, a power of two, where the result has so many, and matrices so many blocks on their diagonals."""
    return 1 << max(0, min(MOST_ROWS, rows * blocks // LEAST_BLOCKS).bit_length() - 1)


@functools.lru_cache(maxsize=None)
def rows_spec(in_features: int, out_features: int, dtype: str, arch: str, blocks: int = 1, most: int = MOST_ROWS) -> RgmsRowsSpec | None:
    """The shape of a block of up to ``most`` rows for matrices of this shape; None where Tensor Cores do not take them, gain nothing, or are
    too old for it, and where 16 rows are too many, or more than the shared memory for them.

    Of the shapes that fit: where rows are gathered by fewest blocks, then where fewest columns are computed for nothing, then most
    rows, then fewest loads of fragments.
    """
    if refuses(in_features, out_features, dtype) or not has_instructions(arch):
        return None
    covered = padded(in_features, out_features, dtype)
    if in_features * out_features * FASTER[STORED[dtype]] < covered[0] * covered[1]:
        return None
    of = shares(in_features, STORED[dtype])
    part = min(of.part, 1 << (max(1, in_features // TEAM).bit_length() - 1))
    lanes = max(TEAM, 1 << (-(-in_features // part) - 1).bit_length())
    spec = RgmsRowsSpec(in_features, out_features, lanes=min(LANES, lanes), part=part, blocks=blocks, dtype=dtype, out_dtype=dtype)
    sizes = [1 << exponent for exponent in range(ACCUMULATED.bit_length())]
    found = [replace(spec, warps=(down, WARPS // down), tiles=tiles) for down in (1, 2, 4) for tiles in product(sizes, sizes)
             if tiles[0] * tiles[1] <= ACCUMULATED]  # fmt: skip
    found = [one for one in found if one.rows <= most and one.shared_bytes <= SHARED_BYTES]
    return min(found, default=None, key=lambda one: (
        one.grid, one.grid * one.width, -one.rows, 2 * one.tiles[0] + one.tiles[1], one.tiles))


@functools.lru_cache(maxsize=None)
def rows_kernel(spec: RgmsRowsSpec, arch: str) -> Kernel:
    """The kernel: a block for each tile of rows, block on the diagonal, and stretch of its columns."""
    return cuda_kernels.build(rgms_rows(spec), CudaTeams(LANES, 1, shared=(SHARED,), mma=("mma",)), arch)


__all__ = ["LEAST_BLOCKS", "rows_kernel", "rows_of_block", "rows_spec"]
