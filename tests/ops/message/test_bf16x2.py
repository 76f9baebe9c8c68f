"""Rows of bfloat16, two features at a time: the same bits as one at a time, from tensors at whatever address."""

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message.executables.one_pass import IN_PAIRS

NODES, EDGES = 90, 700


def graph():
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, NODES - 5, (2, EDGES), generator=generator)
    ends[0, :60] = 7  # a longer row; the last five rows are empty
    return gsb.Graph.from_coo(ends[0], ends[1], (NODES, NODES))


def draw(*shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()
    x.view(-1)[::37] = torch.tensor(float("inf"))
    x.view(-1)[5::61] = torch.tensor(float("nan"))
    x.view(-1)[9::29] = torch.tensor(-0.0)
    return x


def in_pairs():
    """Whether the last call took two features at a time."""
    return gsb.last_run().steps[-1].variant.endswith(IN_PAIRS)


def between_words(x):
    """The same values at an address that is no multiple of four."""
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def calls():
    """name: (call, shapes of its operands)."""

    def spmm(reduce, weighted=False):
        return lambda g, x, *w: gsb.spmm(g, x, *w, reduce=reduce)

    def heads(g, x, w):
        return gsb.gspmm(g, "mul", "sum", u=x, e=w)

    def edges(g, x, w):
        return gsb.gspmm(g, "add", "max", u=x, e=w)

    return {
        "sum of 26": (spmm("sum"), (NODES, 26)),
        "sum of 74": (spmm("sum"), (NODES, 74)),
        "mean": (spmm("mean"), (NODES, 58)),
        "max": (spmm("max"), (NODES, 38)),
        "min": (spmm("min"), (NODES, 46)),
        "weighted": (spmm("sum"), (NODES, 302), (EDGES,)),
        "heads": (heads, (NODES, 5, 6), (EDGES, 5, 1)),
        "max of edges": (edges, (NODES, 3, 14), (EDGES, 3, 14)),
    }


@pytest.mark.short(3)
@pytest.mark.parametrize("name", calls())
def test_the_same_bits_from_any_address(name):
    call, *shapes = calls()[name]
    g = graph()
    operands = [draw(*shape) for shape in shapes]
    with torch.no_grad():
        together = call(g, *operands)
        assert in_pairs()
        apart = call(g, between_words(operands[0]), *operands[1:])
    assert not in_pairs()
    assert together.isnan().any() or "max" in name or name == "min"
    torch.testing.assert_close(together, apart, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(together.signbit() | together.isnan(), apart.signbit() | apart.isnan())


@pytest.mark.parametrize("shape", [(NODES, 12), (NODES, 39), (NODES, 2, 11)])
def test_rows_that_are_short_or_odd_go_one_by_one(shape):
    x = draw(*shape)
    if len(shape) == 3:
        gsb.gspmm(graph(), "mul", "sum", u=x, e=draw(EDGES, 2, 1))
    else:
        gsb.spmm(graph(), x)
    assert not in_pairs()
