"""Adjacencies of torch-sparse: ``torch_geometric.utils.spmm``, ``torch_sparse.matmul``, and layers that call these."""

import contextlib

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.utils import spmm

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core.graphs import GRAPHS
from tests.covering import covering
from tests.integrations.pyg import torch_sparse as stand_in
from tests.integrations.pyg.pair import NODES, calls, check_pair, edges, features

pytestmark = [pytest.mark.filterwarnings("ignore:.*Sparse"), pytest.mark.filterwarnings("ignore:.*sparse")]
REDUCES = ("sum", "add", "mean", "max", "min")


class Layer(gnn.MessagePassing):
    def __init__(self, torch_sparse, aggr):
        super().__init__(aggr=aggr)
        self.torch_sparse = torch_sparse

    def forward(self, x, adj_t):
        return self.propagate(adj_t, x=x)

    def message_and_aggregate(self, adj_t, x):
        return self.torch_sparse.matmul(adj_t, x, reduce=self.aggr)


LAYERS = {
    "spmm.mean": [lambda sparse: gnn.SAGEConv(5, 4), lambda sparse: Layer(sparse, "mean")],
    "spmm.max": [lambda sparse: gnn.SAGEConv(5, 4, "max")],
    "spmm.min": [lambda sparse: Layer(sparse, "min")],
    "spmm.sum": [
        lambda sparse: gnn.GINConv(nn.Linear(5, 4)),
        lambda sparse: gnn.GraphConv(5, 4),
        lambda sparse: gnn.GCNConv(5, 4, normalize=False),
    ],
    "attention": [lambda sparse: gnn.GATConv(5, 4, heads=2, add_self_loops=False)],
}
"""By what is counted."""


@pytest.fixture
def torch_sparse(monkeypatch):
    for layers in LAYERS.values():
        for make in layers:
            make(None)  # the code that PyG generates for a class is not to know of what stands in
    return stand_in.install(monkeypatch)


def matrix(torch_sparse, name="random", shape=(NODES, NODES), value=None):
    """Rows are destinations. Duplicate edges stay. value: a type, None for no numbers."""
    source, destination = edges(name)
    if value is not None:
        value = torch.rand(source.numel(), dtype=torch.float64, generator=torch.Generator().manual_seed(4)) * 3 + 1
    return torch_sparse.SparseTensor(row=destination % shape[0], col=source % shape[1], value=value, sparse_sizes=shape)


def counted(operator: str, reduce: str) -> dict:
    return {f"{operator}.{'sum' if reduce == 'add' else reduce}": 1}


@pytest.mark.parametrize(
    "reduce, name, shape, value, dtype",
    covering(
        {
            "reduce": list(REDUCES),
            "name": ["random", "large", "duplicates", "hub", "self_loops"],
            "shape": [(NODES, NODES), (9, NODES), (NODES, 4)],
            "value": [None, torch.float64, torch.float32, torch.int64],
            "dtype": [torch.float64, torch.float32],
        }
    ),
)
@pytest.mark.parametrize("equal", [False, True])
def test_spmm(torch_sparse, reduce, name, shape, value, dtype, equal):
    """equal: many products are, of which the first has the gradient of a maximum."""
    adjacency = matrix(torch_sparse, name, shape, value)
    if value is not None:
        adjacency = adjacency.set_value(adjacency.csr()[2].to(value))
    x = features(5, nodes=shape[1], dtype=dtype)
    x = x.detach().round().requires_grad_() if equal else x
    rtol = 1e-10 if dtype is torch.float64 else 1e-5
    assert check_pair(lambda x: spmm(adjacency, x, reduce), x, rtol=rtol) == counted("spmm", reduce)
    assert check_pair(lambda x: torch_sparse.matmul(adjacency, x, reduce), x, rtol=rtol) == counted("spmm", reduce)


@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("function", ["spmm", "matmul"])
def test_gradients_of_the_values(torch_sparse, function, reduce):
    adjacency = matrix(torch_sparse, value=torch.float64)
    value = adjacency.csr()[2].clone().requires_grad_()

    def product(x, value):
        of = spmm if function == "spmm" else torch_sparse.matmul
        return of(adjacency.set_value(value), x, reduce)

    assert check_pair(product, features(4), value) == counted("spmm", reduce)
    x = features(2, nodes=NODES)
    with gsb.enabled("pyg"):
        assert torch.autograd.gradcheck(product, (x, value))


