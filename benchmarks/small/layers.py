"""What is measured: a layer, a pooling or a training step, as a function of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.small.batches import BLOCK, Batch

WIDTH, HEADS, RELATIONS = 32, 4, 4
LAYERS = {
    "pyg": (
        *("GIN", "GINE", "SAGE", "GCN", "GAT", "GATv2", "EdgeConv", "PNA", "Transformer", "RGCN"),
        *("sum pool", "mean pool", "max pool"),
    ),
    "dgl": (
        "GIN",
        "GINE",
        "SAGE",
        "GCN",
        "GAT",
        "GATv2",
        "EdgeConv",
        "PNA",
        "RGCN",
        "sum pool",
        "mean pool",
        "max pool",
    ),
}
LOOPS = {"pyg": ("GIN", "GINE", "GCN", "GAT", "EdgeConv", "Transformer"), "dgl": ("GIN", "GCN", "GAT")}

Prepared = Any
"""A batch as a framework takes it."""


def possible(layer: str, size: str) -> bool:
    """Whether there is such a cell: pooling is of molecules, and some layers have one kind of nodes."""
    return size != BLOCK or not (layer.endswith("pool") or layer in ("PNA", "GINE"))


def prepare(framework: str, batch: Batch) -> Prepared:
    """What a loader would have made of a batch; nothing of it is timed."""
    if framework == "pyg":
        return batch
    import dgl

    source, destination = batch.edge_index
    if batch.batch is None:
        block = dgl.create_block((source, destination), *batch.sizes)
        return batch, block
    graph = dgl.graph((source, destination), num_nodes=batch.sizes[0])
    graph.set_batch_num_nodes(torch.bincount(batch.batch))
    graph.set_batch_num_edges(torch.full((batch.count,), len(source) // batch.count))
    return batch, graph


def make(framework: str, layer: str) -> tuple[nn.Module, Callable[[Prepared, Tensor], Tensor]]:
    """A layer, and ``(batch, x) -> result``."""
    return (_pyg if framework == "pyg" else _dgl)(layer)


def _pyg(layer: str):
    import torch_geometric.nn as pyg

    if layer.endswith("pool"):
        pool = getattr(pyg, f"global_{layer.split()[0].replace('sum', 'add')}_pool")
        return nn.Identity(), lambda b, x: pool(x, b.batch, b.count)
    heads = {"heads": HEADS, "add_self_loops": False}
    narrow = WIDTH // HEADS
    made = {
        "GIN": lambda: pyg.GINConv(nn.Linear(WIDTH, WIDTH)),
        "GINE": lambda: pyg.GINEConv(nn.Linear(WIDTH, WIDTH)),
        "SAGE": lambda: pyg.SAGEConv(WIDTH, WIDTH),
        "GCN": lambda: pyg.GCNConv(WIDTH, WIDTH),
        "GAT": lambda: pyg.GATConv(WIDTH, narrow, **heads),
        "GATv2": lambda: pyg.GATv2Conv(WIDTH, narrow, **heads),
        "EdgeConv": lambda: pyg.EdgeConv(nn.Linear(2 * WIDTH, WIDTH)),
        "PNA": lambda: pyg.PNAConv(
            WIDTH, WIDTH, ["mean", "max", "min", "std"], ["identity", "amplification"], torch.tensor([0, 5, 9, 5, 1])
        ),
        "Transformer": lambda: pyg.TransformerConv(WIDTH, narrow, heads=HEADS),
        "RGCN": lambda: pyg.RGCNConv(WIDTH, WIDTH, RELATIONS, num_bases=2),
    }[layer]()

    def call(b: Batch, x: Tensor) -> Tensor:
        pair = x if b.batch is not None or layer == "GCN" else (x, x[: b.sizes[1]])
        more = {"GINE": (b.edge_attr,), "RGCN": (b.relation,)}.get(layer, ())
        return made(pair, b.edge_index, *more)

    return made, call


def _dgl(layer: str):
    import dgl
    import dgl.nn as layers

    if layer.endswith("pool"):
        op = layer.split()[0]

        def pool(prepared, x: Tensor) -> Tensor:
            _, g = prepared
            with g.local_scope():
                g.ndata["x"] = x
                return dgl.readout_nodes(g, "x", op=op)

        return nn.Identity(), pool
    narrow = WIDTH // HEADS
    made = {
        "GIN": lambda: layers.GINConv(nn.Linear(WIDTH, WIDTH)),
        "GINE": lambda: layers.GINEConv(nn.Linear(WIDTH, WIDTH)),
        "SAGE": lambda: layers.SAGEConv(WIDTH, WIDTH, "mean"),
        "GCN": lambda: layers.GraphConv(WIDTH, WIDTH, allow_zero_in_degree=True),
        "GAT": lambda: layers.GATConv(WIDTH, narrow, HEADS, allow_zero_in_degree=True),
        "GATv2": lambda: layers.GATv2Conv(WIDTH, narrow, HEADS, allow_zero_in_degree=True),
        "EdgeConv": lambda: layers.EdgeConv(WIDTH, WIDTH, allow_zero_in_degree=True),
        "PNA": lambda: layers.PNAConv(WIDTH, WIDTH, ["mean", "max", "min"], ["identity", "amplification"], 2.5),
        "RGCN": lambda: layers.RelGraphConv(WIDTH, WIDTH, RELATIONS, "basis", 2),
    }[layer]()

    def call(prepared, x: Tensor) -> Tensor:
        b, g = prepared
        pair = x if b.batch is not None or layer == "RGCN" else (x, x[: b.sizes[1]])
        more = {"GINE": (b.edge_attr,), "RGCN": (b.relation,)}.get(layer, ())
        return made(g, pair, *more)

    return made, call


class Loop:
    """Three layers with a pooling behind them, trained by Adam: a step on a batch."""

    def __init__(self, framework: str, layer: str):
        pairs = [make(framework, layer) for _ in range(3)]
        self.calls = [call for _, call in pairs]
        _, self.pool = make(framework, "sum pool")
        self.last = nn.Linear(WIDTH, 1)
        self.modules = nn.ModuleList([module for module, _ in pairs] + [self.last])
        self.optimiser = torch.optim.Adam(self.modules.parameters())

    def __call__(self, prepared: Prepared, x: Tensor) -> Tensor:
        self.optimiser.zero_grad()
        for call in self.calls:
            x = call(prepared, x).flatten(1).relu()
        loss = self.last(self.pool(prepared, x)).square().mean()
        loss.backward()
        self.optimiser.step()
        return loss.detach()
