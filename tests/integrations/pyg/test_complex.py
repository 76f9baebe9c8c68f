"""Complex features: sums by index, layers that sum, and products with sparse matrices."""

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.utils import scatter, spmm

import gnn_sparse_backend as gsb
from tests.covering import covering
from tests.integrations.pyg.pair import NODES, check_pair, edges
from tests.integrations.pyg.test_adjacency import adjacency
from tests.integrations.pyg.test_errors import agree, put
from tests.integrations.pyg.test_messages import Layer

pytestmark = [pytest.mark.filterwarnings("ignore:.*Sparse"), pytest.mark.filterwarnings("ignore:.*sparse")]
COMPLEX = [torch.complex128, torch.complex64]


def numbers(*shape: int, dtype=torch.complex128, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def rtol(dtype) -> float:
    return 1e-10 if dtype is torch.complex128 else 1e-5


@pytest.mark.parametrize(
    "dtype, shape, dim, name, conj",
    covering(
        {
            "dtype": COMPLEX,
            "shape": [(), (1,), (6,), (2, 3)],
            "dim": [0, -1],
            "name": ["random", "large", "none", "duplicates", "hub"],
            "conj": [False, True],
        }
    ),
)
def test_sums(dtype, shape, dim, name, conj):
    index = edges(name)[1]
    x = numbers(*((len(index), *shape) if dim == 0 else (*shape, len(index))), dtype=dtype)
    of = lambda x: x.conj() if conj else x
    counts = check_pair(lambda x: scatter(of(x), index, dim, NODES), x, rtol=rtol(dtype))
    assert counts == {"scatter.sum": 1} or len(index) == 0  # the framework takes no longer for no edges


def test_sums_of_a_derived_size():
    x = numbers(90, 4)
    assert check_pair(lambda x: scatter(x, edges()[1], reduce="add"), x) == {"scatter.sum": 1}


def test_derivatives():
    x, index = numbers(6, 2), torch.tensor([0, 2, 2, 0, 1, 2])
    with gsb.enabled("pyg", deferred=False):
        assert torch.autograd.gradcheck(lambda x: scatter(x, index, 0, 4), (x,))
        assert torch.autograd.gradgradcheck(lambda x: scatter(x * x.conj(), index, 0, 4), (x,))
        layer = Layer(lambda x_j, w: x_j * w)
        w = numbers(6, 1, seed=1)
        assert torch.autograd.gradcheck(lambda x, w: layer(x, torch.stack([index, index]), w), (x, w))


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("node_dim", [0, -2])
@pytest.mark.parametrize("weights", [None, "real", "complex"])
def test_layers(dtype, node_dim, weights):
    real = dtype.to_real()
    w = None if weights is None else numbers(700, 1, dtype=dtype if weights == "complex" else real, seed=1)
    layer = Layer(lambda x_j, w: x_j if w is None else w * x_j, node_dim=node_dim)
    x = numbers(*((NODES, 6) if node_dim == 0 else (2, NODES, 6)), dtype=dtype)
    counts = check_pair(layer, x, edges("large"), w, rtol=rtol(dtype))
    assert counts == {"gather": 1, "scatter.sum": 1}


def test_layers_of_pyg():
    for layer in (gnn.SimpleConv("sum"), gnn.SAGEConv(6, 4, "sum").to(torch.complex128)):
        counts = check_pair(layer, numbers(NODES, 6), edges("large"))
        assert counts == {"gather": 1, "scatter.sum": 1}


@pytest.mark.parametrize("reduce", ["mean", "max", "min"])
def test_other_reductions_are_the_frameworks(reduce):
    """Errors, that is."""
    found = agree(lambda: scatter(numbers(90, 4), edges()[1], 0, NODES, reduce))
    assert found[0] in (RuntimeError, NotImplementedError)
    found = agree(lambda: Layer(lambda x_j, w: x_j, aggr=reduce)(numbers(NODES, 4), edges()))
    assert found[0] in (RuntimeError, NotImplementedError)


@pytest.mark.parametrize("value", [-1, NODES])
def test_an_index_out_of_range(value):
    index = put(1, value)
    for call in (
        lambda: scatter(numbers(90, 4), index[1], 0, NODES),
        lambda: Layer(lambda x_j, w: x_j)(numbers(NODES, 4), index),
        lambda: Layer(lambda x_j, w: x_j)(numbers(NODES, 4), index.flip(0)),
        lambda: scatter(numbers(90, 4), edges()[1], 2, NODES),
        lambda: scatter(numbers(90, 4), edges()[1], -3, NODES),
    ):
        assert not isinstance(agree(call), torch.Tensor)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_products_with_sparse_matrices(dtype, layout):
    matrix, x = adjacency(layout, dtype=dtype), numbers(NODES, 6, dtype=dtype)
    assert check_pair(lambda x: spmm(matrix, x), x, rtol=rtol(dtype)) == {"spmm.sum": 1}
    for reduce in ("mean", "max"):
        agree(lambda reduce=reduce: spmm(matrix, x, reduce))


def test_special_values():
    """Sums alone know nothing of products, so infinities stay in their part."""
    x = numbers(90, 3).detach()
    x[::7, 0] = complex(float("inf"), 1)
    x[::5, 1] = complex(0, float("nan"))
    counts = check_pair(lambda x: scatter(x, edges()[1], 0, NODES), x.requires_grad_(), equal_nan=True)
    assert counts == {"scatter.sum": 1}