@pytest.mark.parametrize("reduce", REDUCES)
def test_without_entries(torch_sparse, reduce):
    adjacency, x = matrix(torch_sparse, "none"), features(6)
    with gsb.enabled("pyg"):
        out = spmm(adjacency, x, reduce)
        assert torch.equal(out, torch.zeros(NODES, 6, dtype=x.dtype)) and not out.requires_grad
        assert calls() == {}  # nothing is multiplied
        assert torch.equal(torch_sparse.matmul(adjacency, x, reduce), out)
    assert calls() == counted("spmm", reduce)


@pytest.mark.parametrize("special", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_maxima_of_special_values(torch_sparse, reduce, special):
    x = features(4).detach()
    x[::3] = special
    adjacency = matrix(torch_sparse)
    theirs = {f"spmm.{reduce}": {f"a gradient of the {reduce} of NaN or infinities may be asked for": 1}}
    assert check_pair(lambda x: spmm(adjacency, x, reduce), x.requires_grad_(), equal_nan=True) == theirs


@pytest.mark.parametrize("value", [None, torch.float64])
@pytest.mark.parametrize("count, number", [(count, number) for count in LAYERS for number in range(len(LAYERS[count]))])
def test_layers(torch_sparse, count, number, value):
    adjacency = matrix(torch_sparse, value=value)
    assert check_pair(LAYERS[count][number](torch_sparse).double(), features(5), adjacency) == {count: 1}


def test_the_graph_is_found_again_and_new_numbers_are_seen(torch_sparse):
    adjacency, x = matrix(torch_sparse, value=torch.float64), features(6).detach()
    dense = torch.zeros(NODES, NODES, dtype=torch.float64)
    with gsb.enabled("pyg"):
        for factor in (1, 3):
            row, col, value = adjacency.coo()
            expected = torch.zeros_like(dense).index_put((row, col), value, accumulate=True) @ x
            torch.testing.assert_close(spmm(adjacency, x), expected)
            adjacency = adjacency.set_value(value * factor)
        assert len(GRAPHS) == 1


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(NODES + 1, 3, dtype=torch.float64),
        torch.rand(NODES, dtype=torch.float64),
        torch.ones(NODES, 3, dtype=torch.int64),
    ],
    ids=["rows", "dimensions", "integers"],
)
def test_operands_that_do_not_fit_raise_as_without_us(torch_sparse, x):
    adjacency = matrix(torch_sparse, value=torch.float64)

    def attempt():
        try:
            return spmm(adjacency, x).shape
        except (RuntimeError, ValueError, IndexError, NotImplementedError) as error:
            return type(error), str(error)

    expected = attempt()
    with gsb.enabled("pyg"):
        assert attempt() == expected
    with gsb.enabled("pyg"), pytest.raises(ValueError, match="`reduce` argument 'amax' not supported"):
        spmm(adjacency, features(3), "amax")


def test_broken_structure_is_refused(torch_sparse):
    adjacency = matrix(torch_sparse)
    adjacency.csr()[1][1] = NODES
    with gsb.enabled("pyg"), pytest.raises(ValueError, match=rf"indices\[1\] = {NODES} is out of range"):
        spmm(adjacency, features(3))


def test_two_sparse_matrices_are_the_frameworks(torch_sparse):
    adjacency = matrix(torch_sparse)
    expected = torch_sparse.matmul(adjacency, adjacency)
    with gsb.enabled("pyg"):
        assert type(torch_sparse.matmul(adjacency, adjacency)) is type(expected)
    assert calls() == {}


def test_methods_while_pyg_is_enabled(torch_sparse):
    adjacency, x = matrix(torch_sparse, value=torch.float64), features(4).detach()
    expected = spmm(adjacency, x)
    for enabled in (True, False):
        with gsb.enabled("pyg") if enabled else contextlib.nullcontext():
            for found in (adjacency @ x, adjacency.spmm(x), torch_sparse.matmul(adjacency, x)):
                torch.testing.assert_close(found, expected)
        assert calls() == {"spmm.sum": 3}  # and none beside, once it is disabled
