"""Our kernels under PyTorch Geometric (2.7 and later).

=============  ==========================================================================================
module         what it holds
=============  ==========================================================================================
``gather``     ``MessagePassing._index_select_safe``: features of every edge, not gathered yet
``lazy``       the tensor that stands for them; a product with edge weights stays lazy
``reduce``     sum and mean of a lazy message: one sparse kernel
``matmul``     ``torch_geometric.utils.spmm`` and ``EdgeIndex.matmul``, for sparse adjacencies
``graphs``     from index tensors to a ``Graph``, found again by provenance or content
=============  ==========================================================================================

Counted as ``copy.sum``, ``copy.mean``, ``mul.sum``, ``mul.mean`` (a message that is a copy, or a product with edge
weights), ``spmm.*`` and ``matmul.*``. A message that the framework computes itself is counted once under ``propagate``,
with the reason.
"""
from __future__ import annotations

import sys

import torch_geometric.nn
import torch_geometric.utils
from torch_geometric.edge_index import EdgeIndex
from torch_geometric.nn.aggr import base as aggregation
from torch_geometric.nn.conv import MessagePassing

from ..patch import Patches
from .gather import lazy_gather
from .lazy import LazyMessage
from .matmul import fused_matmul, fused_spmm
from .reduce import GRAPHS, reduce_message

_patches: Patches | None = None
_spmm: tuple | None = None  # ours, PyG's


def activate() -> None:
    """Put our kernels under PyG. Nothing if they are there already."""
    global _patches, _spmm
    if _patches is not None:
        return
    _patches = patches = Patches()
    patches.set(MessagePassing, "_index_select_safe", lazy_gather(MessagePassing._index_select_safe))
    patches.set(aggregation, "scatter", _scriptable(_scatter(aggregation.scatter), aggregation.scatter))
    patches.set(EdgeIndex, "matmul", fused_matmul(EdgeIndex.matmul))
    original = torch_geometric.utils.spmm
    _spmm = (_scriptable(fused_spmm(original), original), original)
    for module, name in _globals_that_are(original):
        patches.set(module, name, _spmm[0])


def deactivate() -> None:
    """Restore every attribute of PyG and forget all graphs. Nothing if our kernels are not there."""
    global _patches, _spmm
    if _patches is not None:
        _patches.undo()
    if _spmm is not None:
        for module, name in _globals_that_are(_spmm[0]):  # modules that were imported in between
            setattr(module, name, _spmm[1])
    _patches = _spmm = None
    GRAPHS.clear()


def forget() -> None:
    """Forget all graphs. Needed only after writes to an edge index that PyTorch cannot see (see ``graphs``)."""
    GRAPHS.clear()


def _scatter(original):
    def scatter(src, index, dim=0, dim_size=None, reduce="sum"):
        if type(src) is LazyMessage:
            out = reduce_message(src, index, dim, dim_size, reduce)
            if out is not NotImplemented:
                return out
            src = src._recipe.value("computed already")
        return original(src, index, dim, dim_size, reduce)

    return scatter


def _scriptable(function, original):
    """Let ``torch.jit.script`` compile ``original`` where it meets ``function`` (as ``torch.jit.script_if_tracing``)."""
    function.__script_if_tracing_wrapper = True
    function.__original_fn = original
    return function


def _globals_that_are(value) -> list[tuple]:
    """``(module, name)`` of every module global that is ``value``: layers, PyG's and users', import helpers by name."""
    return [(module, name) for module in list(sys.modules.values())
            for name, held in list(getattr(module, "__dict__", {}).items()) if held is value]
