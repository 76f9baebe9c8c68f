"""Layers whose steps may be learnt: by their classes, what their own code mentions, and that nobody looks into them."""

from __future__ import annotations

import dis
import weakref
from types import FunctionType
from typing import NamedTuple

from torch.utils.hooks import RemovableHandle
from torch_geometric.nn.aggr import (
    MaxAggregation,
    MeanAggregation,
    MinAggregation,
    MulAggregation,
    SumAggregation,
)
from torch_geometric.nn.conv import MessagePassing

from ....compiler.cache.bounded import kept

STEPS = {"propagate": "message", "edge_updater": "edge_update"}
"""What PyG generates for each class, and the method of the layer's own in it."""
_AGGREGATIONS = frozenset((SumAggregation, MeanAggregation, MaxAggregation, MinAggregation, MulAggregation))


class _Known(NamedTuple):
    """What is known of a layer. hooks: how many hooks there ever were, of any module, when it was looked through.

    kinds: by step, what tells it from others, and the names that its code mentions; None where it may do anything.
    """

    layer: weakref.ref
    hooks: int
    kinds: dict[str, tuple | None]


_layers: dict[int, _Known] = {}


def known_of(layer: MessagePassing) -> _Known:
    found = _layers.get(id(layer))
    if found is None or found.layer() is not layer or found.hooks != RemovableHandle.next_id:
        number = id(layer)
        reference = weakref.ref(layer, lambda _: _layers.pop(number, None))
        kinds = {step: _kind(step, layer) for step in STEPS}
        found = _layers[number] = _Known(reference, RemovableHandle.next_id, kinds)
    return found


def _kind(step: str, layer: MessagePassing) -> tuple | None:
    state = layer.__dict__
    names = _attributes(type(layer), step)
    aggregation = state["_modules"].get("aggr_module")
    if names is None or any(map(state.get, _HOOKS)):
        return None
    if any(state["_modules"].get(name) is not None for name in names):  # what they give comes from nowhere
        return None
    if step == "propagate":
        if type(aggregation) not in _AGGREGATIONS or aggregation._forward_hooks or aggregation._forward_pre_hooks:
            return None
        return (step, type(layer), type(aggregation)), names
    return (step, type(layer), None), names


def is_direct(layer: MessagePassing) -> bool:
    """Whether a layer's messages may come to operators."""
    return known_of(layer).kinds["propagate"] is not None


_HOOKS = tuple(
    f"_{step}_forward_{when}hooks"
    for step in ("propagate", "message", "aggregate", "edge_update")
    for when in ("pre_", "")
)


@kept
def _attributes(layer: type, step: str) -> tuple[str, ...] | None:
    """The names that a layer's own method mentions, among which are all attributes that it reads; None where more is
    the layer's own, or the method calls what we cannot look into."""
    if step == "propagate" and (
        layer.update is not MessagePassing.update or layer.aggregate is not MessagePassing.aggregate
    ):
        return None
    method = getattr(layer, STEPS[step])
    if not isinstance(method, FunctionType) or not method.__module__.startswith("torch_geometric."):
        return None
    code = method.__code__
    if code.co_freevars or code.co_cellvars or any(hasattr(each, "co_code") for each in code.co_consts):
        return None
    names = code.co_names
    if any(name in vars(each) for name in names for each in layer.__mro__[:-1]):  # methods of its own
        return None
    return names


@kept
def stored_by(layer: type, step: str) -> tuple[str, ...]:
    """The attributes that a layer's own method sets."""
    code = getattr(layer, STEPS[step]).__code__
    return tuple(dict.fromkeys(each.argval for each in dis.get_instructions(code) if each.opname == "STORE_ATTR"))
