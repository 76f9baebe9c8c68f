"""Adjacencies that are no plain tensors, and several edge types at once, under torch.compile while PyG is enabled: they
run what they run in eager programs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, HeteroConv, SAGEConv
from torch_geometric.utils import spmm

import gnn_sparse_backend as gsb
from tests.integrations.pyg.features import EdgeIndex
from tests.integrations.traced.programs import VERSION
from tests.integrations.traced.test_layers import EDGES, NODES, WIDTH, Recorder, drawn, outcome


def edge_index(order: str) -> EdgeIndex:
    return EdgeIndex(drawn()["edges"], sparse_size=(NODES, NODES)).sort_by(order).values


def matrix(layout: str) -> torch.Tensor:
    made = torch.sparse_coo_tensor(drawn()["edges"].flip(0), torch.ones(EDGES), (NODES, NODES)).coalesce()
    return made if layout == "coo" else made.to_sparse_csr() if layout == "csr" else made.to_sparse_csc()


def check_compiled(layer, given: dict, **kwargs) -> dict[str, int]:
    """A layer compiled gives what it gives, and the same gradients; what ran here. What fell back did in the eager
    program as well."""
    torch.manual_seed(0)
    layer = layer() if not isinstance(layer, nn.Module) else layer
    expected = outcome(copy.deepcopy(layer), (), given)
    gsb.enable("pyg")
    outcome(copy.deepcopy(layer), (), given)
    eager = gsb.status().to_dict()["calls"]["pyg"]
    gsb.integrations.reset_status()
    found = outcome(torch.compile(layer, backend=Recorder(), **kwargs), (), given)
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)
    calls = gsb.status().to_dict()["calls"]
    for framework, counted in calls.items():
        for name, each in counted.items():
            assert set(each["fallbacks"]) <= set(eager.get(name, {}).get("fallbacks", ())), (framework, name, each)
    return {name: each["ours"] for name, each in calls["pyg"].items() if each["ours"]}


class Product(nn.Module):
    """reduce, transpose: as of ``EdgeIndex.matmul``; None for that of ``spmm``."""

    def __init__(self, reduce: str, transpose: bool | None = None):
        super().__init__()
        self.reduce, self.transpose = reduce, transpose

    def forward(self, x, edges):
        x = x * 2.0
        if self.transpose is None:
            return spmm(edges, x, self.reduce).relu()
        return edges.matmul(x, reduce=self.reduce, transpose=self.transpose).relu()


@pytest.mark.skipif(VERSION < (2, 8), reason="PyTorch 2.4 fails to trace products of an EdgeIndex, with PyG alone too")
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("transpose", [False, True])
def test_matmul_of_an_edge_index(reduce, transpose):
    given = drawn() | {"edges": edge_index("col" if transpose else "row")}
    assert check_compiled(Product(reduce, transpose), given) == {f"matmul.{reduce}": 1}


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("edges", ["coo", "csr", "csc", "row"])
def test_spmm(reduce, edges):
    given = drawn() | {"edges": edge_index(edges) if edges == "row" else matrix(edges)}
    assert check_compiled(Product(reduce), given) == {f"{'matmul' if edges == 'row' else 'spmm'}.{reduce}": 1}


@pytest.mark.parametrize(
    "layer, expected",
    [
        (lambda: SAGEConv(WIDTH, 4), "copy.mean"),
        (lambda: GCNConv(WIDTH, 4), "mul.sum"),
        (lambda: GraphConv(WIDTH, 4, aggr="mean"), "matmul.mean"),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_layers_on_an_edge_index(layer, expected, dynamic):
    found = check_compiled(layer, drawn() | {"edges": edge_index("col")}, dynamic=dynamic)
    assert found == {expected: 1}


@pytest.mark.parametrize("layer", [lambda: GCNConv(WIDTH, 4), lambda: GINConv(nn.Linear(WIDTH, 4))])
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_layers_on_a_sparse_matrix(layer, layout):
    assert check_compiled(layer, drawn() | {"edges": matrix(layout)}) == {"spmm.sum": 1}


class Hetero(nn.Module):
    """Three edge types between two node types, the second of which has features of its own."""

    def __init__(self, make, aggr: str = "sum"):
        super().__init__()
        gen = torch.Generator().manual_seed(4)
        self.other = torch.randn(NODES + 3, WIDTH, generator=gen)
        self.between = torch.randint(NODES, (2, 90), generator=gen)
        kinds = ("a", "to", "b"), ("b", "of", "a"), ("a", "is", "a")
        self.conv = HeteroConv({kind: make() for kind in kinds}, aggr=aggr)

    def forward(self, x, edges):
        x = {"a": x, "b": self.other}
        edges = {("a", "to", "b"): self.between, ("b", "of", "a"): self.between.flip(0), ("a", "is", "a"): edges}
        return torch.cat([*self.conv(x, edges).values()])


@pytest.mark.slow
@pytest.mark.parametrize(
    "make, aggr, expected",
    [
        (lambda: SAGEConv(WIDTH, 4), "sum", "copy.mean"),
        (lambda: GraphConv(WIDTH, 4), "mean", "copy.sum"),
        (lambda: SAGEConv(WIDTH, 4, aggr="max"), "max", "copy.max"),
        (lambda: GATConv(WIDTH, 4, add_self_loops=False), "sum", "attention"),
    ],
)
def test_every_edge_type_has_its_kernel(make, aggr, expected):
    assert check_compiled(lambda: Hetero(make, aggr), drawn(), fullgraph=True, dynamic=True) == {expected: 3}
