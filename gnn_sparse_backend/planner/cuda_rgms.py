"""Kernels and plans of relational products for a GPU.

Two orders of one product, with P distinct (row, relation) pairs and Q distinct (column, relation) pairs among E edges:

- ``tiles``: rows of X are summed over the edges of each row pair and multiplied where they are; P products are stored, and
  added up by rows. Where Tensor Cores take matrices of the shape and type.
- ``transform``: the rows of X of all column pairs are multiplied, and gathered over the edges: Q products stored.

The one that moves fewer rows is taken; Tensor Cores do the arithmetic while rows are on their way.

The sum of outer products adds up, over the edges of the pairs of one end, the rows of the other end, and multiplies them by
the rows of the pairs, in one kernel: by the pairs of the end where that loads fewer elements (`sums_by_columns`).
None of it has been measured yet.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.grouped_tiles import LANES, ROWS
from ..compiler.programs.outer_tiles import rgms_sum_tiles
from ..compiler.programs.rgms_tiles import SHARED, RgmsTilesSpec, rgms_tiles
from ..compiler.schedule.cuda_teams import CudaTeams
from ..compiler.transform.share import share_axis
from . import cuda_kernels
from .cuda_grouped import build_outer, outer_spec, tiles
from .cuda_kernels import STORED
from .cuda_plan import shares


def order_of(edges: int, row_pairs: int, column_pairs: int, in_features: int, out_features: int, dtype: str, arch: str,
             full: bool, blocks: int = 1) -> str:
    """The order of a product. full: numbers are not to be cut to what Tensor Cores take of them. blocks: on the diagonal of the
    matrices, of in_features x out_features each."""
    if full or not tiles(in_features, out_features, dtype, arch, blocks):
        return "transform"
    # stored rows are written and read again
    fused = edges * in_features + 3 * row_pairs * out_features
    transform = column_pairs * (in_features + out_features) + edges * out_features
    return "tiles" if fused <= transform else "transform"


def panel_rows(in_features: int, out_features: int, dtype: str, arch: str, blocks: int = 1) -> int:
    """Pairs of a panel at most."""
    return ROWS * tiles(in_features, out_features, dtype, arch, blocks)


@functools.lru_cache(maxsize=None)
def tiles_kernel(spec: RgmsTilesSpec, arch: str) -> Kernel:
    """The kernel of sums of pairs and their products: a block of one team for each panel."""
    features = spec.blocks * spec.in_features
    part = min(shares(features, STORED[spec.dtype]).part, _each(features))
    program = share_axis(rgms_tiles(spec), "FI", LANES, part, exchanged=(SHARED,))
    return cuda_kernels.build(program, CudaTeams(LANES, 1, shared=(SHARED,), mma=("mma",)), arch)


# Edges of a pair that the shape of the blocks of a sum is chosen for: one binary serves all graphs.
EDGES_OF_PAIR = 2


def sums_by_columns(edges: int, row_pairs: int, column_pairs: int, in_features: int, out_features: int) -> bool:
    """Whether the sum of outer products goes by (column, relation) pairs."""
    return edges * out_features + column_pairs * in_features < edges * in_features + row_pairs * out_features


@functools.lru_cache(maxsize=None)
def sum_tiles_kernel(in_features: int, out_features: int, weighted: bool, dtype: str, index_dtype: str, arch: str,
                     blocks: int = 1) -> Kernel:
    """The kernel of the sum of outer products of sums over the edges of pairs, and of rows of the pairs.

    blocks: on the diagonal of the matrices, of in_features x out_features each.
    """
    spec = outer_spec(in_features, out_features, dtype, index_dtype, EDGES_OF_PAIR)
    part = min(spec.parts[0], _each(spec.block[0]))
    return build_outer(rgms_sum_tiles(replace(spec, parts=(part, spec.parts[1]), weighted=weighted, blocks=blocks)), arch)


def _each(elements: int) -> int:
    """Neighbouring elements that a lane loads at most, a power of two: all lanes load before any loads twice."""
    return 1 << (max(1, elements // LANES).bit_length() - 1)


__all__ = ["EDGES_OF_PAIR", "ROWS", "order_of", "panel_rows", "sum_tiles_kernel", "sums_by_columns", "tiles_kernel"]
