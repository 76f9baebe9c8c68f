"""DGL: message passing of graphs, bipartite graphs and blocks on this package's kernels.

Every path of DGL (``update_all``, ``dgl.ops``, the layers of ``dgl.nn``) ends in module globals of
``dgl.backend.pytorch.sparse``, and its autograd formulas call the same globals again for gradients. Replacing them
covers forward and backward of every model; the autograd functions stay DGL's own. Means alone are taken over
above DGL's autograd, at ``dgl.ops.gspmm``.

    spmm.py        _gspmm: sums of copied or weighted features; gspmm: their means
    sddmm.py       _gsddmm: dot products of source and destination features
    structure.py   the Graph of a DGL graph index, kept as long as the index lives
    shapes.py      DGL's feature shapes as (heads, width)

Written against DGL 1.1; the names are the same in 2.x. A global that an installed version does not have is left out.
"""
from __future__ import annotations

import importlib
from types import ModuleType

import dgl
import dgl.backend.pytorch.sparse as dgl_sparse
from dgl.heterograph_index import HeteroGraphIndex

from ..counters import fallback
from ..patch import Patches
from . import sddmm, spmm, structure

_NOT_COVERED = ("_gspmm_hetero", "_gsddmm_hetero", "_edge_softmax_forward", "_edge_softmax_backward",
                "_segment_reduce", "_segment_mm", "_gather_mm", "_scatter_add")

_patches = Patches()


def activate() -> None:
    """Replace DGL's sparse operators; called by ``enable("dgl")``."""
    _patches.set(HeteroGraphIndex, "reverse", structure.linked_reverse(HeteroGraphIndex.reverse))
    _patches.set(HeteroGraphIndex, "get_relation_graph",
                 structure.linked_relation(HeteroGraphIndex.get_relation_graph))
    _patches.set(dgl_sparse, "_gspmm", spmm.make_sum(dgl_sparse._gspmm))
    _patches.set(dgl_sparse, "_gsddmm", sddmm.make(dgl_sparse._gsddmm))
    # The module's global is what the functions made in it call; the package's is what users call.
    mean = spmm.make_mean(dgl.ops.gspmm)
    for owner in (importlib.import_module("dgl.ops.spmm"), dgl.ops):
        _patches.set(owner, "gspmm", mean)
    for name in _NOT_COVERED:
        if hasattr(dgl_sparse, name):
            _count_only(dgl_sparse, name)


def deactivate() -> None:
    """Put DGL's own operators back and drop what was kept for its graphs."""
    _patches.undo()
    structure.forget_all()


def _count_only(module: ModuleType, name: str) -> None:
    original = getattr(module, name)
    operator = name.lstrip("_")

    def counted(*args, **kwargs):
        fallback("dgl", operator, "operator not covered")
        return original(*args, **kwargs)

    _patches.set(module, name, counted)
