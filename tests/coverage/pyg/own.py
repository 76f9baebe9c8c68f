"""Layers that users write on ``MessagePassing``: everything that its interface allows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, SAGEConv, aggr
from torch_geometric.utils import scatter, softmax, spmm

from tests.coverage.pyg.graphs import (
    EDGES,
    LINKS,
    NODES,
    SOURCES,
    TARGETS,
    adjacency,
    bipartite,
    by_target,
    isolated,
    pairs,
)
from tests.coverage.report import Bound, Case, features

IN, OUT, HEADS = 6, 4, 2
X, W, E = features(NODES, IN), features(EDGES, seed=1).abs() + 0.5, features(EDGES, IN, seed=2)
PAIR = {"x": features(SOURCES, IN), "y": features(TARGETS, IN, seed=1)}


class Layer(MessagePassing):
    """Passes ``function(x_i, x_j, w)``."""

    def __init__(self, function: Callable, **keywords) -> None:
        super().__init__(**keywords)
        self.function = function

    def forward(self, x, edge_index: Tensor, w: Tensor | None = None, size=None) -> Tensor:
        return self.propagate(edge_index, x=x, w=w, size=size)

    def message(self, x_i: Tensor, x_j: Tensor, w: Tensor | None) -> Tensor:
        return self.function(x_i, x_j, w)


class Copy(MessagePassing):
    """The message of ``MessagePassing`` itself."""

    def forward(self, x, edge_index: Tensor, size=None) -> Tensor:
        return self.propagate(edge_index, x=x, size=size)


class Fused(MessagePassing):
    """Offers a fused path for sparse matrices."""

    def forward(self, x: Tensor, edge_index: Tensor, w: Tensor | None = None) -> Tensor:
        return self.propagate(edge_index, x=x, w=w)

    def message(self, x_j: Tensor, w: Tensor | None) -> Tensor:
        return x_j if w is None else w.view(-1, 1) * x_j

    def message_and_aggregate(self, adj_t: Tensor, x: Tensor) -> Tensor:
        return spmm(adj_t, x, reduce=self.aggr)


class Differences(MessagePassing):
    """Features of edges first, then their sum."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        e = self.edge_updater(edge_index, x=x)
        return self.propagate(edge_index, e=e, size=(x.size(0), x.size(0)))

    def edge_update(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return x_j - x_i

    def message(self, e: Tensor) -> Tensor:
        return e


class Attention(MessagePassing):
    """Scores of edges from ``edge_updater``, normalised over each target."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        heads = x.view(-1, HEADS, IN // HEADS)
        alpha = self.edge_updater(edge_index, alpha=(heads.sum(-1), heads.mean(-1)))
        return self.propagate(edge_index, x=heads, alpha=alpha).flatten(1)

    def edge_update(
        self, alpha_j: Tensor, alpha_i: Tensor, index: Tensor, ptr: Tensor | None, dim_size: int | None
    ) -> Tensor:
        return softmax(nn.functional.leaky_relu(alpha_i + alpha_j), index, ptr, dim_size)

    def message(self, x_j: Tensor, alpha: Tensor) -> Tensor:
        return alpha.unsqueeze(-1) * x_j


class Two(MessagePassing):
    """Two messages, two reductions, two outputs."""

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return self.propagate(edge_index, x=x, size=(NODES, NODES))

    def message(self, x_j: Tensor) -> tuple[Tensor, Tensor]:
        return x_j, x_j

    def aggregate(self, inputs: tuple[Tensor, Tensor], index: Tensor, dim_size: int | None) -> tuple[Tensor, Tensor]:
        return scatter(inputs[0], index, 0, dim_size, "sum"), scatter(inputs[1], index, 0, dim_size, "max")

    def update(self, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return inputs


class Special(MessagePassing):
    """Takes every argument that ``propagate`` fills in by itself, and a default."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(
        self,
        x_j: Tensor,
        edge_index_i: Tensor,
        edge_index_j: Tensor,
        size_i: int,
        size_j: int,
        edge_index: Tensor,
        scale: float = 0.5,
    ) -> Tensor:
        return x_j * (scale * edge_index_i / size_i + edge_index_j / size_j + edge_index[0]).unsqueeze(-1)

    def update(self, out: Tensor, x: Tensor) -> Tensor:
        return out + x


class Degrees(MessagePassing):
    """Reads the index in ``aggregate`` and normalises there."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def aggregate(self, inputs: Tensor, index: Tensor, ptr: Tensor | None, dim_size: int | None) -> Tensor:
        count = scatter(torch.ones_like(index), index, 0, dim_size, "sum").clamp(min=1)
        total = super().aggregate(inputs, index, ptr, dim_size)
        return total / count.view(-1, 1)


class InPlace(MessagePassing):
    """Writes into the message, and into the features after they were used."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = x * 1
        out = self.propagate(edge_index, x=h)
        h.add_(out)
        return h

    def message(self, x_j: Tensor) -> Tensor:
        x_j *= 2
        return x_j


