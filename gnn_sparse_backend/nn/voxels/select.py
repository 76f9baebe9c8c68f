"""``nn.select``: some sites of a tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.checks import as_index_vector, check_range
from ...structures.coordinates import Coordinates
from .maps import kept
from .tensor import SparseTensor, check_sparse
from .traced import traced, traced_rows


def select(x: SparseTensor, rows: Tensor) -> SparseTensor:
    """Some sites of ``x``, with their features: pruning.

    The result keeps the way back of ``x``: a transposed or inverse layer returns to the sites that ``x`` came from.

    Args:
        rows: (N,) booleans, True for each row to keep; or (M,) integers, which rows, in the order wanted, none twice.

    Returns:
        A tensor of the chosen sites; of all of them by booleans ``x`` itself. Gradients flow to the features.

    Raises:
        TypeError, ValueError: ``rows`` is not as above; the first bad entry is quoted.
    """
    check_sparse("select", x)
    masked = isinstance(rows, Tensor) and rows.dtype == torch.bool
    if torch.compiler.is_compiling():
        return _in_program(x, rows.nonzero().squeeze(1) if masked else rows.long())
    if masked:
        if rows.shape != (len(x),):
            raise ValueError(
                f"select: booleans must have shape ({len(x)},), one for each site, got {tuple(rows.shape)}"
            )
        chosen = rows.nonzero().squeeze(1)
        if chosen.numel() == len(x):
            return x
    else:
        chosen = as_index_vector("select: rows", rows).long()
        check_range("select: rows", chosen, len(x), "sites")
    if chosen.device != x.device:
        raise ValueError(f"select: rows are on {chosen.device} but the tensor on {x.device}; move one of them")
    # a gradient of what was indexed is written at once, and that of index_select added row by row
    return SparseTensor._of(x.features[chosen], _chosen(x.sites, chosen, masked), x.path)


def _in_program(x: SparseTensor, chosen: Tensor) -> SparseTensor:
    """Rows that are there twice, or not at all, are refused when the program runs."""
    sites = traced(x.sites)
    rows = traced_rows(sites.rows.index_select(0, chosen), sites.stride, sites.batch_size, sites.sizes)
    return SparseTensor._of(x.features[chosen], rows, x.path)


@kept
def _chosen(sites: Coordinates, chosen: Tensor, rising: bool) -> Coordinates:
    if not rising:
        ascending, order = chosen.sort(stable=True)
        again = (ascending[1:] == ascending[:-1]).nonzero()
        if again.numel():
            first, second = order[again[0, 0] :][:2].tolist()
            raise ValueError(f"select: rows {first} and {second} are both {int(chosen[first])}: a site is there once")
    rows = sites.rows.index_select(0, chosen)
    return Coordinates._make(rows, sites.stride, sites.batch_size, sites.sizes, sites.bounds)
