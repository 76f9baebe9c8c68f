"""What releases of PyG have under other names, or not at all: from 2.4 on, in one place.

=======  =======================================================================================================
release  what it has not, beside the next
=======  =======================================================================================================
2.4      ``EdgeIndex``; a gather by itself, which is in ``_lift``; steps that are generated; times of edges in samplers
2.5      ``Index``; a method that generates a layer's steps, which its constructor does
2.6      samplers with a direction; ``HashTensor``
2.7      neighbours, clusters and walks of pyg-lib: it asks torch-cluster (``enable("torch_cluster")``)
=======  =======================================================================================================

A class that there is not is one that nothing is an instance of.
"""

from __future__ import annotations

import importlib
from typing import Any

from torch_geometric.nn.conv import MessagePassing


def _class(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        return type(name, (), {"__doc__": "There is no such class in this release of PyG."})


EdgeIndex = _class("torch_geometric.edge_index", "EdgeIndex")
Index = _class("torch_geometric.index", "Index")
LIFTS = not hasattr(MessagePassing, "_index_select_safe")
"""Whether layers gather by ``_lift``."""


def generator_of_steps() -> str | None:
    """The method of a layer that generates the steps of its class, with the first layer of that; None for none."""
    if LIFTS:
        return None
    return "_set_jittable_templates" if hasattr(MessagePassing, "_set_jittable_templates") else "__init__"


_OF_SAMPLERS = {"edge_time": None, "sample_direction": "forward"}


def of_sampler(sampler: Any, name: str) -> Any:
    """An attribute of a sampler, or what stands for it where this release has samplers without."""
    return getattr(sampler, name, _OF_SAMPLERS[name])
