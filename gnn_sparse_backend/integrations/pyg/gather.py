"""The gather of ``MessagePassing``: the one place that every layer's ``propagate`` goes through.

``propagate`` is generated for each class, so replacing it on the base class changes nothing; ``_index_select_safe`` is
what all of them call to turn node features into one row per edge.
"""
from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch_geometric.index import Index

from ..lazy import LazyTensor, gather, value, why_not
from .host import HOST, IndexEnd


def lazy_gather(original):
    """``MessagePassing._index_select_safe`` that returns a ``LazyTensor`` where the message may be fused."""

    @functools.wraps(original)
    def _index_select_safe(self, src: Tensor, index: Tensor) -> Tensor:
        plain = plain_index(index)
        reason = _why_not(self, src, plain)
        if reason is not None:
            HOST.fallback(reason)
            if type(src) is LazyTensor:
                src = value(src, reason)
            return original(self, src, index)
        return gather(HOST, IndexEnd(plain, src.shape[0], lambda x: original(self, x, index)), src)

    return _index_select_safe


def plain_index(index) -> Tensor | None:
    """``index`` as an ordinary (E,) int64 tensor on the CPU; None if it is not one."""
    if type(index) is Index:
        index = index._data
    if type(index) is Tensor and index.dtype is torch.int64 and index.dim() == 1 and index.is_cpu:
        return index
    return None


def _why_not(layer, src, index: Tensor | None) -> str | None:
    """Why this gather is the framework's own, or None. ``index`` is that of ``plain_index``."""
    reason = why_not(src)
    if reason is not None:
        return reason
    if layer._explain:
        return "the layer is being explained"
    if _has_hooks(layer):
        return "the layer has propagate, message, aggregate or edge hooks"
    if layer.node_dim != 0 and layer.node_dim != -src.dim():
        return f"nodes are dimension {layer.node_dim} of {src.dim()}-dimensional features"
    return "the edge index is not an ordinary int64 CPU tensor" if index is None else None


def _has_hooks(layer) -> bool:
    aggregation = layer.aggr_module
    return bool(layer._propagate_forward_pre_hooks or layer._propagate_forward_hooks
                or layer._message_forward_pre_hooks or layer._message_forward_hooks
                or layer._aggregate_forward_pre_hooks or layer._aggregate_forward_hooks
                or layer._edge_update_forward_pre_hooks or layer._edge_update_forward_hooks
                or aggregation is not None and (aggregation._forward_pre_hooks or aggregation._forward_hooks))
