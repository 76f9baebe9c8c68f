"""DGL: message passing of graphs, bipartite graphs, blocks and heterogeneous graphs on this package's kernels.

Every path of DGL (``update_all``, ``apply_edges``, ``dgl.ops``, the layers of ``dgl.nn``) ends in module globals of
``dgl.backend.pytorch.sparse``, and its autograd formulas call the same globals again for gradients. Replacing them
covers forward and backward of every model. What has a better gradient of ours is taken over one level higher, at the
functions of ``dgl.ops``.

    spmm.py        gspmm, _gspmm: messages of sources and edges, reduced
    sddmm.py       gsddmm, _gsddmm: a value per edge of its two ends
    softmax.py     edge_softmax, _edge_softmax_forward, _edge_softmax_backward
    segments.py    _segment_reduce, segment_mm, gather_mm: rows of segments, rows of relations
    hetero.py      _gspmm_hetero, _gsddmm_hetero: sums and values on all edge types at once
    lazy_edges.py  edge features inside local_scope, computed when they are used: attention in one operator
    messages.py    messages that DGL has no operator for, and those of users' functions: lazy too
    relational.py  RelGraphConv: products by relation and their sum in one operator
    relations.py   the RelGraph of a DGL graph index
    hetero_conv.py HeteroGraphConv of GraphConv layers: the same for edge types
    typed_linear.py TypedLinear of block-diagonal matrices
    host.py        DGL as lazy tensors see it
    structure.py   the Graph of a DGL graph index, kept as long as the index lives
    operands.py    which operands the kernels take

Written against DGL 1.1; the names are the same in 2.x. A global that an installed version does not have is left out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import dgl.backend
import dgl.backend.pytorch.sparse as dgl_sparse
import dgl.ops
from dgl import DGLGraph
from dgl.heterograph_index import HeteroGraphIndex

from ..core.patch import Patches
from . import (
    hetero,
    hetero_conv,
    lazy_edges,
    messages,
    sddmm,
    segments,
    softmax,
    spmm,
    structure,
    typed_linear,
)

_patches = Patches()


def activate() -> None:
    """Replace DGL's sparse operators; called by ``enable("dgl")``."""
    _patches.set(HeteroGraphIndex, "reverse", structure.linked_reverse(HeteroGraphIndex.reverse))
    _patches.set(HeteroGraphIndex, "get_relation_graph", structure.linked_relation(HeteroGraphIndex.get_relation_graph))
    _replace("_gspmm", spmm.make_forward)
    _replace("_gsddmm", sddmm.make_forward)
    _replace("_gspmm_hetero", hetero.make_spmm)
    _replace("_gsddmm_hetero", hetero.make_sddmm)
    _replace("_edge_softmax_forward", softmax.make_forward)
    _replace("_edge_softmax_backward", softmax.make_backward)
    _replace("_segment_reduce", segments.make_reduce)
    _patches.set(dgl.backend, "segment_reduce", segments.make_reduce_of_lazy(dgl.backend.segment_reduce))
    _patches.set(dgl.backend, "segment_mm", segments.make_segment_mm(dgl.backend.segment_mm))
    # The module's global is what the functions made in it call; the package's is what users call.
    for name, make, modules in (
        ("gspmm", spmm.make, ("ops.spmm", "ops")),
        ("gsddmm", sddmm.make, ("ops.sddmm", "ops")),
        ("gather_mm", segments.make_gather_mm, ("ops.gather_mm", "ops", "nn.pytorch.linear")),
    ):
        new = make(getattr(dgl.ops, name))
        for module in modules:
            _patches.set(importlib.import_module(f"dgl.{module}"), name, new)
    # what the function of the package calls, under whatever names modules have imported that function
    module = importlib.import_module("dgl.ops.edge_softmax")
    for name, make in (("edge_softmax_internal", softmax.make), ("edge_softmax_hetero_internal", softmax.make_hetero)):
        if hasattr(module, name):
            _patches.set(module, name, make(getattr(module, name)))
    core = importlib.import_module("dgl.core")
    _patches.set(core, "message_passing", messages.make_messages(core.message_passing))
    for module, name, make in (
        ("hetero", "HeteroGraphConv", hetero_conv.make_forward),
        ("linear", "TypedLinear", typed_linear.make_forward),
    ):
        layer = getattr(importlib.import_module(f"dgl.nn.pytorch.{module}"), name)
        _patches.set(layer, "forward", make(layer.forward))
    _patches.set(core, "invoke_gsddmm", messages.make_values(core.invoke_gsddmm))
    _patches.set(core, "invoke_edge_udf", messages.make_features(core.invoke_edge_udf))
    _patches.set(DGLGraph, "local_scope", lazy_edges.marking_scope(DGLGraph.local_scope))
    _patches.set(DGLGraph, "local_var", lazy_edges.marking_copy(DGLGraph.local_var))


def deactivate() -> None:
    """Put DGL's own operators back and drop what was kept for its graphs."""
    _patches.undo()
    structure.forget_all()
    lazy_edges.forget_all()
    segments.forget_all()
    typed_linear.forget_all()


def _replace(name: str, make: Callable) -> None:
    """Replace a global of DGL's sparse module, if this version has it."""
    if hasattr(dgl_sparse, name):
        _patches.set(dgl_sparse, name, make(getattr(dgl_sparse, name)))
