"""Sparse adjacencies and ``EdgeIndex``: ``torch_geometric.utils.spmm`` and ``EdgeIndex.matmul``."""

import warnings

import pytest
import torch
import torch_geometric
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.utils import coalesce, spmm

import gnn_sparse_backend as gsb
from tests.covering import covering
from tests.integrations.pyg.features import EdgeIndex
from tests.integrations.pyg.pair import NODES, calls, check_pair, edges, features

pytestmark = [pytest.mark.filterwarnings("ignore:.*Sparse"), pytest.mark.filterwarnings("ignore:.*sparse")]
LAYOUTS = ("csr", "csc", "coo")


def adjacency(layout: str, shape=(NODES, NODES), dtype=torch.float64, edge_index=None) -> torch.Tensor:
    """Rows are destinations. Duplicate edges are summed."""
    source, destination = edges() if edge_index is None else edge_index
    values = torch.rand(source.numel(), dtype=dtype, generator=torch.Generator().manual_seed(4)) + 0.1
    matrix = torch.sparse_coo_tensor(torch.stack([destination % shape[0], source % shape[1]]), values, shape).coalesce()
    return {"csr": matrix.to_sparse_csr, "csc": matrix.to_sparse_csc, "coo": lambda: matrix}[layout]()


@pytest.mark.parametrize(
    "layout, reduce, shape",
    covering(
        {"layout": list(LAYOUTS), "reduce": ["sum", "add", "mean"], "shape": [(NODES, NODES), (9, NODES), (NODES, 4)]}
    ),
)
def test_spmm(layout, reduce, shape):
    matrix, x = adjacency(layout, shape), features(6, nodes=shape[1])
    counts = check_pair(lambda x: spmm(matrix, x, reduce), x)
    assert counts == {f"spmm.{'mean' if reduce == 'mean' else 'sum'}": 1}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_spmm_without_entries(layout):
    matrix = adjacency(layout, edge_index=edges("none"))
    assert check_pair(lambda x: spmm(matrix, x), features(6)) == {"spmm.sum": 1}


@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.parametrize(
    "layer",
    [
        lambda: gnn.SAGEConv(5, 4),
        lambda: gnn.GINConv(nn.Linear(5, 4)),
        lambda: gnn.GCNConv(5, 4),
        lambda: gnn.GraphConv(5, 4, aggr="mean"),
    ],
)
def test_layers(layout, layer):
    counts = check_pair(layer().double(), features(5), adjacency(layout))
    assert sum(counts.values()) == 1 and set(counts) <= {"spmm.sum", "spmm.mean"}


