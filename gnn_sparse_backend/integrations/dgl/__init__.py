"""DGL: message passing of graphs, bipartite graphs, blocks and heterogeneous graphs on this package's kernels.

Every path of DGL (``update_all``, ``apply_edges``, ``dgl.ops``, the layers of ``dgl.nn``) ends in module globals of
``dgl.backend.pytorch.sparse``, and its autograd formulas call the same globals again for gradients. Replacing them
covers forward and backward of every model. What has a better gradient of ours is taken over one level higher, at the
functions of ``dgl.ops``.

Written against DGL 1.1; the names are the same in 2.x. A global that an installed version does not have is left out.
"""

from __future__ import annotations

import importlib
from functools import partial

import dgl
import dgl.backend
import dgl.backend.pytorch.sparse as dgl_sparse
import dgl.ops
from dgl import DGLGraph
from dgl.heterograph_index import HeteroGraphIndex

from ..core.patch import Patches
from ..traced.eager_region import eager_region, enter, leave
from . import (
    few,
    hetero,
    hetero_conv,
    lazy_edges,
    mailbox,
    messages,
    sddmm,
    segments,
    softmax,
    spmm,
    structure,
    typed_linear,
)
from .host import HOST

_patches = Patches()


def activate() -> None:
    """Replace DGL's sparse operators; called by ``enable("dgl")``."""
    _patches.set(HeteroGraphIndex, "reverse", eager_region(structure.linked_reverse(HeteroGraphIndex.reverse)))
    _patches.set(
        HeteroGraphIndex,
        "get_relation_graph",
        eager_region(structure.linked_relation(HeteroGraphIndex.get_relation_graph)),
    )
    layers = importlib.import_module("dgl.nn.pytorch")
    # what ``dgl.ops.edge_softmax`` calls, under whatever names modules have imported it
    softmaxes = importlib.import_module("dgl.ops.edge_softmax")
    for owner, name, operator, run in (
        (dgl_sparse, "_gspmm", "gspmm", spmm.below_autograd),
        (dgl_sparse, "_gsddmm", "gsddmm", sddmm.below_autograd),
        (dgl_sparse, "_gspmm_hetero", "gspmm_hetero", hetero.spmm),
        (dgl_sparse, "_gsddmm_hetero", "gsddmm_hetero", hetero.sddmm),
        (dgl_sparse, "_edge_softmax_forward", softmax.FORWARD, softmax.forward),
        (dgl_sparse, "_edge_softmax_backward", softmax.BACKWARD, softmax.backward),
        (dgl_sparse, "_segment_reduce", "segment_reduce", segments.below_autograd),
        (dgl.backend, "segment_reduce", None, segments.above_autograd),
        (dgl.backend, "segment_mm", "segment_mm", segments.segment_mm),
        (
            softmaxes,
            "edge_softmax_internal",
            None,
            softmax.above_autograd(getattr(softmaxes, "edge_softmax_internal", None)),
        ),
        (softmaxes, "edge_softmax_hetero_internal", None, softmax.hetero),
        (layers.HeteroGraphConv, "forward", "rgms", hetero_conv.forward),
        (layers.TypedLinear, "forward", "gather_mm", typed_linear.forward),
    ):
        if hasattr(owner, name):  # not every version of DGL has all of them
            passes = segments.is_few if name.endswith("segment_reduce") else None
            _patches.set(owner, name, HOST.admit(getattr(owner, name), operator, run, passes=passes))
    # The module's global is what the functions made in it call; the package's is what users call.
    for name, operator, run, modules in (
        ("gspmm", None, spmm.above_autograd, ("ops.spmm", "ops")),
        ("gsddmm", None, sddmm.above_autograd, ("ops.sddmm", "ops")),
        ("gather_mm", "gather_mm", segments.gather_mm, ("ops.gather_mm", "ops", "nn.pytorch.linear")),
        ("segment_reduce", None, segments.readout, ("ops.segment", "ops")),
    ):
        new = HOST.admit(getattr(dgl.ops, name), operator, run, entering=name != "gspmm")
        for module in modules:
            _patches.set(importlib.import_module(f"dgl.{module}"), name, new)
    core = importlib.import_module("dgl.core")
    _patches.set(core, "message_passing", eager_region(messages.make_messages(core.message_passing)))
    _patches.set(core, "invoke_gsddmm", eager_region(messages.make_values(core.invoke_gsddmm)))
    _patches.set(core, "invoke_udf_reduce", eager_region(mailbox.make_reduced(core.invoke_udf_reduce)))
    _patches.set(core, "invoke_edge_udf", eager_region(messages.make_features(core.invoke_edge_udf)))
    for name, make in (
        ("update_all", few.make_update),
        ("apply_edges", few.make_apply),
        ("in_degrees", partial(few.make_degrees, end=0)),
        ("out_degrees", partial(few.make_degrees, end=1)),
        ("_set_n_repr", partial(few.make_store, frames="_node_frames")),
        ("_set_e_repr", partial(few.make_store, frames="_edge_frames")),
    ):
        _patches.set(DGLGraph, name, eager_region(make(getattr(DGLGraph, name))))
    _patches.set(DGLGraph, "local_scope", lazy_edges.marking_scope(DGLGraph.local_scope))
    _patches.set(DGLGraph, "local_var", lazy_edges.marking_copy(DGLGraph.local_var))
    # one that only calls others leaves it to them
    own = {each for each in vars(layers).values() if isinstance(each, type) and "forward" in vars(each)}
    for layer in own - {layers.HeteroGraphConv}:
        _patches.set(layer, "forward", eager_region(lazy_edges.scoped(layer.forward)))
    leave(dgl)


def deactivate() -> None:
    """Put DGL's own operators back and drop what was kept for its graphs."""
    _patches.undo()
    enter(dgl)
    for module in (structure, lazy_edges, segments, typed_linear):
        module.KEPT.clear()
