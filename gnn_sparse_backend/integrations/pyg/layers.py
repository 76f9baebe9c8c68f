"""Layers of PyG as such: called, and whether one passes messages as its class says, so that one operator may stand in
for it.
"""

from __future__ import annotations

from operator import attrgetter
from types import NoneType
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules import module
from torch_geometric.nn.conv import MessagePassing

from ...compiler.cache.bounded import kept
from ...dynamo import not_traced
from ...planner.cpu.listed import FEW
from ..core.counters import fallback
from ..few.listed import comes_often
from ..lazy import LEAST, watched
from ..scopes import has_hooks as module_has_hooks
from ..scopes import kind_of
from ..scopes.given import PASSING, enter, leave
from ..scopes.modes import in_checkpoint
from .few.kinds import is_direct
from .host import HOST, PROPAGATE, TINY
from .matmul import is_untraceable
from .tracing import traces_unknown_sizes

_STEPS = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
_hooks_of = attrgetter(*(f"_{step}_forward_{when}hooks" for step in _STEPS for when in ("pre_", "")))


def has_hooks(layer: MessagePassing) -> bool:
    """Whether somebody looks at a step of its message passing."""
    return any(_hooks_of(layer))


def is_rerouted(layer: MessagePassing) -> bool:
    """Whether it is explained, decomposed, runs against its edges, or has nodes in another dimension than the first."""
    return (
        bool(layer.explain)
        or layer.decomposed_layers != 1
        or layer.flow != "source_to_target"
        or layer.node_dim not in (0, -2)
    )


def watched_call(self, *args, **kwargs):
    """In the place of ``MessagePassing.__call__``: arithmetic of layers on large features goes in fewer passes, and
    layers on an adjacency that PyTorch cannot trace, or does with errors, run between two programs.
    """
    eager = not torch.compiler.is_compiling() and not torch.jit.is_tracing()  # which has tensors for sizes
    if eager and not in_checkpoint() and (work := _work(self, args, kwargs)) and HOST.deferring:
        tiny = work <= FEW.tiny and (torch.is_grad_enabled() or not is_direct(self))
        if tiny:
            fallback(HOST.name, PROPAGATE, TINY.reason)
        before = enter(PASSING if tiny else (args, kwargs))
        try:
            return Module.__call__(self, *args, **kwargs)
        finally:
            leave(before)
    if any(map(is_untraceable, (*args, *kwargs.values()))):
        if not (torch.compiler.is_compiling() and traces_unknown_sizes()):
            return _apart(self, *args, **kwargs)
    return _watched(self, *args, **kwargs)


def _watched(self, *args, **kwargs):
    call = Module.__call__  # looked up now: whoever traces programs replaces it
    if torch.compiler.is_compiling() or not HOST.deferring:
        return call(self, *args, **kwargs)
    worth_it = any(map(_is_large, (*args, *kwargs.values()))) and not _is_looked_at(self)
    trusted = _is_trusted(type(self), type(self.aggr_module))
    kind = kind_of(self, args, kwargs) if trusted and torch.is_grad_enabled() else None
    with watched(HOST.name, (args, kwargs), trusted=trusted, worth_it=worth_it, kind=kind) as scope:
        scope.result = call(self, *args, **kwargs)
        return scope.result


def _work(layer: MessagePassing, args: tuple, kwargs: dict[str, Any]) -> int:
    """How many features of edges, with loops, a call has where these are few; 0 where its steps are worth following, as
    those on a sparse matrix that is not tiny.
    """
    edges, nodes, features, index = 0, 0, _width(layer), None
    most = FEW.often if "heads" in layer.__dict__ else FEW.features  # attention goes over the edges many times
    for x in (*args, *kwargs.values()) if kwargs else args:
        if type(x) is tuple and x:
            x = x[0]
        if type(x) is not torch.Tensor:
            continue
        if x.layout is not torch.strided:
            edges, most = x._nnz(), FEW.tiny
        elif x.dtype is torch.int64:
            if x.dim() == 2 and x.is_cpu:
                edges, index = x.shape[1], x
        elif x.dim() > 1:
            nodes, features = max(nodes, x.shape[0]), max(features, x.shape[-1])
    work = (edges + nodes) * features
    if not edges or work > most or (work > FEW.often and index is not None and comes_often(index)):
        return 0
    return work


def _width(layer: MessagePassing) -> int:
    """Features of what a layer gives, as far as it says."""
    width, heads = layer.__dict__.get("out_channels", 1), layer.__dict__.get("heads", 1)
    return width * heads if type(width) is int and type(heads) is int else 1


@kept
def _is_trusted(layer: type, aggregation: type) -> bool:
    """Whether all that a layer runs between a gather and its reduction is PyG's, which writes to nothing."""
    functions = [getattr(layer, name) for name in ("forward", "update", *_STEPS[1:])]
    return all(each.__module__.startswith(_PYG) for each in (*functions, aggregation, NoneType))


_PYG = ("torch_geometric.", "builtins")
_apart = not_traced(_watched)


def _is_large(x) -> bool:
    if type(x) is tuple:
        return any(map(_is_large, x))
    return isinstance(x, torch.Tensor) and x.dtype.is_floating_point and x.numel() >= LEAST


def _is_looked_at(layer: MessagePassing) -> bool:
    """Whether hooks of somebody see what goes in and comes out."""
    return module_has_hooks(layer) or bool(module._global_forward_hooks or module._global_forward_pre_hooks)
