"""The gather of ``MessagePassing``: the one place that every layer's ``propagate`` goes through.

``propagate`` is generated for each class, so replacing it on the base class changes nothing; ``_index_select_safe`` is
what all of them call to turn node features into one row per edge.
"""
from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter
from torch_geometric.index import Index

from ...ops.checks import FLOATING
from ..counters import fallback
from .lazy import PROPAGATE, LazyMessage, Recipe, lazy_message


def lazy_gather(original):
    """``MessagePassing._index_select_safe`` that returns a ``LazyMessage`` where the message may be fused."""

    @functools.wraps(original)
    def _index_select_safe(self, src: Tensor, index: Tensor) -> Tensor:
        plain = plain_index(index)
        reason = _why_not(self, src, plain)
        if reason is not None:
            fallback("pyg", PROPAGATE, reason)
            if type(src) is LazyMessage:
                src = src._recipe.value(reason)
            return original(self, src, index)
        return lazy_message(Recipe(original, self, src, plain, None, False, plain.shape + src.shape[1:], src.dtype))

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
    if type(src) is not Tensor and type(src) is not Parameter:
        return f"the features are a {type(src).__name__}"
    if layer._explain:
        return "the layer is being explained"
    if _has_hooks(layer):
        return "the layer has propagate, message, aggregate or edge hooks"
    dim = src.dim()
    if dim != 2 and dim != 3:
        return f"the features have {dim} dimensions"
    if layer.node_dim != 0 and layer.node_dim != -dim:
        return f"nodes are dimension {layer.node_dim} of {dim}-dimensional features"
    if src.dtype not in FLOATING:
        return f"the features are {src.dtype}"
    if not src.is_cpu:
        return f"the features are on {src.device.type}"
    if src.layout is not torch.strided:
        return f"the features have layout {src.layout}"
    if index is None:
        return "the edge index is not an ordinary int64 CPU tensor"
    if 0 in src.shape[1:]:
        return "the features have width 0"
    return transformed()


def transformed() -> str | None:
    """What makes the current operations more than plain eager execution, or None."""
    if torch.jit.is_tracing():
        return "torch.jit is tracing"
    if torch.compiler.is_compiling():
        return "torch.compile is tracing"
    if torch._C._len_torch_dispatch_stack():
        return "a torch dispatch mode is active"
    if torch._C._are_functorch_transforms_active():
        return "a torch.func transform is active"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is active"
    return None


def _has_hooks(layer) -> bool:
    aggregation = layer.aggr_module
    return bool(layer._propagate_forward_pre_hooks or layer._propagate_forward_hooks
                or layer._message_forward_pre_hooks or layer._message_forward_hooks
                or layer._aggregate_forward_pre_hooks or layer._aggregate_forward_hooks
                or layer._edge_update_forward_pre_hooks or layer._edge_update_forward_hooks
                or aggregation is not None and (aggregation._forward_pre_hooks or aggregation._forward_hooks))
