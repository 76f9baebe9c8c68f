"""Infinite, undefined and equal numbers, and those at the end of what a type holds: results are those of PyG."""

import math

import pytest
import torch
from torch_geometric.utils import segment, softmax

from tests.integrations.pyg.features import segments
from tests.integrations.pyg.pair import NODES, check_pair, edges
from tests.integrations.pyg.test_messages import Layer


def special(*shape: int, dtype=torch.float64, seed: int = 0) -> torch.Tensor:
    """Small integers of both signs with zeros of both; one in sixteen each is infinite, minus infinite and NaN."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-2, 3, shape, generator=generator).to(dtype) * -1
    which = torch.randint(16, shape, generator=generator)
    for at, number in enumerate((math.inf, -math.inf, math.nan)):
        x[which == at] = number
    return x.requires_grad_()


@pytest.mark.short(2)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x_j, w: x_j.abs(),
        lambda x_j, w: (w - x_j).abs(),
        lambda x_j, w: (w * x_j).relu(),
        lambda x_j, w: torch.nn.functional.leaky_relu(x_j + w, 0.2),
        lambda x_j, w: x_j / w,
        lambda x_j, w: (w + x_j).exp(),
    ],
    ids=["abs", "abs of a difference", "relu", "leaky_relu", "div", "exp"],
)
def test_messages(function, aggr):
    check_pair(Layer(function, aggr=aggr), special(NODES, 3), edges(), special(90, 1, seed=1), equal_nan=True)


@pytest.mark.short(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x_j, w: x_j * 1e300,
        lambda x_j, w: x_j / 1e-320,
        lambda x_j, w: (w * x_j).sum(-1, keepdim=True) * math.inf,
        lambda x_j, w: (w * x_j).sum(-1, keepdim=True) / 1e-320,
    ],
    ids=["times", "by", "a sum times", "a sum by"],
)
def test_numbers_that_a_type_cannot_hold(function, dtype):
    """Of a sum of terms of both signs and 0 an infinite multiple is another number than the sum of theirs."""
    x = torch.randint(-2, 3, (NODES, 3), generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    check_pair(Layer(function, aggr="max"), x, edges(), special(90, 1, dtype=dtype, seed=1), equal_nan=True)


@segments
@pytest.mark.parametrize("shape", [(90,), (90, 3)])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_segments(reduce, shape):
    """PyTorch shares a gradient among equal numbers where it is positive alone, and NaN has a part in it."""
    pointers = torch.tensor([0, 0, 3, 10, 12, 12, 40, 90])
    x = special(*shape)
    counts = check_pair(lambda x: segment(x, pointers, reduce), x, equal_nan=True)
    assert counts == {f"segment.{reduce}": 1}


@pytest.mark.parametrize("given", ["ptr", "index"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_softmax(given, dtype):
    """By pointers PyG takes an infinite maximum for 0: of minus infinity alone the softmax is 0, and not NaN."""
    inf, pointers = math.inf, torch.tensor([0, 0, 2, 5, 8, 12, 14, 16])
    scores = [-inf, -inf, -inf, 1, 2, inf, 1, -inf, inf, inf, 0, 3, math.nan, 1, math.nan, -inf]
    x = torch.tensor(scores, dtype=dtype)[:, None].expand(16, 3).clone().requires_grad_()
    if given == "ptr":
        try:
            softmax(x.detach(), ptr=pointers)
        except (NotImplementedError, ImportError) as error:  # of PyG before 2.6
            pytest.skip(str(error))
        counts = check_pair(lambda x: softmax(x, ptr=pointers), x, rtol=1e-2, equal_nan=True)
    else:
        index = torch.arange(7).repeat_interleave(pointers.diff())
        counts = check_pair(lambda x: softmax(x, index, num_nodes=7), x, rtol=1e-2, equal_nan=True)
    assert counts == {"softmax": 1}