def test_gat_on_an_adjacency():
    check_pair(gnn.GATConv(5, 4, heads=2).double(), features(5), adjacency("coo"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradients_of_the_values(layout, reduce):
    """Where PyG has them (it has none for a mean over CSC), they are the same."""

    def gradient():
        matrix = adjacency(layout).requires_grad_()
        x = features(6)
        out = spmm(matrix, x, reduce)
        cotangent = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
        (grad,) = torch.autograd.grad(out, matrix, cotangent)
        return grad.to_dense()

    with gsb.enabled("pyg"):
        actual = gradient()
    assert calls() == {f"spmm.{reduce}": 1}
    source = adjacency(layout).to_dense()
    cotangent = torch.randn((NODES, 6), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = cotangent @ features(6).detach().T * (source != 0)
    if reduce == "mean":
        expected /= (source != 0).sum(1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(actual, expected)
    try:
        theirs = gradient()
    except (RuntimeError, NotImplementedError):
        assert layout != "csr" or reduce != "sum"
    else:
        torch.testing.assert_close(actual, theirs)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_maxima_without_a_gradient(reduce):
    matrix, x = adjacency("csr"), features(6).detach()
    expected = spmm(matrix, x, reduce)
    with gsb.enabled("pyg"):
        torch.testing.assert_close(spmm(matrix, x, reduce), expected)
    assert calls() == {f"spmm.{reduce}": 1}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("equal", [False, True])
def test_gradients_of_maxima(layout, reduce, equal):
    """equal: many products are, of which the first has the gradient."""
    matrix, x = adjacency(layout), features(6)
    if equal:
        matrix, x = torch.round(matrix) if layout == "coo" else matrix, x.detach().round().requires_grad_()
    assert check_pair(lambda x: spmm(matrix, x, reduce), x) == {f"spmm.{reduce}": 1}


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_gradients_of_the_values_of_maxima(reduce):
    def gradients():
        matrix, x = adjacency("csr").requires_grad_(), features(6)
        out = spmm(matrix, x, reduce)
        of_matrix, of_x = torch.autograd.grad(out.square().sum(), (matrix, x))
        return of_matrix.values(), of_x

    expected = gradients()
    with gsb.enabled("pyg"):
        torch.testing.assert_close(gradients(), expected)
    assert calls() == {f"spmm.{reduce}": 1}


@pytest.mark.parametrize("special", [float("nan"), float("inf")])
def test_gradients_of_maxima_of_special_values_are_the_frameworks(special):
    x = features(6).detach()
    x[::4, 0] = special
    counts = check_pair(lambda x: spmm(adjacency("csr"), x, "max"), x.requires_grad_(), equal_nan=True)
    assert counts == {"spmm.max": {"a gradient of the max of NaN or infinities may be asked for": 1}}


def test_uncoalesced_matrices_are_the_frameworks():
    matrix = torch.sparse_coo_tensor(edges("duplicates").flip(0), torch.ones(6, dtype=torch.float64), (NODES, NODES))
    for reduce in ("sum", "mean"):
        counts = check_pair(lambda x, reduce=reduce: spmm(matrix, x, reduce), features(6))
        assert set(counts) == {f"spmm.{reduce}"} and isinstance(counts[f"spmm.{reduce}"], dict)


@pytest.mark.parametrize(
    "x",
    [torch.rand(NODES + 1, 3, dtype=torch.float64), torch.rand(NODES, 3), torch.rand(NODES, dtype=torch.float64)],
    ids=["rows", "type", "dimensions"],
)
def test_operands_that_do_not_fit_raise_as_without_us(x):
    def attempt():
        try:
            return spmm(adjacency("csr"), x).shape
        except (RuntimeError, ValueError, IndexError) as error:
            return type(error), str(error)

    expected = attempt()
    with gsb.enabled("pyg"):
        assert attempt() == expected


def test_broken_structure_is_refused():
    with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(False):
        matrix = torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 9]), torch.ones(2), (2, 2))
        with gsb.enabled("pyg"), pytest.raises(ValueError, match=r"indices\[1\] = 9 is out of range"):
            spmm(matrix, torch.ones(2, 3))


def test_new_values_and_new_structure_are_noticed():
    matrix, layer, x = adjacency("csr"), gnn.SimpleConv(aggr="sum"), features(6).detach()
    with gsb.enabled("pyg"):
        for _ in range(2):
            torch.testing.assert_close(layer(x, matrix), matrix.to_dense() @ x)
        matrix.values().mul_(3)
        torch.testing.assert_close(layer(x, matrix), matrix.to_dense() @ x)
        matrix.col_indices()[0] = (int(matrix.col_indices()[0]) - 1) % NODES
        torch.testing.assert_close(layer(x, matrix), matrix.to_dense() @ x)


@pytest.fixture
def double():
    """``EdgeIndex`` multiplies by ones of the default type."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def edge_index(order: str | None) -> EdgeIndex:
    made = EdgeIndex(edges(), sparse_size=(NODES, NODES))
    return made if order is None else made.sort_by(order).values


@pytest.mark.parametrize("order", [None, "row", "col"])
@pytest.mark.parametrize(
    "layer",
    [
        lambda: gnn.SAGEConv(5, 4),
        lambda: gnn.GINConv(nn.Linear(5, 4)),
        lambda: gnn.GCNConv(5, 4),
        lambda: gnn.GraphConv(5, 4, aggr="mean"),
    ],
)
def test_edge_index(double, order, layer):
    counts = check_pair(layer().double(), features(5), edge_index(order))
    assert list(counts.values()) == [1]
    assert set(counts) <= {"copy.sum", "copy.mean", "mul.sum", "matmul.sum", "matmul.mean"}


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "add", "mean", "max", "amin"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("equal", [False, True])
def test_matmul(double, transpose, reduce, weighted, equal):
    """equal: many products are, of which each has a share of the gradient."""
    matrix = edge_index("col" if transpose else "row")
    value, x = torch.rand(90, dtype=torch.float64) if weighted else None, features(5)
    if equal:
        value, x = None if value is None else value.round() + 1, x.detach().round().requires_grad_()
    counts = check_pair(
        lambda x, value: matrix.matmul(x, value, reduce=reduce, transpose=transpose),
        x,
        None if value is None else value.requires_grad_(),
    )
    assert counts == {f"matmul.{ {'add': 'sum', 'amin': 'min'}.get(reduce, reduce) }": 1}


def test_gradients_of_torch_sparse_are_its_own(double, monkeypatch):
    """It gives that of a maximum to the first of equal products."""
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", True)
    x = torch.ones(NODES, 5, requires_grad=True)
    row, col = edge_index("row").as_tensor()
    with gsb.enabled("pyg"):
        (grad,) = torch.autograd.grad(edge_index("row").matmul(x, reduce="max").sum(), x)
    first = torch.cat([row.new_ones(1, dtype=torch.bool), row[1:] != row[:-1]])
    assert torch.equal(grad[:, 0], col[first].bincount(minlength=NODES).double())
    assert calls() == {"matmul.max": 1}


def test_matmul_of_other_kinds_is_the_frameworks(double):
    row, col = edge_index("row"), edge_index("col")
    # MKL's product of two sparse matrices reads past its buffers where columns of a row are not in order
    ordered = EdgeIndex(coalesce(edges()), sparse_size=(NODES, NODES), sort_order="row")
    x = features(5).detach()
    cases = (
        lambda: ordered.matmul(ordered)[1],
        lambda: row @ x,
        lambda: row.matmul(x, torch.rand(90).fill_(0.5)),
    )
    for case in cases:
        expected = case()
        with gsb.enabled("pyg"):
            torch.testing.assert_close(case(), expected)
    with gsb.enabled("pyg"), pytest.raises(ValueError, match="sorted by rows"):
        col.matmul(x)
    assert calls() == {"matmul.sum": 1}
