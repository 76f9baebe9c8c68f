"""Sums of SparseConvTensors on different sites."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...structures.coordinates.packing import numbered
from ..core.refusal import Refusal
from .maps import sites_of
from .operands import HOST, refuse

_NAME = "sparse_add"


def make_sum(original: Callable) -> Callable:
    """spconv's ``sparse_add`` and ``sparse_add_hash_based`` on the union of all sites, with gradients.

    As in spconv the result shares maps with a tensor that has all of the sites, and then has its order; otherwise sites
    ascend, batch by batch.
    """
    return HOST.admit(original, _NAME, _sum)


def _sum(*tens):
    every = [refuse(x) or sites_of(x) for x in tens]
    for sites in every:
        if type(sites) is Refusal:
            return sites
    first = tens[0]
    if any(_kind(x) != _kind(first) for x in tens):
        return Refusal("the shapes do not fit")
    given = [sites.rows for sites in every]
    keys, rows = torch.unique(torch.cat(numbered(*given)), return_inverse=True)
    of_each = rows.split([len(x.indices) for x in tens])
    whole = next((number for number, x in enumerate(tens) if len(x.indices) == len(keys)), None)
    if whole is None:
        indices, indice_dict = first.indices.new_empty(len(keys), first.indices.shape[1]), {}
        indices[rows] = torch.cat(given).to(indices.dtype)
    else:
        indices, indice_dict = tens[whole].indices, tens[whole].indice_dict
        place = torch.empty_like(of_each[whole])
        place[of_each[whole]] = torch.arange(len(keys), device=place.device)
        of_each = [place[each] for each in of_each]
    features = first.features.new_zeros(len(keys), first.features.shape[1])
    for each, x in zip(of_each, tens):
        features = features.index_add(0, each, x.features)
    out = first.replace_feature(features)
    out.indices, out.indice_dict = indices, indice_dict
    return out, _NAME


def _kind(x) -> tuple:
    """What tensors that are added have in common."""
    return tuple(x.spatial_shape), int(x.batch_size), x.features.shape[1], x.features.dtype, x.features.device
