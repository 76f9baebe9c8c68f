"""Kernels of sparse convolution for a GPU, and the shape of their blocks. None of it has been measured yet.

A block has ``WARPS`` warps. Each reads a row of X for every stretch of columns, and a matrix for every tile of rows, so
that rows and columns are about alike; and there are no more rows than leave blocks enough to keep a GPU busy.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.language.types import BYTES
from ...compiler.schedules.primitives.cuda.mma import multiply_fragments
from ...compiler.schedules.teams import team_schedule
from ...planner.cuda.plan import shares
from ...planner.cuda.tensor_cores import FASTER, LANES, has_instructions, padded, refuses
from ..core import cuda_build
from ..grouped.schedules_cuda import STRETCHES
from .programs.depthwise_cuda import DepthwiseSpec, depthwise_parts, depthwise_rows
from .programs.tiles_cuda import SHARED, ConvTilesSpec, conv_tiles

# Warps of a block, and tiles of 128 elements that each of them accumulates at most, on Tensor Cores and in full
# precision: 16 or 32 registers a lane for the sums of rows, and as many for the products of an offset. Fragments take
# further registers: with twice as many tiles a lane has up to 184, and a multiprocessor two blocks.
WARPS = 4
ACCUMULATED = {False: 4, True: 8}
# Rows of a block at most, and bytes of shared memory for what they gather at a time.
MOST_ROWS = 128
SHARED_BYTES = 24 << 10
# Registers of a lane, of 4 bytes, for rows on their way to shared memory: with these, kernels have 128 at most.
HELD = 16
# Blocks that keep every multiprocessor busy.
LEAST_BLOCKS = 264
# Vectors that a lane has of a row in a depthwise convolution at most, and pairs of a part of a sum.
MOST_TURNS = 4
PART_PAIRS = 512


@kept
def tiles_spec(
    in_features: int, out_features: int, dtype: str, arch: str, groups: int, rows: int, full: bool = False
) -> ConvTilesSpec | None:
    """The shape of a block for a result of ``rows`` rows; None where neither Tensor Cores nor lanes multiply such
    matrices, where Tensor Cores gain nothing, and where the fewest rows of a block take too much shared memory.

    full: numbers are not to be cut to what Tensor Cores take of them. The shape is the one that fits with fewest
    columns computed for nothing, then with enough blocks, then with enough registers, then with the least loaded for a
    product, then with the widest windows.
    """
    if refuses(in_features, out_features, dtype):
        return None
    covered = padded(in_features, out_features, dtype)
    if not full and not (
        has_instructions(arch) and in_features * out_features * FASTER[BYTES[dtype]] >= covered[0] * covered[1]
    ):
        return None

    def cost(spec: ConvTilesSpec) -> tuple:
        blocks = -(-rows // spec.rows) * groups * spec.grid
        return (
            spec.grid * spec.width,
            -min(blocks, LEAST_BLOCKS),
            max(HELD, held(spec)),
            1 / spec.rows + 1 / min(spec.width, out_features),
            -spec.window,
            spec.product.loads(spec.tiles),
            -spec.across,
            spec.warps,
        )

    sizes = [1 << exponent for exponent in range(ACCUMULATED[full].bit_length())]
    part = shares(in_features, BYTES[dtype]).part
    found = []
    for down, tiles, across in product((1, 2, 4), product(sizes, sizes), STRETCHES if full else (0,)):
        spec = ConvTilesSpec(
            in_features, out_features, (down, WARPS // down), tiles, across, groups=groups, dtype=dtype
        )
        if tiles[0] * tiles[1] <= ACCUMULATED[full] and spec.rows <= MOST_ROWS:
            fits = [
                one
                for one in (replace(spec, window=window) for window in windows_of(spec))
                if one.shared_bytes <= SHARED_BYTES
            ]
            found += [replace(one, part=math.gcd(part, math.gcd(one.window, one.kept))) for one in fits]
    return min(found, default=None, key=cost)


def windows_of(spec: ConvTilesSpec) -> list[int]:
    """Channels that may be kept at a time: all, or whole steps of the product that divide them."""
    step = spec.product.covered(1)
    divisors = [n for n in range(step, spec.in_features, step) if spec.in_features % n == 0]
    return [*divisors, spec.in_features]


def held(spec: ConvTilesSpec) -> int:
    """Registers of a lane for the rows of a window."""
    return -(-spec.rows * spec.kept * BYTES[spec.dtype] // (4 * LANES * WARPS))


@kept
def tiles_kernel(spec: ConvTilesSpec, arch: str) -> Kernel:
    """The kernel: a block for each tile of rows, group of channels, and stretch of its columns."""
    schedule = team_schedule(LANES, *map(multiply_fragments, spec.product.instruction), shared=(SHARED,))
    return cuda_build.build(conv_tiles(spec), schedule, arch)


@kept
def depthwise_kernel(make: str, width: int, dtype: str, index_dtype: str, arch: str) -> Kernel:
    """The kernel of products by "rows", or of sums by "parts"."""
    of = shares(width, BYTES[dtype])
    turns = min(MOST_TURNS, -(-width // (of.lanes * of.part)))
    spec = DepthwiseSpec(width, of.lanes, of.part, turns, dtype, index_dtype)
    program = {"rows": depthwise_rows, "parts": depthwise_parts}[make](spec)
    return cuda_build.build(program, team_schedule(of.lanes), arch)
