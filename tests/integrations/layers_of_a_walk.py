"""Which layers of a walk through a framework belong to the short run: one of each kind that a fault would show in."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

PYG = (
    *("GCNConv", "SAGEConv", "GATConv", "GATv2Conv", "TransformerConv", "GINConv", "EdgeConv", "PNAConv", "MFConv"),
    *("RGCNConv", "HGTConv", "HeteroConv", "HypergraphConv", "PointNetConv", "DynamicEdgeConv", "own layer"),
    *("TopKPooling", "global_mean_pool", "aggr.MaxAggregation", "aggr.SoftmaxAggregation", "utils.softmax"),
    *("utils.scatter", "second derivative", "checkpoint", "hooks of modules", "torch.func.grad"),
)
DGL = (
    *("GraphConv", "SAGEConv", "GATConv", "GATv2Conv", "DotGatConv", "GINConv", "EdgeConv", "PNAConv", "NNConv"),
    *("RelGraphConv", "HGTConv", "HeteroGraphConv", "ChebConv", "EGATConv", "SumPooling", "Set2Set", "SortPooling"),
    *("dgl.ops.edge_softmax", "dgl.ops.u_sub_e_max", "dgl.ops.u_div_e_mean", "dgl.ops.v_dot_u", "dgl.ops.segment_mm"),
    *(
        "dgl.ops.gather_mm",
        "dgl.ops.segment_reduce",
        "multi_update_all",
        "update_all of all relations",
        "send_and_recv",
    ),
)


def walk(runs: Iterable[tuple], short: tuple[str, ...]) -> list:
    """Rows of ``parametrize``, one for each run, whose first value is a layer's name, "kind, options".

    All are marked ``layers`` but the first run of each kind in ``short``.
    """
    left, rows = set(short), []
    for run in runs:
        kind = run[0].partition(",")[0]
        marks = () if kind in left else pytest.mark.layers
        left.discard(kind)
        rows.append(pytest.param(*run, marks=marks, id="-".join(map(str, run))))
    assert not left, f"no run has the kinds {sorted(left)}"
    return rows
