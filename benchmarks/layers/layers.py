"""DGL's and PyG's own layers on one graph, with the same parameters where the layers are the same operator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.support.graphs import BenchmarkGraph

# What the parameters of the attention layers mean, for both frameworks. DGL's transformer layer has one projection
# for query, key and value; PyG's three are then given the same values.
_ROLES = {
    ("dgl", "gat"): {"fc.weight": "value", "attn_l": "source score", "attn_r": "destination score"},
    ("pyg", "gat"): {"lin.weight": "value", "att_src": "source score", "att_dst": "destination score"},
    ("dgl", "gatv2"): {"fc_src.weight": "value", "fc_dst.weight": "destination", "attn": "score"},
    ("pyg", "gatv2"): {"lin_l.weight": "value", "lin_r.weight": "destination", "att": "score"},
    ("dgl", "transformer"): {"fc.weight": "value"},
    ("pyg", "transformer"): {"lin_key.weight": "value", "lin_query.weight": "value", "lin_value.weight": "value"},
}
_ALL_ROLES = sorted({role for roles in _ROLES.values() for role in roles.values()})


def _dgl_layer(kind: str, features: int, heads: int, width: int, plain: bool) -> nn.Module:
    from dgl import nn as layers

    out = heads * width
    zero_degree = {"allow_zero_in_degree": True}
    bias = {"bias": False} if plain else {}
    return {
        "gat": lambda: layers.GATConv(features, width, heads, **zero_degree, **bias),
        "gatv2": lambda: layers.GATv2Conv(features, width, heads, **zero_degree, **bias),
        "transformer": lambda: layers.DotGatConv(features, width, heads, **zero_degree),
        "sage": lambda: layers.SAGEConv(features, out, "mean", **bias),
        "gcn": lambda: layers.GraphConv(features, out, **zero_degree, **bias),
    }[kind]()


def _pyg_layer(kind: str, features: int, heads: int, width: int, plain: bool) -> nn.Module:
    from torch_geometric import nn as layers

    out = heads * width
    bias = {"bias": False} if plain else {}
    loops = {"add_self_loops": False} if plain else {}
    return {
        "gat": lambda: layers.GATConv(features, width, heads, **bias, **loops),
        "gatv2": lambda: layers.GATv2Conv(features, width, heads, **bias, **loops),
        "transformer": lambda: layers.TransformerConv(features, width, heads, root_weight=False, **bias),
        "sage": lambda: layers.SAGEConv(features, out, **bias),
        "gcn": lambda: layers.GCNConv(features, out, **bias, **loops),
    }[kind]()


def _fill(parameters: dict[str, nn.Parameter], roles: dict[str, str], seed: int) -> None:
    """Set the parameters to normal values of their roles."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            generator = torch.Generator().manual_seed(seed + 1 + _ALL_ROLES.index(roles[name]))
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)


class LayerStep:
    """A layer of ``framework`` ("dgl", "pyg") on a graph, from ``features`` inputs to ``heads`` times ``width``
    outputs.

    kind: "gat", "gatv2", "transformer" (dot product, no skip connection), "sage" (mean) or "gcn". plain: no bias, no
    self loops of the layer's own, and parameters by their role, so that the layers of both frameworks compute the
    same (attention layers alone). Otherwise the layer is as its framework makes it by default.

    The graph is as its framework makes it by default, too: int64 indices; PyG's edges sorted by destination.
    x: (nodes, features) and the cotangent (nodes, heads * width) are normal, from the seed. All is in ``dtype``, on
    ``device``.
    """

    def __init__(
        self,
        framework: str,
        kind: str,
        graph: BenchmarkGraph,
        *,
        features: int,
        heads: int,
        width: int,
        plain: bool = True,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        torch.manual_seed(seed)
        make = {"dgl": _dgl_layer, "pyg": _pyg_layer}[framework]
        self._module = make(kind, features, heads, width, plain).to(device, dtype)
        parameters = dict(self._module.named_parameters())
        if plain:
            roles = _ROLES[framework, kind]
            # PyG's transformer layer has the parameters of its skip connection even without one
            parameters = {name: parameters[name] for name in roles}
            _fill(parameters, roles, seed)
        generator = torch.Generator().manual_seed(seed)
        nodes = graph.shape[0]
        self._x = torch.randn(nodes, features, generator=generator).to(device, dtype).requires_grad_()
        self._cotangent = torch.randn(nodes, heads * width, generator=generator).to(device, dtype)
        self._forward: Callable[[], Tensor] = self._bind(framework, graph)
        self._leaves = (self._x, *parameters.values())
        self.results = ("y", "dx", *(f"d {name}" for name in parameters))

    def _bind(self, framework: str, graph: BenchmarkGraph) -> Callable[[], Tensor]:
        module, x, edges = self._module, self._x, torch.from_numpy(graph.edge_index).to(self._x.device)
        if framework == "pyg":
            return lambda: module(x, edges)
        import dgl

        structure = dgl.graph((edges[0], edges[1]), num_nodes=graph.shape[0])
        return lambda: module(structure, x)

    def forward(self) -> Tensor:
        """The layer's output, (nodes, heads * width)."""
        return self._forward().flatten(1)

    @torch.no_grad()
    def inference(self) -> Tensor:
        """The same, without a graph of derivatives."""
        return self.forward()

    def step(self) -> tuple[Tensor, ...]:
        """Forward, and backward from the cotangent: the values named in ``results``. No optimiser."""
        y = self.forward()
        return (y.detach(), *torch.autograd.grad(y, self._leaves, self._cotangent))


# Float32 sums of a few thousand terms in another order differ by less; a wrong entry by more.
TOLERANCE = 1e-3


def disagreement(names: tuple[str, ...], given: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> str | None:
    """How ``given`` differs from ``expected`` by more than rounding; None if it does not.

    Every entry may be off by ``TOLERANCE`` times the root mean square of its tensor.
    """
    for name, ours, theirs in zip(names, given, expected):
        if ours.shape != theirs.shape:
            return f"{name} has shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}"
        allowed = TOLERANCE * theirs.double().square().mean().sqrt()
        # written so that NaN is wrong
        wrong = ~((ours - theirs).abs() <= allowed)
        if wrong.any():
            worst = (ours - theirs).abs().max()
            return (
                f"{name} is off in {int(wrong.sum())} of {wrong.numel()} entries, by up to {worst:.1e}, "
                f"allowed {allowed:.1e}"
            )
    return None


# Relative to the norm of the expected gradient: sums in another order are off by a tenth of that. Where the input of a
# ReLU is zero up to rounding, two right answers differ in single entries, so gradients are not compared entry by entry.
GRADIENT_TOLERANCE = 1e-3


def gradient_disagreement(names, given, expected, tolerance: float = GRADIENT_TOLERANCE) -> str | None:
    """How gradients, or results in half types, differ by more than rounding, by the norms of whole tensors; None if
    they do not.
    """
    for name, ours, theirs in zip(names, given, expected):
        if ours.shape != theirs.shape:
            return f"{name} has shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}"
        distance = torch.linalg.vector_norm(ours - theirs) / torch.linalg.vector_norm(theirs)
        if not distance <= tolerance:
            return f"{name} is off by {distance:.1e} of its norm, allowed {tolerance:.0e}"
    return None
