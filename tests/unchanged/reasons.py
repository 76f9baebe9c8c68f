"""What ``gsb.status()`` says after calls of layers and functions of DGL and PyG."""

from __future__ import annotations

import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from tests.integrations.small_layers import LAYERS, features


def found() -> dict[str, str]:
    """By framework, operator and reason ("ours" where it ran here): how often."""
    reset_status()
    for framework, bound in LAYERS.values():
        with gsb.enabled(framework):
            for dtype in (torch.float32, torch.bfloat16):
                _, run = bound(dtype)
                run(features(dtype=dtype)).sum().backward()
    _functions_of_pyg()
    _functions_of_dgl()
    counts = {}
    for framework, operators in gsb.status().to_dict()["calls"].items():
        for operator, of in operators.items():
            for reason, times in {"ours": of["ours"], **of["fallbacks"]}.items():
                counts[f"{framework}, {operator}, {reason}"] = str(times)
    return counts


def _functions_of_pyg() -> None:
    from torch_geometric import utils

    index = torch.tensor([0, 0, 1, 1, 1, 2])
    with gsb.enabled("pyg"):
        for reduce in ("sum", "mean", "max", "min", "mul", "any"):
            for x in (torch.rand(6, 4), torch.rand(6), torch.arange(24).view(6, 4)):
                utils.scatter(x, index, reduce=reduce)
        utils.softmax(torch.rand(6, 4), index)
        utils.softmax(torch.rand(6, 4), ptr=torch.tensor([0, 2, 5, 6]))
        utils.segment(torch.rand(6, 4), torch.tensor([0, 2, 5, 6]))


def _functions_of_dgl() -> None:
    import dgl

    graph = dgl.graph(([0, 1, 2, 2], [1, 2, 0, 1]))
    with gsb.enabled("dgl"):
        for reduce in ("sum", "max", "min"):
            for x in (torch.rand(3, 4), torch.rand(3, 4).double(), torch.arange(12).view(3, 4)):
                try:
                    dgl.ops.gspmm(graph, "copy_lhs", reduce, x, None)
                except dgl.DGLError:  # its kernels take no integers
                    continue
        dgl.ops.edge_softmax(graph, torch.rand(4, 2))
        dgl.ops.u_dot_v(graph, torch.rand(3, 4), torch.rand(3, 4))
        dgl.readout_nodes(_with_features(dgl.batch([graph, graph])), "x")


def _with_features(batch):
    batch.ndata["x"] = torch.rand(6, 4)
    return batch