class Hooked(nn.Module):
    """A layer with a hook; the hook is given what it would be without the backend."""

    def __init__(self, layer: MessagePassing, place: str, hook: Callable) -> None:
        super().__init__()
        self.layer, self.seen = layer, []

        def record(module: nn.Module, *arguments):
            self.seen.append(flat(arguments))
            return hook(module, *arguments)

        getattr(layer, f"register_{place}_hook")(record)

    def forward(self, *arguments) -> tuple[Tensor, ...]:
        self.seen.clear()
        out = self.layer(*arguments)
        return (out, *(each.detach().double() for parts in self.seen for each in parts))


def flat(value) -> list[Tensor]:
    """The floating tensors in nested containers."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() and value.layout is torch.strided else []
    if isinstance(value, dict):
        value = tuple(value.values())
    return [each for item in value for each in flat(item)] if isinstance(value, (tuple, list)) else []


def own(
    name: str,
    make: Callable[[], nn.Module],
    call: Callable = lambda m: m.layer(m.x, isolated()),
    note: str = "",
    dtypes: tuple[torch.dtype, ...] = (torch.float64,),
    **inputs: Tensor,
) -> Case:
    return Case(f"own layer, {name}", lambda: Bound(make(), **(inputs or {"x": X})), call, note, dtypes)


def _messages() -> list[Case]:
    """What users make of the features of both ends and of the edge."""
    column, full = lambda w: w.view(-1, 1), lambda m: m.layer(m.x, isolated(), m.w)
    kinds = {
        "sum of ends": (lambda i, j, w: i + j, None),
        "difference": (lambda i, j, w: j - i, None),
        "product": (lambda i, j, w: i * j, None),
        "quotient": (lambda i, j, w: j / (i.abs() + 1), None),
        "target": (lambda i, j, w: i, None),
        "dot product": (lambda i, j, w: (i * j).sum(-1, keepdim=True) * j, None),
        "concatenation": (lambda i, j, w: torch.cat([i, j], -1), None),
        "relu": (lambda i, j, w: j.relu(), None),
        "sum with edge": (lambda i, j, w: (j + w).relu(), E),
        "product with edge": (lambda i, j, w: j * w, E),
        "edge weight twice": (lambda i, j, w: column(w) * (column(w) * j), W),
        "scaled": (lambda i, j, w: 0.5 * j, None),
        "divided by edge": (lambda i, j, w: j / column(w), W),
        "negative": (lambda i, j, w: -(column(w) * j), W),
        "gated": (lambda i, j, w: torch.sigmoid(i + j) * j, None),
        "edge alone": (lambda i, j, w: column(w).expand(-1, 3), W),
        "square": (lambda i, j, w: j * j, None),
        "leaky": (lambda i, j, w: nn.functional.leaky_relu(i + j, 0.2), None),
        "exponential": (lambda i, j, w: (j - i).exp(), None),
        "distance": (lambda i, j, w: (i - j).square().sum(-1, keepdim=True), None),
        "index": (lambda i, j, w: j[:, [5, 0, 1]], None),
        "cast": (lambda i, j, w: j.float().double(), None),
        "detached": (lambda i, j, w: j.detach() + i, None),
        "row by row": (lambda i, j, w: torch.stack(list(j)), None),
    }
    cases = []
    for name, (function, edge) in kinds.items():
        inputs = {"x": X} if edge is None else {"x": X, "w": edge}
        for aggregation in ("sum", "max") if name in ("sum of ends", "product with edge", "scaled") else ("sum",):
            cases.append(
                own(
                    f"{name}, {aggregation}",
                    lambda function=function, aggregation=aggregation: Layer(function, aggr=aggregation),
                    full if edge is not None else (lambda m: m.layer(m.x, isolated())),
                    **inputs,
                )
            )
    return cases


def _interface() -> list[Case]:
    halve = lambda module, inputs, out: out * 0.5
    keep = lambda module, *rest: None
    cases = [
        own(f"hook on {place}", lambda place=place: Hooked(SAGEConv(IN, OUT), place, keep))
        for place in (
            "propagate_forward_pre",
            "propagate_forward",
            "message_forward_pre",
            "message_forward",
            "aggregate_forward_pre",
            "aggregate_forward",
        )
    ]
    modules = {
        "mean and maximum": lambda: aggr.MultiAggregation(["mean", "max"]),
        "softmax": aggr.SoftmaxAggregation,
        "power mean": aggr.PowerMeanAggregation,
        "sum": aggr.SumAggregation,
        "attention": lambda: aggr.AttentionalAggregation(nn.Linear(IN, 1)),
    }
    cases += [own(f"aggregation module, {name}", lambda make=make: Copy(aggr=make())) for name, make in modules.items()]
    cases += [
        own(
            f"{name}, matrix {layout}",
            make,
            lambda m, layout=layout: m.layer(m.x, adjacency(layout, torch.ones(EDGES, dtype=m.x.dtype))),
        )
        for name, make, layout in (
            ("copy", lambda: Copy(aggr="mean"), "csr"),
            ("fused", lambda: Fused(aggr="sum"), "csr"),
            ("ends", lambda: Layer(lambda i, j, w: i * j), "csr"),
            ("not fused", unfused, "csr"),
            ("not fused", unfused, "coo"),
        )
    ]
    return cases + [
        own("hook that changes the message", lambda: Hooked(SAGEConv(IN, OUT), "message_forward", halve)),
        own("hook that changes the output", lambda: Hooked(SAGEConv(IN, OUT), "propagate_forward", halve)),
        own("hook on edge_update", lambda: Hooked(Differences(), "edge_update_forward", halve)),
        own(
            "hook on the fused path",
            lambda: Hooked(Fused(), "message_and_aggregate_forward", halve),
            lambda m: m.layer(m.x, adjacency("csr", torch.ones(EDGES, dtype=m.x.dtype))),
        ),
        own("hook on gradients of the aggregation", hooked_backward),
        own("int32 index, cast by a hook", cast_by_hook, lambda m: m.layer(m.x, isolated().int())),
        own("edge_updater", Differences),
        own("edge_updater, attention", lambda: Attention(node_dim=0)),
        own("two messages", Two),
        own("special arguments", Special),
        own("own aggregate", Degrees),
        own("written in place", InPlace),
        own("no aggregation module", edges_out),
        own("sorted by target", lambda: Copy(aggr="mean"), lambda m: m.layer(m.x, by_target())),
        own(
            "pair of features", lambda: Layer(lambda i, j, w: i + j), lambda m: m.layer((m.x, m.y), bipartite()), **PAIR
        ),
        own(
            "pair without targets",
            lambda: Copy(aggr="max"),
            lambda m: m.layer((m.x, None), bipartite(), size=(SOURCES, TARGETS)),
            x=PAIR["x"],
        ),
        own(
            "more targets than features",
            lambda: Copy(aggr="sum"),
            lambda m: m.layer((m.x, None), bipartite(), size=(SOURCES, TARGETS + 3)),
            x=PAIR["x"],
        ),
        own(
            "target to source, pair",
            lambda: Copy(aggr="mean", flow="target_to_source"),
            lambda m: m.layer((m.x, m.y), pairs(SOURCES, TARGETS, LINKS, 3)),
            **PAIR,
        ),
        own("batch of features", lambda: Copy(aggr="max"), x=features(3, NODES, IN)),
        own("nodes in the middle", lambda: Copy(aggr="sum", node_dim=1), x=features(3, NODES, IN)),
        own("heads", lambda: Copy(aggr="mean", node_dim=0), x=features(NODES, HEADS, OUT)),
        own("decomposed", lambda: Copy(aggr="sum", decomposed_layers=2)),
        own("decomposed, maximum", lambda: Copy(aggr="max", decomposed_layers=3)),
        own("columns of a matrix", lambda: Copy(aggr="mean"), lambda m: m.layer(m.x[:, ::2], isolated())),
        own("same features twice", lambda: Layer(lambda i, j, w: i + j), lambda m: m.layer((m.x, m.x), isolated())),
    ]


def unfused() -> MessagePassing:
    layer = Fused(aggr="sum")
    layer.fuse = False
    return layer


def cast_by_hook() -> MessagePassing:
    layer = Copy()

    def cast(module: nn.Module, inputs: tuple) -> tuple:
        return ({**inputs[-1], "index": inputs[-1]["index"].long()},)

    layer.register_aggregate_forward_pre_hook(cast)
    return layer


def hooked_backward() -> MessagePassing:
    layer = SAGEConv(IN, OUT)
    layer.aggr_module.register_full_backward_hook(lambda module, grad_in, grad_out: tuple(2 * each for each in grad_in))
    return layer


def edges_out() -> MessagePassing:
    class Edges(MessagePassing):
        """Returns the messages themselves."""

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
            return x_i * x_j

        def aggregate(self, inputs: Tensor) -> Tensor:
            return inputs

    return Edges(aggr=None)


CASES = _messages() + _interface()
