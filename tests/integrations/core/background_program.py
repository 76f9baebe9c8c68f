"""A process with an empty cache and ``GSB_COMPILE=background``: ``python -m tests.integrations.core.background_program
FRAMEWORK SIZE``. Prints a line of JSON: what its steps were, and how far they are from the framework's own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import default
from gnn_sparse_backend.compiler.cache.background import BACKGROUND

SIZES = {"small": (100, 600, 8), "large": (6000, 60_000, 48)}
"""Nodes, edges and features: of few edges, and of many."""


def of_pyg(nodes: int, edges: int, features: int) -> tuple[torch.nn.Module, tuple]:
    from torch_geometric.nn import GCN

    index = torch.randint(nodes, (2, edges))
    return GCN(features, features, 2, dropout=0.5), (torch.randn(nodes, features), index)


def of_dgl(nodes: int, edges: int, features: int) -> tuple[torch.nn.Module, tuple]:
    import dgl
    from dgl.nn.pytorch import GATConv

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([GATConv(features, features, 1, attn_drop=0.3) for _ in range(2)])

        def forward(self, x: Tensor, graph) -> Tensor:
            for layer in self.layers:
                x = layer(graph, x).flatten(1)
            return x

    graph = dgl.add_self_loop(dgl.graph((torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,)))))
    return Model(), (torch.randn(graph.num_nodes(), features), graph)


MODELS: dict[str, Callable[..., tuple[torch.nn.Module, tuple]]] = {"pyg": of_pyg, "dgl": of_dgl}


def step(model: torch.nn.Module, inputs: tuple) -> list[Tensor]:
    """The output and the gradients of a step, whose random numbers are always those."""
    torch.manual_seed(7)
    model.zero_grad()
    out = model(*inputs)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return [out.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


def counts() -> dict[str, int]:
    """Calls that ran here, and that were left for each reason, since the last time."""
    found = {"ours": 0}
    for row in gsb.status().rows:
        if row.framework != "torch":
            found["ours"] += row.ours
            for reason, count in row.fallbacks.items():
                found[reason] = found.get(reason, 0) + count
    gsb.integrations.reset_status()
    return found


def distance(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference relative to the largest number."""
    return max(float((x - y).abs().max() / (y.abs().max() + 1e-12)) for x, y in zip(found, expected, strict=True))


def main(framework: str, size: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model, inputs = MODELS[framework](*SIZES[size])
    expected = step(model, inputs)
    gsb.enable(framework)
    told = []
    for _ in range(4):
        compiled = default.stats().compiles
        found = step(model, inputs)
        told.append({"counts": counts(), "distance": distance(found, expected)})
        told[-1]["compiled here"] = default.stats().compiles - compiled if not BACKGROUND.busy else None
        gsb.wait_for_kernels(timeout=120)
    told[0]["imported"] = sorted({"tvm"} & set(sys.modules))
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
