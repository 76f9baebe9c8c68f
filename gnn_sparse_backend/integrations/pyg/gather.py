"""The gather of ``MessagePassing``: the one place that every layer's ``propagate`` goes through.

``propagate`` is generated for each class, so replacing it on the base class changes nothing; ``_index_select_safe`` is
what all of them call to turn node features into one row per edge.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch_geometric.index import Index

from ..lazy import LazyTensor, gather, gather_now, value, why_not
from .host import HOST, IndexEnd


def lazy_gather(original):
    """``MessagePassing._index_select_safe`` that returns a ``LazyTensor`` where the message may be fused.

    Where somebody looks at every message (hooks, explainers), or nodes are not the first dimension, it gathers at once.
    """

    @functools.wraps(original)
    def _index_select_safe(self, src: Tensor, index: Tensor) -> Tensor:
        plain = plain_index(index)
        reason = why_not(src)
        if reason is None and (plain is None or plain.device != src.device):
            reason = "the edge index is not an ordinary int64 tensor beside the features"
        dim = self.node_dim
        if reason is None and not -src.dim() <= dim < src.dim():
            reason = "there is no such dimension of nodes"
        if reason is not None:
            HOST.fallback(reason)
            return original(self, value(src, reason) if type(src) is LazyTensor else src, index)
        dim %= src.dim()
        end = IndexEnd(plain, src.shape[dim], lambda x: original(self, x, index))
        if dim == 0 and not self._explain and not _has_hooks(self):
            return gather(HOST, end, src)
        out = gather_now(HOST, end, src, dim)
        HOST.ours("gather")
        return out

    return _index_select_safe


def plain_index(index) -> Tensor | None:
    """``index`` as an ordinary (E,) int64 tensor; None if it is not one."""
    if type(index) is Index:
        index = index._data
    if type(index) is Tensor and index.dtype is torch.int64 and index.dim() == 1:
        return index
    return None


def _has_hooks(layer) -> bool:
    aggregation = layer.aggr_module
    return bool(
        layer._propagate_forward_pre_hooks
        or layer._propagate_forward_hooks
        or layer._message_forward_pre_hooks
        or layer._message_forward_hooks
        or layer._aggregate_forward_pre_hooks
        or layer._aggregate_forward_hooks
        or layer._edge_update_forward_pre_hooks
        or layer._edge_update_forward_hooks
        or (aggregation is not None and (aggregation._forward_pre_hooks or aggregation._forward_hooks))
    )
