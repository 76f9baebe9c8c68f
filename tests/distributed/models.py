"""Models under DDP on parts, against one process, where some parts have no training nodes, or no nodes."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F

import gnn_sparse_backend as gsb
from gnn_sparse_backend.distributed import DistGraph, mean_loss, wrap

from . import cases

LAYERS = {"dgl": ("SAGEConv", "GATConv", "RelGraphConv"), "pyg": ("SAGEConv", "GATConv", "RGCNConv")}


class Two(torch.nn.Module):
    """Two layers, called as their framework calls them."""

    def __init__(self, framework: str, layer: str) -> None:
        super().__init__()
        self.framework = framework
        self.layers = torch.nn.ModuleList(made(framework, layer, *widths) for widths in ((6, 5), (5, 4)))

    def forward(self, graph, x, relation):
        for layer in self.layers:
            args = (graph, x) if self.framework == "dgl" else (x, graph)
            if type(layer).__name__ in ("RelGraphConv", "RGCNConv"):
                args = (*args, relation)
            x = torch.tanh(layer(*args).flatten(1))
        return x


def made(framework: str, layer: str, wide: int, out: int) -> torch.nn.Module:
    if framework == "dgl":
        import dgl.nn

        more = {"SAGEConv": ("mean",), "GATConv": (1,), "RelGraphConv": (cases.RELATIONS,)}[layer]
        keywords = {"allow_zero_in_degree": True} if layer == "GATConv" else {}
        return getattr(dgl.nn, layer)(wide, out, *more, **keywords)
    import torch_geometric.nn

    more = (cases.RELATIONS,) if layer == "RGCNConv" else ()
    return getattr(torch_geometric.nn, layer)(wide, out, *more)


def train_as_in_one_process(rank: int, framework: str, folders: dict[tuple[str, str], Path]) -> None:
    for (kind, method), folder in folders.items():
        _compare(framework, kind, f"{framework} {kind} {method} ", DistGraph.load(folder))


def _compare(framework: str, kind: str, where: str, part: DistGraph) -> None:
    whole = cases.whole(kind)
    rows = whole.shape[0]
    random = torch.Generator().manual_seed(3)
    x = torch.rand(rows, 6, generator=random, dtype=torch.float64)
    labels, training = torch.randint(4, (rows,), generator=random), torch.arange(rows) < 5
    if framework == "dgl":
        import dgl

        graph = dgl.graph((whole.source, whole.destination), num_nodes=rows)
    else:
        graph = torch.stack([whole.source, whole.destination]).long()
    for layer in LAYERS[framework]:
        torch.manual_seed(1)
        alone = Two(framework, layer).double()
        torch.manual_seed(1)
        shared = Two(framework, layer).double()
        with gsb.enabled(framework):
            out = alone(graph, x, whole.relation.long())
            loss = F.cross_entropy(out[training], labels[training])
            loss.backward()
            wrapped, ids = wrap(shared, part), part.row_ids
            part.traffic.clear()
            mine = wrapped(part, x[ids], part.edge_type.long())
            chosen = training[ids]
            total = F.cross_entropy(mine[chosen], labels[ids][chosen], reduction="sum")
            of_part = mean_loss(part, total, int(chosen.sum()))
            of_part.backward()
        torch.testing.assert_close(mine, out[ids], rtol=1e-10, atol=1e-10, msg=f"{where}{layer} output".__add__)
        _counted_as_predicted(part)
        mean = of_part.detach() / part.parts
        if part.group is not None:
            dist.all_reduce(mean)
        torch.testing.assert_close(mean, loss.detach(), rtol=1e-10, atol=1e-10, msg=f"{where}{layer} loss".__add__)
        for (name, told), got in zip(alone.named_parameters(), shared.parameters()):
            torch.testing.assert_close(
                got.grad, told.grad, rtol=1e-10, atol=1e-10, msg=f"{where}{layer} {name}".__add__
            )


def _counted_as_predicted(part: DistGraph) -> None:
    """Bytes of each layer are those of the manifest; the input of the first has no gradient."""
    first, second = (part.predicted_bytes(width, torch.float64) for width in (6, 5))
    sent = {name: (layer.forward, layer.backward) for name, layer in part.traffic.items()}
    assert sent == {"layers.0": (first[0], 0), "layers.1": second}
