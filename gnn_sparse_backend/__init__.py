"""A staged sparse compiler for graph neural networks, and plug-ins that put its kernels under DGL and PyG.

    import gnn_sparse_backend as gsb

    graph = gsb.Graph.from_edge_index(edge_index, size=(num_sources, num_destinations))
    y = gsb.spmm(graph, x, weight, reduce="mean")
    gsb.enable("dgl")

Names are imported when first used, so that the compiler can be used without PyTorch and the operators without
either framework.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_HOMES = {
    "Graph": "gnn_sparse_backend.ops.graph",
    "spmm": "gnn_sparse_backend.ops.spmm",
    "gspmm": "gnn_sparse_backend.ops.gspmm",
    "gsddmm": "gnn_sparse_backend.ops.gsddmm",
    "aggregate": "gnn_sparse_backend.ops.messages",
    "edge_map": "gnn_sparse_backend.ops.messages",
    "sddmm": "gnn_sparse_backend.ops.sddmm",
    "segment_mm": "gnn_sparse_backend.ops.grouped",
    "gather_mm": "gnn_sparse_backend.ops.grouped",
    "segment_reduce": "gnn_sparse_backend.ops.segment",
    "RelGraph": "gnn_sparse_backend.ops.rel_graph",
    "rgms": "gnn_sparse_backend.ops.rgms",
    "Segments": "gnn_sparse_backend.ops.segments",
    "attention": "gnn_sparse_backend.ops.attention_layers",
    "gat_attention": "gnn_sparse_backend.ops.attention_layers",
    "gatv2_attention": "gnn_sparse_backend.ops.attention_layers",
    "edge_softmax": "gnn_sparse_backend.ops.edge_softmax",
    "empty_cache": "gnn_sparse_backend.ops.memory",
    "reuse_memory": "gnn_sparse_backend.ops.allocator",
    "enable": "gnn_sparse_backend.integrations",
    "disable": "gnn_sparse_backend.integrations",
    "enabled": "gnn_sparse_backend.integrations",
    "status": "gnn_sparse_backend.integrations",
    "precompile": "gnn_sparse_backend.integrations.planning",
    "explain": "gnn_sparse_backend.integrations.planning",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str):
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
