"""Kernels of relational products in one pass, by blocks that own rows (``programs.rgms_rows``, ``rgms_row_dots``), and
their shape.

A block has ``WARPS`` warps and all columns of a matrix, as far as its accumulators reach: then a row of X is gathered
once. It has as many rows as then fit, so that a matrix, which a block reads once for each relation of its rows, serves
many; but no more than leave blocks enough to keep a GPU busy. The same shapes serve Tensor Cores and, for float32 in
full precision, products by every lane, whose tiles have as many registers. None of it has been measured yet.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TypeVar

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.schedules.cuda_teams import CudaTeams
from ...planner.cuda.plan import shares
from ...planner.cuda.tensor_cores import FASTER, LANES, has_instructions, padded, refuses
from ...planner.problem import STORED
from ..core import cuda_build
from ..grouped.schedules_cuda import STRETCHES
from .programs.rgms_row_dots import SHARED as DOTS_SHARED
from .programs.rgms_row_dots import RgmsDotsSpec, rgms_row_dots
from .programs.rgms_rows import SHARED, RgmsRowsSpec, rgms_rows

# Warps of a block, and tiles of 128 elements that each of them accumulates at most: 32 registers a lane for the sums of
# rows, and as many for the products of a relation, which leaves room for four blocks on a multiprocessor.
WARPS = 4
ACCUMULATED = 8
# Rows of a block at most, and bytes of shared memory for what they gather of a relation.
MOST_ROWS = 128
SHARED_BYTES = 24 << 10
# The same for dots, whose blocks keep rows and products.
DOTS_BYTES = 36 << 10
# Lanes that gather a row at least: with fewer, a panel has more shares than edges.
TEAM = 8
# Blocks that keep every multiprocessor busy, about two for each place of one on the largest GPUs.
LEAST_BLOCKS = 1024


def rows_of_block(rows: int, blocks: int = 1) -> int:
    """Rows of a block at most, a power of two, where the result has so many, and matrices so many blocks on their
    diagonals.
    """
    return 1 << max(0, min(MOST_ROWS, rows * blocks // LEAST_BLOCKS).bit_length() - 1)


@kept
def rows_spec(
    in_features: int,
    out_features: int,
    dtype: str,
    arch: str,
    blocks: int = 1,
    most: int = MOST_ROWS,
    full: bool = False,
) -> RgmsRowsSpec | None:
    """The shape of a block of up to ``most`` rows for matrices of this shape; None where Tensor Cores do not take them,
    gain nothing, or are too old for it, and where the fewest rows of a block are too many, or more than the shared
    memory for them.

    full: numbers are not to be cut to what Tensor Cores take of them.

    Of the shapes that fit: where rows are gathered by fewest blocks, then where fewest columns are computed for
    nothing, then most rows, then fewest loads of what is multiplied, then widest stretches of columns.
    """
    if not _takes(in_features, out_features, dtype, arch, full):
        return None
    of = shares(in_features, STORED[dtype])
    part = min(of.part, 1 << (max(1, in_features // TEAM).bit_length() - 1))
    lanes = max(TEAM, 1 << (-(-in_features // part) - 1).bit_length())
    spec = RgmsRowsSpec(
        in_features, out_features, lanes=min(LANES, lanes), part=part, blocks=blocks, dtype=dtype, out_dtype=dtype
    )
    found = [one for one in _shapes(spec, full) if one.rows <= most and one.shared_bytes <= SHARED_BYTES]
    return min(
        found,
        default=None,
        key=lambda one: (
            one.grid,
            one.grid * one.width,
            -one.rows,
            one.product.loads(one.tiles),
            -one.across,
            one.tiles,
        ),
    )


@kept
def dots_spec(
    in_features: int,
    out_features: int,
    dtype: str,
    arch: str,
    blocks: int = 1,
    most: int = MOST_ROWS,
    full: bool = False,
) -> RgmsDotsSpec | None:
    """The shape of a block for the dots of products at the edges, from rows of ``in_features`` to rows of
    ``out_features``; None as of `rows_spec`.

    Of the shapes that fit: where fewest columns are computed for nothing, then most rows, then fewest turns, then as
    there.
    """
    if not _takes(in_features, out_features, dtype, arch, full):
        return None
    parts = tuple(shares(width, STORED[dtype]).part for width in (in_features, blocks * out_features))
    part = min(parts[1], 1 << (max(1, blocks * out_features // LANES).bit_length() - 1))
    spec = RgmsDotsSpec(in_features, out_features, parts=(parts[0], part), blocks=blocks, dtype=dtype)
    found = [one for one in _shapes(spec, full) if one.rows <= most and one.shared_bytes <= DOTS_BYTES]
    return min(
        found,
        default=None,
        key=lambda one: (
            one.turns * one.width,
            -one.rows,
            one.turns,
            one.product.loads(one.tiles),
            -one.across,
            one.tiles,
        ),
    )


def _takes(in_features: int, out_features: int, dtype: str, arch: str, full: bool) -> bool:
    """Whether blocks multiply by such matrices, on Tensor Cores or in full precision."""
    if refuses(in_features, out_features, dtype):
        return False
    covered = padded(in_features, out_features, dtype)
    return full or (
        has_instructions(arch) and in_features * out_features * FASTER[STORED[dtype]] >= covered[0] * covered[1]
    )


_Spec = TypeVar("_Spec", RgmsRowsSpec, RgmsDotsSpec)


def _shapes(spec: _Spec, full: bool) -> list[_Spec]:
    """``spec`` with all shapes of a block: warps, tiles, and stretches of columns where ``full``."""
    sizes = [1 << exponent for exponent in range(ACCUMULATED.bit_length())]
    return [
        replace(spec, warps=(down, WARPS // down), tiles=tiles, across=across)
        for down in (1, 2, 4)
        for tiles in product(sizes, sizes)
        for across in (STRETCHES if full else (0,))
        if tiles[0] * tiles[1] <= ACCUMULATED
    ]


@kept
def rows_kernel(spec: RgmsRowsSpec, arch: str) -> Kernel:
    """The kernel: a block for each tile of rows, block on the diagonal, and stretch of its columns."""
    return cuda_build.build(rgms_rows(spec), CudaTeams(LANES, 1, shared=(SHARED,), mma=spec.product.instruction), arch)


@kept
def dots_kernel(spec: RgmsDotsSpec, arch: str) -> Kernel:
    """The kernel of the dots: a block for each tile of rows."""
    return cuda_build.build(
        rgms_row_dots(spec), CudaTeams(LANES, 1, shared=DOTS_SHARED, mma=spec.product.instruction), arch
    )
