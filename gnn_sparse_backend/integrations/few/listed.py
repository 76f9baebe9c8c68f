"""Graphs of index tensors as they are: found again while the tensor lives, and nothing of them kept beyond it.

Most graphs are batches that are seen once. What is known of one hangs on the user's own tensor, weakly: the list of its
edges, which kernels read as it is, and rows once they pay (`planner.cpu.listed`). No content is looked at or copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...planner.cpu.listed import FEW
from ...structures.csr import EdgeList
from ...structures.graph import Graph
from ..core.graphs import GRAPHS
from ..core.handles import Handles

SEEN = Handles()
"""Graphs of each index tensor, by ends and shape, and what layers derived of it."""


def is_list(index: Any, dims: int) -> bool:
    """Whether kernels read an index tensor as it is: (edges,), or (2, edges), of int64 on the CPU, without gaps."""
    return (
        type(index) is Tensor
        and index.dtype is torch.int64
        and index.dim() == dims
        and index.is_cpu
        and index.layout is torch.strided
        and index.stride(-1) == 1
        and index.shape[-1] > 0
    )


def graph_of_end(index: Tensor, size: int) -> Graph:
    """A graph with the edges into rows ``index``, of which there are ``size``; `is_list` holds for it."""
    owner = index if index._base is None else index._base
    key = size, index.storage_offset(), index.shape[0]
    found = SEEN.get(owner, key) if not owner.is_inference() else None
    if found is None:
        end = index.detach()
        found = Graph._of_list(EdgeList(end, end, (size, size)))
        if not owner.is_inference():
            SEEN.put(owner, found, key)
    return found


def seen_before(edge_index: Tensor, key: tuple) -> bool:
    """Whether somebody has asked this of the tensor before; from now on somebody has."""
    if SEEN.get(edge_index, key) is not None or SEEN.get(edge_index, (key, "seen")) is not None:
        return True
    SEEN.put(edge_index, True, (key, "seen"))
    return False


def graph_into(index: Tensor, size: int, features: int) -> Graph:
    """A graph with the edges into rows ``index``, of which there are ``size``: a list as long as their ``features``,
    over all edges, are few. Raises ValueError where an index is out of range and the graph is made.
    """
    if size and features <= FEW.features and is_list(index, 1):
        return graph_of_end(index, size)
    return GRAPHS.find_end(index, size)


SIGHTS = 8
"""Calls of layers on an index from which on it is one that comes again and again."""


def comes_often(edge_index: Tensor) -> bool:
    """Whether layers have been called on the tensor that often; this is a call."""
    if edge_index.is_inference():
        return False
    sights = SEEN.get(edge_index, "sights")
    if sights is None:
        sights = itertools.count()
        SEEN.put(edge_index, sights, "sights")
    return next(sights) >= SIGHTS


def derived(edge_index: Tensor, key: tuple, compute: Callable[[], tuple]) -> tuple:
    """What ``compute`` makes of an edge index: tensors and None, those of an earlier call with this tensor unless
    somebody has written to it or to them.
    """
    found = SEEN.get(edge_index, key)
    if found is not None and _versions(found[0]) == found[1]:
        return tuple(edge_index if x is _INPUT else x for x in found[0])
    with torch.inference_mode(False):
        value = compute()
    kept = tuple(_INPUT if x is edge_index else x for x in value)
    memory = edge_index.untyped_storage().data_ptr()
    if all(x.untyped_storage().data_ptr() != memory for x in kept if type(x) is Tensor):  # a view would keep it alive
        SEEN.put(edge_index, (kept, _versions(kept)), key)
    return value


_INPUT = object()


def _versions(tensors: tuple) -> tuple:
    return tuple(x._version if type(x) is Tensor else None for x in tensors)
