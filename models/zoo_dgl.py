"""Everything in DGL that passes messages, as cases for `models.coverage`.

    zoo_dgl_graphs.py   the graphs
    zoo_dgl_conv.py     dgl.nn.pytorch.conv
    zoo_dgl_nn.py       readouts, wrappers, typed products, transforms
    zoo_dgl_hetero.py   several types of nodes and edges at once
    zoo_dgl_explain.py  explainers
    zoo_dgl_ops.py      dgl.ops, dgl.mpops, readout functions, update_all
"""
from __future__ import annotations

from models import zoo_dgl_conv, zoo_dgl_explain, zoo_dgl_hetero, zoo_dgl_nn, zoo_dgl_ops

CASES = (zoo_dgl_conv.CASES + zoo_dgl_nn.CASES + zoo_dgl_hetero.CASES + zoo_dgl_explain.CASES + zoo_dgl_ops.CASES)

# Calls that cannot run on our kernels, and why: {case, or "*" for all: {"operator: reason": why}}.
EXCEPTIONS: dict[str, dict[str, str]] = {}
