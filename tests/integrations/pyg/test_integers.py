"""Features that are integers or truth values: reductions by index, and layers."""

import pytest
import torch
from torch_geometric.utils import scatter, segment

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from tests.covering import covering
from tests.integrations.pyg.features import segments
from tests.integrations.pyg.pair import NODES, calls, edges
from tests.integrations.pyg.test_errors import agree, put
from tests.integrations.pyg.test_messages import Layer

WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
REDUCES = ("sum", "add", "mean", "max", "min", "amax", "amin", "mul")
COUNTED = {"add": "sum", "amax": "max", "amin": "min", "mul": "prod"}


def numbers(*shape: int, dtype=torch.int64) -> torch.Tensor:
    """Numbers all over the type, its ends among them."""
    if dtype is torch.bool:
        return torch.rand(shape, generator=torch.Generator().manual_seed(3)) < 0.3
    limits = torch.iinfo(dtype)
    x = torch.randint(-(2**62), 2**62, shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    if x.numel() > 20:
        x.view(-1)[::11], x.view(-1)[5::13] = limits.min, limits.max
    return x


def same(function) -> dict:
    """The backend changes no bit and no type; returns ``calls()``."""
    expected = function()
    reset_status()
    with gsb.enabled("pyg"):
        found = function()
    assert found.dtype is expected.dtype and torch.equal(found, expected)
    return calls()


@pytest.mark.parametrize(
    "dtype, reduce, shape, dim, name",
    covering(
        {
            "dtype": WHOLE,
            "reduce": list(REDUCES),
            "shape": [(1,), (6,), (33,), (2, 3)],
            "dim": [0, -1],
            "name": ["random", "large", "none", "duplicates", "hub"],
        }
    ),
)
def test_reductions(dtype, reduce, shape, dim, name):
    index = edges(name)[1]
    x = numbers(*((len(index), *shape) if dim == 0 else (*shape, len(index))), dtype=dtype)
    counts = same(lambda: scatter(x, index, dim, NODES, reduce))
    assert counts == {f"scatter.{COUNTED.get(reduce, reduce)}": 1} or x.numel() == 0


@pytest.mark.parametrize("reduce", ["mean", "max", "min", "mul"])
def test_one_number_per_edge(reduce):
    x, index = numbers(90), edges()[1]
    assert same(lambda: scatter(x, index, reduce=reduce)) == {f"scatter.{COUNTED.get(reduce, reduce)}": 1}


def test_many_nodes():
    """On several threads, and rows in an order of their own after some calls."""
    generator = torch.Generator().manual_seed(0)
    index = (torch.rand(200_000, generator=generator) ** 3 * 5000).long()
    x = numbers(200_000, 16)
    for reduce in ("max", "sum", "mul"):
        expected = scatter(x, index, 0, 5000, reduce)
        with gsb.enabled("pyg"):
            for _ in range(6):
                assert torch.equal(scatter(x, index, 0, 5000, reduce), expected)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", ["random", "large"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_layers(aggr, name, dtype):
    layer = Layer(lambda x_j, w: x_j.logical_not() if dtype is torch.bool else x_j * 2 + 1, aggr=aggr)
    assert same(lambda: layer(numbers(NODES, 4, dtype=dtype), edges(name))) == {"gather": 1, f"scatter.{aggr}": 1}


@pytest.mark.parametrize("value", [-1, NODES])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_an_index_out_of_range(value, reduce):
    assert not isinstance(agree(lambda: scatter(numbers(90, 4), put(1, value)[1], 0, NODES, reduce)), torch.Tensor)


@segments
def test_segments_are_the_frameworks():
    """PyTorch has them of floating numbers alone."""
    found = agree(lambda: segment(numbers(90, 4), torch.tensor([0, 3, 90])))
    assert found[0] in (RuntimeError, NotImplementedError)
