"""``gsb.checkpoint_layers``: layers that keep what they were given, and compute the rest again on the way back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.checkpoint import checkpoint

from ...deferred import import_module
from ..core.counters import ours
from ..core.registry import MEMORY, enabled_frameworks
from ..scopes import has_hooks
from .form import Form

M = TypeVar("M", bound=Module)
_FRAMEWORKS = ("torch_geometric.nn.conv.", "dgl.nn.")
_STORED = (torch.bfloat16, torch.float16, None)


def checkpoint_layers(
    model: M, enable: bool = True, *, layers: tuple[type[Module], ...] = (), dtype: torch.dtype | None = None
) -> M:
    """Let the layers of a model that pass messages keep their inputs alone until the backward pass, which computes what
    else it needs again: sums over neighbours, mapped features, outputs of attention.

        gsb.enable("pyg", memory="low")
        gsb.checkpoint_layers(model)

    A layer is called by PyTorch's checkpoint (``torch.utils.checkpoint``, without reentry), so gradients are those of
    the layer as it is, and dropouts inside draw the same numbers again. A step computes the forward pass of these
    layers once more, up to the last tensor that its gradients read.

    With ``memory="low"``, and features of more than 64 MiB, SAGEConv (means, sums), GraphConv and GCNConv of PyG, its
    GATConv, and DGL's SAGEConv (means) and GraphConv, without edge weights and dropouts of their own and, where they
    add self-loops, on edges without, go by chunks of rows: neither a sum over neighbours nor a gradient of it is ever
    whole, nothing of an edge is kept, and sums are not computed again. Losses then differ by rounding, and gradients
    cannot be differentiated once more.

    Args:
        model: of PyG's or DGL's layers, or of layers of ``layers``. Its parameters, their names, and its layers stay
            what they are; copies and pickles of it have checkpoints, too.
        enable: False takes the checkpoints away.
        layers: classes of layers beside those of PyG (``MessagePassing``, and what is derived of it) and ``dgl.nn``. Of
            layers within layers the outermost ones are meant.
        dtype: None, or ``torch.bfloat16`` or ``torch.float16``, in which inputs are kept that have a gradient: half
            the memory. The layer then computes with the rounded inputs in both passes.

    Returns:
        the model.

    Raises:
        TypeError: ``model`` is no module, or ``layers`` no classes of modules.
        ValueError: no layer was found, or ``dtype`` is another type.
    """
    if not isinstance(model, Module):
        raise TypeError(f"checkpoint_layers: model must be a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(layers, tuple) or not all(isinstance(each, type) and issubclass(each, Module) for each in layers):
        raise TypeError(f"checkpoint_layers: layers must be a tuple of classes of modules, got {layers!r}")
    if dtype not in _STORED:
        raise ValueError(f"checkpoint_layers: dtype must be torch.bfloat16, torch.float16 or None, got {dtype!r}")
    found = list(_outermost(model, layers))
    if not found:
        raise ValueError(
            f"checkpoint_layers: {type(model).__name__} has no layers of PyG or dgl.nn; name their classes in layers="
        )
    for layer in found:
        if type(layer.__dict__.get("forward")) is _Checkpointed:
            del layer.__dict__["forward"]
        if enable:
            layer.__dict__["forward"] = _Checkpointed(layer, layer.forward, dtype)
    return model


def _outermost(module: Module, layers: tuple[type[Module], ...]) -> Iterator[Module]:
    """The layers within a module, each once, that are in no other layer."""
    pending, met = [module], set()
    while pending:
        each = pending.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        if isinstance(each, layers) or any(base.__module__.startswith(_FRAMEWORKS) for base in type(each).__mro__):
            yield each
        else:
            pending += reversed(list(each.children()))


class _Checkpointed:
    """The ``forward`` of one layer, under a checkpoint.

    What is lazy within a layer belongs to the call of the layer. So within the checkpoint the layer as a whole is
    called, as it was before; unless it has hooks, which see one call.
    """

    def __init__(self, layer: Module, forward: Any, dtype: torch.dtype | None) -> None:
        self.layer, self.forward, self.dtype = layer, forward, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self.forward(*args, **kwargs)
        if MEMORY.low and (found := _by_rows(self.layer, args, kwargs)) is not None:
            return found(self.dtype)
        kinds = [self._kind(each) for each in args]
        stored = (each if kind is None else each.to(self.dtype) for each, kind in zip(args, kinds))
        return checkpoint(self._run, kinds, *stored, use_reentrant=False, **kwargs)

    def _kind(self, given: Any) -> torch.dtype | None:
        """The type of an input that is kept in another one, None of others."""
        if self.dtype is None or not isinstance(given, Tensor) or not given.requires_grad:
            return None
        return given.dtype if given.dtype in (torch.float32, torch.float64) else None

    def _run(self, kinds: list[torch.dtype | None], *args: Any, **kwargs: Any) -> Any:
        given = [each if kind is None else each.to(kind) for each, kind in zip(args, kinds)]
        own = self.layer.__dict__.pop("forward", None)
        try:
            call = self.forward if has_hooks(self.layer) else self.layer
            return call(*given, **kwargs)
        finally:
            if own is not None:
                self.layer.__dict__["forward"] = own


_HOMES = {"pyg": "torch_geometric.", "dgl": "dgl."}


def _by_rows(layer: Module, args: tuple, kwargs: dict[str, Any]) -> Form | None:
    """The call of a layer by chunks of rows, where its framework is enabled; None of others."""
    home = type(layer).__module__
    for name in enabled_frameworks():
        if home.startswith(_HOMES.get(name, "\0")):
            found: Form | None = import_module(f"{__package__}.{name}").form_of(layer, args, kwargs)
            if found is not None:
                ours(name, "layer by rows")
            return found
    return None
