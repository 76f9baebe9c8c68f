"""A staged sparse compiler for graph neural networks, and plug-ins that put its kernels under DGL, PyG and spconv.

    import gnn_sparse_backend as gsb

    graph = gsb.Graph.from_edge_index(edge_index, size=(num_sources, num_destinations))
    y = gsb.spmm(graph, x, weight, reduce="mean")
    gsb.enable("dgl")

Names are imported when first used, so that the compiler can be used without PyTorch and the operators without
either framework.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import config, log
from .deferred import import_module, keep_tvm_ffi_from_building

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import distributed as distributed
    from . import formats as formats
    from . import nn as nn
    from . import tensor as tensor
    from .compiler.cache.background import wait_for_kernels as wait_for_kernels
    from .compiler.packs.in_force import load_pack as load_pack
    from .integrations import disable as disable
    from .integrations import enable as enable
    from .integrations import enabled as enabled
    from .integrations import status as status
    from .integrations.checkpoints.api import checkpoint_layers as checkpoint_layers
    from .integrations.core.planning import explain as explain
    from .integrations.core.planning import precompile as precompile
    from .integrations.dgl_graph import dgl_graph as dgl_graph
    from .integrations.exported.load import load_export as load_export
    from .integrations.exported.package import export as export
    from .integrations.traced import compile as compile
    from .ops.attention.api import attention as attention
    from .ops.attention.api import gat_attention as gat_attention
    from .ops.attention.api import gatv2_attention as gatv2_attention
    from .ops.attention.edge_softmax import edge_softmax as edge_softmax
    from .ops.composed.api import composed_linear as composed_linear
    from .ops.composed.api import composed_sddmm as composed_sddmm
    from .ops.composed.api import composed_spmm as composed_spmm
    from .ops.convolution.api import sparse_conv as sparse_conv
    from .ops.convolution.voxelize import voxelize as voxelize
    from .ops.core.last_run import last_run as last_run
    from .ops.grouped.api import gather_mm as gather_mm
    from .ops.grouped.api import segment_mm as segment_mm
    from .ops.grouped.segment_reduce import segment_reduce as segment_reduce
    from .ops.masked.api import masked_sddmm as masked_sddmm
    from .ops.masked.api import masked_spmm as masked_spmm
    from .ops.masked.api import sparse_attention as sparse_attention
    from .ops.masked.flex.api import flex_attention as flex_attention
    from .ops.message.api.aggregate import aggregate as aggregate
    from .ops.message.api.aggregate import edge_map as edge_map
    from .ops.message.api.gsddmm import gsddmm as gsddmm
    from .ops.message.api.gspmm import gspmm as gspmm
    from .ops.message.api.linear import linear as linear
    from .ops.message.api.sddmm import sddmm as sddmm
    from .ops.message.api.spmm import spmm as spmm
    from .ops.message.api.spmm_linear import spmm_linear as spmm_linear
    from .ops.relational.api import rgms as rgms
    from .runtime.allocator import reuse_memory as reuse_memory
    from .runtime.memory import empty_cache as empty_cache
    from .sampling.api import sample_neighbors as sample_neighbors
    from .sampling.features import load_features as load_features
    from .sampling.prefetch import Prefetcher as Prefetcher
    from .structures import masks as masks
    from .structures.accounting.memory import memory as memory
    from .structures.graph import Graph as Graph
    from .structures.kernel_map import KernelMap as KernelMap
    from .structures.points.periodic import radius_graph as radius_graph
    from .structures.relational.graph import RelGraph as RelGraph
    from .structures.reordering.reorder import reorder as reorder
    from .structures.segments import Segments as Segments
    from .tuning.pack import pack as pack
    from .tuning.schedule import schedule as schedule
    from .tuning.tune_format import tune_format as tune_format

_HOMES = {
    "Graph": "gnn_sparse_backend.structures.graph",
    "spmm": "gnn_sparse_backend.ops.message.api.spmm",
    "spmm_linear": "gnn_sparse_backend.ops.message.api.spmm_linear",
    "linear": "gnn_sparse_backend.ops.message.api.linear",
    "gspmm": "gnn_sparse_backend.ops.message.api.gspmm",
    "gsddmm": "gnn_sparse_backend.ops.message.api.gsddmm",
    "aggregate": "gnn_sparse_backend.ops.message.api.aggregate",
    "edge_map": "gnn_sparse_backend.ops.message.api.aggregate",
    "sddmm": "gnn_sparse_backend.ops.message.api.sddmm",
    "segment_mm": "gnn_sparse_backend.ops.grouped.api",
    "gather_mm": "gnn_sparse_backend.ops.grouped.api",
    "segment_reduce": "gnn_sparse_backend.ops.grouped.segment_reduce",
    "RelGraph": "gnn_sparse_backend.structures.relational.graph",
    "rgms": "gnn_sparse_backend.ops.relational.api",
    "radius_graph": "gnn_sparse_backend.structures.points.periodic",
    "reorder": "gnn_sparse_backend.structures.reordering.reorder",
    "Segments": "gnn_sparse_backend.structures.segments",
    "KernelMap": "gnn_sparse_backend.structures.kernel_map",
    "composed_spmm": "gnn_sparse_backend.ops.composed.api",
    "composed_linear": "gnn_sparse_backend.ops.composed.api",
    "composed_sddmm": "gnn_sparse_backend.ops.composed.api",
    "sparse_conv": "gnn_sparse_backend.ops.convolution.api",
    "voxelize": "gnn_sparse_backend.ops.convolution.voxelize",
    "attention": "gnn_sparse_backend.ops.attention.api",
    "gat_attention": "gnn_sparse_backend.ops.attention.api",
    "gatv2_attention": "gnn_sparse_backend.ops.attention.api",
    "edge_softmax": "gnn_sparse_backend.ops.attention.edge_softmax",
    "sparse_attention": "gnn_sparse_backend.ops.masked.api",
    "flex_attention": "gnn_sparse_backend.ops.masked.flex.api",
    "masked_sddmm": "gnn_sparse_backend.ops.masked.api",
    "masked_spmm": "gnn_sparse_backend.ops.masked.api",
    "load_features": "gnn_sparse_backend.sampling.features",
    "Prefetcher": "gnn_sparse_backend.sampling.prefetch",
    "sample_neighbors": "gnn_sparse_backend.sampling.api",
    "last_run": "gnn_sparse_backend.ops.core.last_run",
    "memory": "gnn_sparse_backend.structures.accounting.memory",
    "empty_cache": "gnn_sparse_backend.runtime.memory",
    "reuse_memory": "gnn_sparse_backend.runtime.allocator",
    "enable": "gnn_sparse_backend.integrations",
    "disable": "gnn_sparse_backend.integrations",
    "enabled": "gnn_sparse_backend.integrations",
    "status": "gnn_sparse_backend.integrations",
    "checkpoint_layers": "gnn_sparse_backend.integrations.checkpoints.api",
    "dgl_graph": "gnn_sparse_backend.integrations.dgl_graph",
    "compile": "gnn_sparse_backend.integrations.traced",
    "export": "gnn_sparse_backend.integrations.exported.package",
    "load_export": "gnn_sparse_backend.integrations.exported.load",
    "tune_format": "gnn_sparse_backend.tuning.tune_format",
    "schedule": "gnn_sparse_backend.tuning.schedule",
    "pack": "gnn_sparse_backend.tuning.pack",
    "wait_for_kernels": "gnn_sparse_backend.compiler.cache.background",
    "load_pack": "gnn_sparse_backend.compiler.packs.in_force",
    "precompile": "gnn_sparse_backend.integrations.core.planning",
    "explain": "gnn_sparse_backend.integrations.core.planning",
}

_MODULES = {
    "distributed": "gnn_sparse_backend.distributed",
    "formats": "gnn_sparse_backend.formats",
    "masks": "gnn_sparse_backend.structures.masks",
    "nn": "gnn_sparse_backend.nn",
    "tensor": "gnn_sparse_backend.tensor",
}

__all__ = [*_HOMES, "__version__"]

keep_tvm_ffi_from_building()
config.warn_of_unknown()
log.install()


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name):
        if name in _MODULES:
            value = import_module(_MODULES[name])
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            # from these two Python finds the name that may be meant
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *__all__})
