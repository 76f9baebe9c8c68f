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
from typing import TYPE_CHECKING

from . import config, log

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .integrations import disable as disable
    from .integrations import enable as enable
    from .integrations import enabled as enabled
    from .integrations import status as status
    from .integrations.planning import explain as explain
    from .integrations.planning import precompile as precompile
    from .ops.allocator import reuse_memory as reuse_memory
    from .ops.attention_layers import attention as attention
    from .ops.attention_layers import gat_attention as gat_attention
    from .ops.attention_layers import gatv2_attention as gatv2_attention
    from .ops.edge_softmax import edge_softmax as edge_softmax
    from .ops.graph import Graph as Graph
    from .ops.grouped import gather_mm as gather_mm
    from .ops.grouped import segment_mm as segment_mm
    from .ops.gsddmm import gsddmm as gsddmm
    from .ops.gspmm import gspmm as gspmm
    from .ops.memory import empty_cache as empty_cache
    from .ops.messages import aggregate as aggregate
    from .ops.messages import edge_map as edge_map
    from .ops.rel_graph import RelGraph as RelGraph
    from .ops.rgms import rgms as rgms
    from .ops.sddmm import sddmm as sddmm
    from .ops.segment import segment_reduce as segment_reduce
    from .ops.segments import Segments as Segments
    from .ops.spmm import spmm as spmm

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

config.warn_of_unknown()
log.install()


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name):
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
