"""Kernels of relational products in one pass, by blocks that own rows (``programs.rgms_rows``, ``rgms_row_dots``), and
their shape.

A block has ``WARPS`` warps and all columns of a matrix, as far as its accumulators reach: then a row of X is gathered
once. It has as many rows as then fit, so that a matrix, which a block reads once for each relation of its rows, serves
many; but no more than leave blocks enough to keep a GPU busy. The same shapes serve Tensor Cores and, for float32 in
full precision, products by every lane, whose tiles have as many registers. None of it has been measured yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import NamedTuple, TypeVar

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.language.types import BYTES
from ...compiler.schedules.primitives.cuda.mma import multiply_fragments
from ...compiler.schedules.teams import team_schedule
from ...planner.cuda.plan import shares
from ...planner.cuda.tensor_cores import FASTER, LANES, has_instructions, padded, refuses
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
# Bytes of shared memory for dots, whose blocks keep rows and products.
DOTS_BYTES = 36 << 10
# Lanes that gather a row at least: with fewer, a panel has more shares than edges.
TEAM = 8
# Blocks that keep every multiprocessor busy, about two for each place of one on the largest GPUs.
LEAST_BLOCKS = 1024


def rows_of_block(rows: int, blocks: int = 1) -> int:
    """Rows of a block at most, a power of two, where the result has ``rows``, and matrices ``blocks`` blocks on their
    diagonals.
    """
    return 1 << max(0, min(MOST_ROWS, rows * blocks // LEAST_BLOCKS).bit_length() - 1)


class ProductShape(NamedTuple):
    """What a product of rows by the matrices of relations is, and for which architecture. blocks: on the diagonal of a
    matrix, of in_features x out_features each. full: numbers are not to be cut to what Tensor Cores take of them.
    """

    in_features: int
    out_features: int
    dtype: str
    arch: str
    blocks: int = 1
    full: bool = False


@kept
def rows_spec(of: ProductShape, most: int = MOST_ROWS) -> RgmsRowsSpec | None:
    """The shape of a block of up to ``most`` rows; None where Tensor Cores do not take such matrices, gain nothing, or
    are too old for it, and where the fewest rows of a block are too many, or more than the shared memory for them.

    The shape is the one that fits with rows gathered by fewest blocks, then with fewest columns computed for nothing,
    then with most rows, then as of `_best`.
    """
    if not _takes(of):
        return None
    loaded = shares(of.in_features, BYTES[of.dtype]).part
    part = min(loaded, 1 << (max(1, of.in_features // TEAM).bit_length() - 1))
    lanes = min(LANES, max(TEAM, 1 << (-(-of.in_features // part) - 1).bit_length()))
    spec = RgmsRowsSpec(of.in_features, of.out_features, lanes=lanes, part=part, dtype=of.dtype, out_dtype=of.dtype)
    spec = replace(spec, blocks=of.blocks)
    return _best(spec, of.full, most, SHARED_BYTES, lambda one: (one.grid, one.grid * one.width, -one.rows))


@kept
def dots_spec(of: ProductShape, most: int = MOST_ROWS) -> RgmsDotsSpec | None:
    """The shape of a block for the dots of products at the edges, from rows of ``in_features`` to rows of
    ``out_features``; None as of `rows_spec`.

    The shape is the one that fits with fewest columns computed for nothing, then with most rows, then with fewest
    turns, then as of `_best`.
    """
    if not _takes(of):
        return None
    wide = of.blocks * of.out_features
    parts = tuple(shares(width, BYTES[of.dtype]).part for width in (of.in_features, wide))
    part = min(parts[1], 1 << (max(1, wide // LANES).bit_length() - 1))
    spec = RgmsDotsSpec(of.in_features, of.out_features, parts=(parts[0], part), blocks=of.blocks, dtype=of.dtype)
    return _best(spec, of.full, most, DOTS_BYTES, lambda one: (one.turns * one.width, -one.rows, one.turns))


def _takes(of: ProductShape) -> bool:
    """Whether blocks multiply by such matrices, on Tensor Cores or in full precision."""
    widths = of.in_features, of.out_features
    if refuses(*widths, of.dtype):
        return False
    covered = padded(*widths, of.dtype)
    pays = widths[0] * widths[1] * FASTER[BYTES[of.dtype]] >= covered[0] * covered[1]
    return of.full or (has_instructions(of.arch) and pays)


_Spec = TypeVar("_Spec", RgmsRowsSpec, RgmsDotsSpec)


def _best(
    spec: _Spec, full: bool, most: int, shared_bytes: int, first: Callable[[_Spec], tuple[int, ...]]
) -> _Spec | None:
    """``spec`` with the shape of a block: warps, tiles, and stretches of columns where ``full``. It is the least that
    fits by ``first``, then that of fewest loads of what is multiplied, then of the widest stretches.
    """
    sizes = [1 << exponent for exponent in range(ACCUMULATED.bit_length())]
    found = [
        replace(spec, warps=(down, WARPS // down), tiles=tiles, across=across)
        for down in (1, 2, 4)
        for tiles in product(sizes, sizes)
        for across in (STRETCHES if full else (0,))
        if tiles[0] * tiles[1] <= ACCUMULATED
    ]
    return min(
        (one for one in found if one.rows <= most and one.shared_bytes <= shared_bytes),
        default=None,
        key=lambda one: (*first(one), one.product.loads(one.tiles), -one.across, one.tiles),
    )


@kept
def rows_kernel(spec: RgmsRowsSpec, arch: str) -> Kernel:
    """The kernel: a block for each tile of rows, block on the diagonal, and stretch of its columns."""
    schedule = team_schedule(LANES, *map(multiply_fragments, spec.product.instruction), shared=(SHARED,))
    return cuda_build.build(rgms_rows(spec), schedule, arch)


@kept
def dots_kernel(spec: RgmsDotsSpec, arch: str) -> Kernel:
    """The kernel of the dots: a block for each tile of rows."""
    schedule = team_schedule(LANES, *map(multiply_fragments, spec.product.instruction), shared=DOTS_SHARED)
    return cuda_build.build(rgms_row_dots(spec), schedule, arch)
