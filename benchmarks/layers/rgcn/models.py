"""The two-layer relational network of Schlichtkrull et al. (2018) as each contender's own layers, with the same
parameters.

Layer: y = sum over relations r of the mean of x[j] over the edges of r into a node, times W[r]; plus x[i] times the
matrix of the self loop, plus a bias. ReLU stands between the layers. All widths are F; matrices are full.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

import gnn_sparse_backend as gsb
from benchmarks.layers.contenders import BACKEND
from benchmarks.layers.rgcn.graphs import RelationalGraph

LAYERS = 2
NOTES = {
    "dgl": "DGL RelGraphConv, edges taken as unsorted",
    "dgl-presorted": "DGL RelGraphConv, edges taken as sorted by relation",
    "dgl-hetero": "DGL HeteroGraphConv of a GraphConv for each relation",
    "pyg": "PyG RGCNConv",
    "pyg-fast": "PyG FastRGCNConv",
}
PEERS = tuple(NOTES)
TORCH = "torch"
"""PyTorch's own gather, matrix product and scatter, relation by relation: no framework, and a reference in float64."""


def framework_of(contender: str) -> str:
    return contender.removesuffix(BACKEND).split("-")[0]


def context_of(contender: str) -> Callable[[], AbstractContextManager]:
    """What switches the backend on for a contender that has it, and does nothing for the others."""
    framework = framework_of(contender)
    return (lambda: gsb.enabled(framework)) if contender.endswith(BACKEND) else nullcontext


