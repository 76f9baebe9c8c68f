"""Whether a layer of PyG passes messages as its class says, so that one operator may stand in for it."""

from __future__ import annotations

from operator import attrgetter

from torch_geometric.nn.conv import MessagePassing

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
