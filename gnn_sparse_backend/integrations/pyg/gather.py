"""The gather of ``MessagePassing``: the one place that every layer's ``propagate`` goes through.

``propagate`` is generated for each class, so replacing it on the base class changes nothing; ``_index_select_safe`` is
what all of them call to turn node features into one row per edge, and in PyG 2.4 ``_lift``.

PyG gathers a message before it aggregates, and its user sees the error of the gather. A message that waits is gathered
inside the aggregation, whose own error may come first, and whose ``__call__`` raises a ``ValueError`` in the place of
an ``IndexError`` (`errors_of_gathers`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from ...planner.cpu.listed import FEW
from ...structures.checks import COMPLEX, FLOATING, WHOLE
from ..core.refusal import Refusal
from ..lazy import LazyTensor, gather, gather_now, materialise, of_rows, refuse, scaled_at
from ..scopes import current
from ..scopes.given import passing
from .host import HOST, PROPAGATE, IndexEnd
from .layers import has_hooks
from .releases import Index
from .scripting import scriptable_method

_GATHERED = FLOATING | COMPLEX | WHOLE


def lazy_gather(original):
    """``MessagePassing._index_select_safe`` that returns a ``LazyTensor`` where the message may be fused.

    It gathers at once where somebody looks at every message (hooks, explainers), where nodes are not the first
    dimension, where features are no floating numbers, and where no layer is being called. Features that were mapped, or
    scaled, are gathered as they were.
    """

    def _index_select_safe(self, src: Tensor, index: Tensor):
        waits = type(src) is LazyTensor and of_rows(src)
        if not waits and (refusal := refuse(src, _GATHERED)) is not None:
            return refusal
        plain, dim = plain_index(index), self.node_dim
        if plain is None or plain.device != src.device:
            return Refusal("the edge index is not an ordinary int64 tensor beside the features")
        if not -src.dim() <= dim < src.dim():
            return Refusal("there is no such dimension of nodes")
        dim %= src.dim()
        end = IndexEnd(plain, src.shape[dim], lambda x: original(self, x, index))
        scope, looked_at = current(), self._explain or has_hooks(self) or _is_watched(self.aggr_module)
        if scope is not None and dim == 0 and not looked_at and (waits or src.dtype in FLOATING):
            found = scaled_at(src, HOST, end) if waits else None
            lazy = gather(HOST, end, materialise(src, PROPAGATE)) if found is None else found
            if not scope.plain:
                # PyG collects what a message is made of for the time of a propagation, and nobody else sees that
                lazy._recipe.unlooked = int("CollectArgs" in sys._getframe(3).f_globals)
            return lazy, None
        return gather_now(HOST, end, materialise(src, PROPAGATE), dim), "gather"

    def passes(self, src, index) -> bool:
        """Whether the edges are few, and nobody follows what is made of them."""
        if passing():
            return True
        if type(src) is not Tensor or type(index) is not Tensor or current() is not None or torch.jit.is_tracing():
            return False
        return src.is_cpu and 0 < index.shape[:1].numel() * src.shape[1:].numel() <= FEW.features

    return HOST.admit(original, PROPAGATE, _index_select_safe, entering=False, passes=passes)


def lazy_lift(original):
    """``MessagePassing._lift``, which gathers at one end of an edge index by `lazy_gather`, and of a sparse adjacency
    as PyG does.
    """
    gathered = lazy_gather(lambda self, src, index: original(self, src, index.unsqueeze(0), 0))

    def _lift(self, src, edge_index, dim):
        plain = type(edge_index) is Tensor and edge_index.layout is torch.strided and isinstance(src, Tensor)
        if not plain or torch.compiler.is_compiling():
            return original(self, src, edge_index, dim)
        return gathered(self, src, edge_index[dim])

    return scriptable_method(_lift, original)


def errors_of_gathers(original: Callable) -> Callable:
    """``Aggregation.__call__``, which itself is ``original``: where it fails in a layer, what waits is computed, and an
    error of that is the one that is raised."""

    @functools.wraps(original)
    def __call__(self, x, *args, **kwargs):
        scope = current()
        if scope is None:
            return original(self, x, *args, **kwargs)
        try:
            return original(self, x, *args, **kwargs)
        except (IndexError, RuntimeError, ValueError) as error:
            failed = error
        scope.settle("its reduction")
        raise failed

    return __call__


def plain_index(index) -> Tensor | None:
    """``index`` as an ordinary (E,) int64 tensor; None if it is not one."""
    if type(index) is Index:
        index = index.as_tensor()
    if type(index) is Tensor and index.dtype is torch.int64 and index.dim() == 1:
        return index
    return None


def _is_watched(aggregation) -> bool:
    return aggregation is not None and bool(aggregation._forward_pre_hooks or aggregation._forward_hooks)
