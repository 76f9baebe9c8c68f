"""Layers and models of PyG on several types of nodes and edges at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn as gnn
from torch import Tensor, nn

from tests.coverage.pyg.graphs import METADATA, TYPED, TYPED_EDGES, adjacency, typed
from tests.coverage.report import Bound, Case, features

IN, OUT, HEADS = 6, 4, 2
INPUTS = {name: features(number, IN, seed=seed) for seed, (name, number) in enumerate(TYPED.items())}
UNLIKE = {"a": features(TYPED["a"], IN), "b": features(TYPED["b"], 5)}  # one width per type


def flat(parts: dict) -> tuple[Tensor, ...]:
    return tuple(parts[key] for key in sorted(parts) if parts[key] is not None)


def nodes(m: nn.Module) -> dict[str, Tensor]:
    return {name: getattr(m, name) for name in TYPED}


def matrices() -> dict[tuple[str, str, str], Tensor]:
    """`typed` as sparse matrices with targets as rows."""
    return {
        kind: adjacency("csr", torch.ones(index.shape[1]), index, (TYPED[kind[2]], TYPED[kind[0]]))
        for kind, index in typed().items()
    }


def case(
    name: str,
    layer: Callable[[], nn.Module],
    call: Callable = lambda m: flat(m.layer(nodes(m), typed())),
    inputs: dict[str, Tensor] = INPUTS,
    **keywords,
) -> Case:
    return Case(name, lambda: Bound(layer(), **inputs), call, **keywords)


def convolutions(make: Callable[[tuple[int, int]], nn.Module], widths: dict[str, int]) -> dict:
    return {kind: make((widths[kind[0]], widths[kind[2]])) for kind in TYPED_EDGES}


SAME, OTHER = {"a": IN, "b": IN}, {"a": IN, "b": 5}


class Two(nn.Module):
    """What ``to_hetero`` copies for every relation."""

    def __init__(self, make: Callable[[object, int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = make((-1, -1), OUT), make((-1, -1), OUT)
        self.root = gnn.Linear(-1, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu() + self.root(x)
        return self.second(x, edge_index)


class Plain(nn.Module):
    """What ``to_hetero_with_bases`` copies for every basis: one width for all types."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Edged(nn.Module):
    """Features on the edges, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.GATv2Conv((-1, -1), OUT, HEADS, add_self_loops=False, edge_dim=3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.first(x, edge_index, edge_attr)


def gat(width, out: int) -> nn.Module:
    return gnn.GATConv(width, out, HEADS, concat=False, add_self_loops=False)


def with_edges(m: nn.Module) -> tuple[Tensor, ...]:
    attributes = {kind: features(number, 3, seed=number).to(m.a) for kind, number in TYPED_EDGES.items()}
    return flat(m.layer(nodes(m), typed(), attributes))


def _layers() -> list[Case]:
    sage = lambda width: gnn.SAGEConv(width, OUT)
    cases = [
        case(f"HeteroConv, {aggr}", lambda aggr=aggr: gnn.HeteroConv(convolutions(sage, OTHER), aggr), inputs=UNLIKE)
        for aggr in ("sum", "mean", "max", "min", "cat", None)
    ]
    return cases + [
        case("HeteroConv", lambda: gnn.HeteroConv(convolutions(sage, SAME))),
        case(
            "HeteroConv, attention",
            lambda: gnn.HeteroConv(convolutions(lambda width: gat(width, OUT), OTHER)),
            inputs=UNLIKE,
        ),
        case(
            "HeteroConv, matrices",
            lambda: gnn.HeteroConv(convolutions(sage, SAME)),
            lambda m: flat(m.layer(nodes(m), {kind: each.to(m.a.dtype) for kind, each in matrices().items()})),
        ),
        case("HGTConv", lambda: gnn.HGTConv(IN, OUT, METADATA, HEADS)),
        case("HGTConv, unlike widths", lambda: gnn.HGTConv(OTHER, OUT, METADATA, 1), inputs=UNLIKE),
        case("HANConv", lambda: gnn.HANConv(IN, OUT, METADATA, HEADS)),
        case(
            "HANConv, unlike widths, dropout",
            lambda: gnn.HANConv(OTHER, OUT, METADATA, HEADS, dropout=0.3),
            lambda m: (lambda out: flat(out[0]) + flat(out[1]))(m.layer(nodes(m), typed(), True)),
            UNLIKE,
        ),
    ]


def _transformed() -> list[Case]:
    sage = lambda width, out: gnn.SAGEConv(width, out)
    cases = [
        case(f"to_hetero, SAGEConv, {aggr}", lambda aggr=aggr: gnn.to_hetero(Two(sage), METADATA, aggr), inputs=UNLIKE)
        for aggr in ("sum", "max", "mean")
    ]
    return cases + [
        case("to_hetero, GATConv", lambda: gnn.to_hetero(Two(gat), METADATA), inputs=UNLIKE),
        case("to_hetero, edge features", lambda: gnn.to_hetero(Edged(), METADATA), with_edges, UNLIKE),
        case("to_hetero, model", lambda: gnn.to_hetero(gnn.GraphSAGE((-1, -1), 8, 2, OUT), METADATA), inputs=UNLIKE),
        case(
            "to_hetero_with_bases, SAGEConv",
            lambda: gnn.to_hetero_with_bases(
                Plain(gnn.SAGEConv((IN, IN), OUT), gnn.SAGEConv((OUT, OUT), OUT)), METADATA, 3, {"x": IN}
            ),
            inputs=UNLIKE,
        ),
        case(
            "to_hetero_with_bases, GraphConv, max",
            lambda: gnn.to_hetero_with_bases(
                Plain(gnn.GraphConv((IN, IN), OUT), gnn.GraphConv((OUT, OUT), OUT, "max")), METADATA, 2, {"x": IN}
            ),
            inputs=UNLIKE,
        ),
        case(
            "HeteroDictLinear",
            lambda: gnn.HeteroDictLinear(OTHER, OUT),
            lambda m: flat(m.layer(nodes(m))),
            UNLIKE,
            note="dense layers",
        ),
    ]


CASES = _layers() + _transformed()