def parameters(relations: int, features: int, seed: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For each layer (R, F, F), (F, F) and (F,): the matrices of the relations, of the self loop, and the bias."""
    generator = torch.Generator().manual_seed(seed)
    scale = features**-0.5
    return [
        tuple(
            scale * torch.randn(shape, generator=generator)
            for shape in ((relations, features, features), (features, features), (features,))
        )
        for _ in range(LAYERS)
    ]


class Network:
    """Two layers of a contender on a graph. x: (nodes, F) and the cotangent (nodes, F) are normal, from the seed, as
    the parameters are.

    dtype: of all values, which are rounded to ``rounded`` first, by default to the same.

    ``inference()`` and ``step()`` give tuples of tensors: the output; and the output with the gradients of x and of all
    parameters, those of the relations' matrices as one (R, F, F) for each layer. No optimiser, no loss.
    """

    results = ("y", "dx", *(f"d{name}{layer + 1}" for layer in range(LAYERS) for name in ("W", "W0", "b")))

    def __init__(
        self,
        contender: str,
        graph: RelationalGraph,
        features: int,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        rounded: torch.dtype | None = None,
    ) -> None:
        def there(x: Tensor) -> Tensor:
            return x.to(device, rounded or dtype).to(dtype)

        peer = contender.removesuffix(BACKEND)
        values = [tuple(map(there, layer)) for layer in parameters(graph.num_relations, features, seed)]
        make = {
            "dgl": _rel_graph_conv,
            "dgl-presorted": _rel_graph_conv,
            "dgl-hetero": _hetero,
            "pyg": _rgcn_conv,
            "pyg-fast": _rgcn_conv,
            TORCH: _gather_and_scatter,
        }[peer]
        structure = _structure(peer, graph, device, dtype)
        self._layers = [make(peer, *values[layer], structure) for layer in range(LAYERS)]
        generator = torch.Generator().manual_seed(seed + 1)
        self._x = there(torch.randn(graph.nodes, features, generator=generator)).requires_grad_()
        self._cotangent = there(torch.randn(graph.nodes, features, generator=generator))
        self._weights = [layer[1] for layer in self._layers]

    def forward(self) -> Tensor:
        x = self._x
        for number, (layer, _) in enumerate(self._layers):
            x = layer(torch.relu(x) if number else x)
        return x

    @torch.no_grad()
    def inference(self) -> tuple[Tensor]:
        return (self.forward(),)

    def step(self) -> tuple[Tensor, ...]:
        y = self.forward()
        leaves = [self._x, *(leaf for relations, *others in self._weights for leaf in (*relations, *others))]
        found = iter(torch.autograd.grad(y, leaves, self._cotangent))
        results = [y.detach(), next(found)]
        for relations, *others in self._weights:
            matrices = [next(found) for _ in relations]
            results += [matrices[0] if len(matrices) == 1 else torch.stack(matrices), *(next(found) for _ in others)]
        return tuple(results)


def _structure(peer: str, graph: RelationalGraph, device: torch.device | str, dtype: torch.dtype):
    """The graph as the framework's users hold it: int64, edges by relation."""
    source, destination, relation = (
        torch.from_numpy(a).to(device) for a in (graph.source, graph.destination, graph.relation)
    )
    if framework_of(peer) == "pyg":
        return torch.stack((source, destination)), relation
    bounds = np.searchsorted(graph.relation, np.arange(graph.num_relations + 1)).tolist()
    norm = torch.from_numpy(graph.norm).to(device, dtype)
    if peer == TORCH:
        return [
            (r, source[a:b], destination[a:b], norm[a:b])
            for r, (a, b) in enumerate(itertools.pairwise(bounds))
            if a < b
        ]
    import dgl

    if peer != "dgl-hetero":
        structure = dgl.graph((source, destination), num_nodes=graph.nodes)
        return structure, relation, norm
    return dgl.heterograph(
        {("n", str(r), "n"): (source[a:b], destination[a:b]) for r, (a, b) in enumerate(itertools.pairwise(bounds))},
        num_nodes_dict={"n": graph.nodes},
    )


# Each gives (a layer of x, (its relations' matrices, the self loop's, the bias)).


def _rel_graph_conv(peer: str, w: Tensor, loop: Tensor, bias: Tensor, structure):
    from dgl.nn import RelGraphConv

    graph, relation, norm = structure
    layer = RelGraphConv(w.shape[1], w.shape[2], w.shape[0]).to(w.device, w.dtype)
    weights = layer.linear_r.W, layer.loop_weight, layer.h_bias
    _fill(weights, (w, loop, bias))
    sorted_ = peer == "dgl-presorted"
    return lambda x: layer(graph, x, relation, norm, presorted=sorted_), ([weights[0]], *weights[1:])


def _hetero(peer: str, w: Tensor, loop: Tensor, bias: Tensor, structure):
    from dgl.nn import GraphConv, HeteroGraphConv

    layers = {
        str(r): GraphConv(w.shape[1], w.shape[2], norm="right", bias=False, allow_zero_in_degree=True)
        for r in range(len(w))
    }
    layer = HeteroGraphConv(layers, aggregate="sum").to(w.device, w.dtype)
    weights = [each.weight for each in layers.values()]
    _fill(weights, w)
    loop, bias = nn.Parameter(loop.clone()), nn.Parameter(bias.clone())
    return lambda x: layer(structure, {"n": x})["n"] + x @ loop + bias, (weights, loop, bias)


def _rgcn_conv(peer: str, w: Tensor, loop: Tensor, bias: Tensor, structure):
    from torch_geometric.nn import FastRGCNConv, RGCNConv

    layer = (FastRGCNConv if peer == "pyg-fast" else RGCNConv)(w.shape[1], w.shape[2], w.shape[0])
    layer = layer.to(w.device, w.dtype)
    weights = layer.weight, layer.root, layer.bias
    _fill(weights, (w, loop, bias))
    # these layers give float32 for half types
    return lambda x: layer(x, *structure).to(x.dtype), ([weights[0]], *weights[1:])


def _gather_and_scatter(peer: str, w: Tensor, loop: Tensor, bias: Tensor, structure):
    w, loop, bias = (nn.Parameter(each.clone()) for each in (w, loop, bias))

    def layer(x: Tensor) -> Tensor:
        out, matrices = torch.addmm(bias, x, loop), w.unbind()
        for relation, source, destination, norm in structure:
            out.index_add_(0, destination, (x[source] @ matrices[relation]) * norm)
        return out

    return layer, ([w], loop, bias)


def _fill(weights, values) -> None:
    with torch.no_grad():
        for weight, value in zip(weights, values):
            weight.copy_(value)


class Dense(Network):
    """The network without its relations: what no message passing can save."""

    def __init__(self, graph: RelationalGraph, features: int, seed: int = 0) -> None:
        values = parameters(1, features, seed)
        self._layers = [_self_loop(*values[layer][1:]) for layer in range(LAYERS)]
        self._x = torch.randn(graph.nodes, features).requires_grad_()
        self._cotangent = torch.randn(graph.nodes, features)
        self._weights = [layer[1] for layer in self._layers]

    def step(self) -> tuple[Tensor, ...]:
        y = self.forward()
        leaves = [self._x, *(leaf for _, *others in self._weights for leaf in others)]
        return (y.detach(), *torch.autograd.grad(y, leaves, self._cotangent))


def _self_loop(loop: Tensor, bias: Tensor):
    loop, bias = nn.Parameter(loop.clone()), nn.Parameter(bias.clone())
    return lambda x: torch.addmm(bias, x, loop), ([], loop, bias)
