"""Reductions of segments, and the softmax over them, in compiled programs: operators, as in eager ones."""

from __future__ import annotations

import math

import pytest
import torch
from torch_geometric.nn import SoftmaxAggregation, SumAggregation
from torch_geometric.utils import segment, softmax

import gnn_sparse_backend as gsb
from tests.integrations.traced.programs import check, counted, features

POINTERS = torch.tensor([0, 3, 3, 9, 20, 20])  # two of the segments are empty
ROWS = 20
REDUCES = ("sum", "mean", "max", "min")


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1), (ROWS, 5), (ROWS, 2, 3)])
@pytest.mark.parametrize("reduce", REDUCES)
def test_segments_of_pyg(reduce, shape):
    assert check(lambda x, p: segment(x, p, reduce), features(*shape), POINTERS) == {f"segment.{reduce}": 1}


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_types(reduce, dtype, tolerance):
    x = features(ROWS, 7, dtype=dtype)
    with torch.no_grad():
        expected = segment(x.double(), POINTERS, reduce)
        found = gsb.compile(lambda x, p: segment(x, p, reduce), backend="aot_eager")(x, POINTERS)
    assert found.dtype is dtype and counted() == {f"segment.{reduce}": 1}
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reduce", [*REDUCES, "prod"])
@pytest.mark.parametrize("given", ["lengths", "offsets"])
def test_segments_of_pytorch(reduce, given):
    """Empty segments are what PyTorch says: -inf of a maximum, and NaN of a mean."""

    def program(x, p):
        of = {"lengths": p.diff()} if given == "lengths" else {"offsets": p}
        return torch.segment_reduce(x, reduce, **of).nan_to_num(7.0, 8.0, -9.0)

    assert check(program, features(ROWS, 4), POINTERS) == {f"segment.{reduce}": 1}


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_gradients_of_equal_numbers(reduce):
    x = features(ROWS, 4).round()
    assert check(lambda x, p: segment(x, p, reduce), x, POINTERS) == {f"segment.{reduce}": 1}


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_lengths_alone(reduce):
    def program(x, lengths):
        return torch.segment_reduce(x, reduce, lengths=lengths, axis=0).clamp(min=-5.0)

    assert check(program, features(ROWS, 4), POINTERS.diff()) == {f"segment.{reduce}": 1}


def test_a_row_of_several_pointers():
    def program(x, both):
        return torch.segment_reduce(x, "max", offsets=both[1]).clamp(min=-5.0)

    assert check(program, features(ROWS, 4), torch.stack([POINTERS + 1, POINTERS])) == {"segment.max": 1}


@pytest.mark.parametrize(
    "reduce, given",
    [("sum", {"initial": 2}), ("mean", {"initial": 1}), ("max", {"initial": 0})],
)
def test_what_begins_with_a_number_stays(reduce, given):
    def program(x, p):
        return torch.segment_reduce(x, reduce, offsets=p, **given)

    with torch.no_grad():
        x = features(ROWS, 4)
        torch.testing.assert_close(gsb.compile(program, backend="aot_eager")(x, POINTERS), program(x, POINTERS))
    assert counted() == {}


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 3), (ROWS, 2, 2)])
def test_the_softmax_over_segments(shape):
    found = check(lambda x, p: softmax(x, ptr=p), features(*shape), POINTERS)
    assert found == {"softmax": 1}


def test_a_softmax_of_minus_infinity():
    """Of a segment that is nothing else PyG's is 0."""

    def program(x, p):
        return softmax(x.masked_fill(torch.arange(ROWS)[:, None] < 4, -math.inf), ptr=p)

    assert check(program, features(ROWS, 2), POINTERS) == {"softmax": 1}


def test_a_softmax_of_a_lazy_message():
    def program(x, index, p):
        return softmax(x.index_select(0, index) * 2.0, ptr=p)

    index = torch.randint(6, (ROWS,), generator=torch.Generator().manual_seed(3))
    found = check(program, features(6, 3), index, POINTERS)
    assert found["softmax"] == 1


def test_a_softmax_whose_maxima_are_of_other_segments():
    def program(x, p, q):
        highest = segment(x.detach(), q, "max").repeat_interleave(q[1:] - q[:-1], dim=0, output_size=ROWS)
        e = (x - highest).exp()
        total = segment(e, p, "sum") + 1e-16
        return e / total.repeat_interleave(p[1:] - p[:-1], dim=0, output_size=ROWS)

    other = torch.tensor([0, 1, 4, 9, 11, 20])
    assert check(program, features(ROWS, 3), POINTERS, other) == {"segment.max": 1, "segment.sum": 1}


def test_pointers_that_are_written_to_are_others():
    def program(x, p):
        p = p + 0
        out = segment(x, p, "sum")
        p.copy_(p.flip(0))
        return out + p[0]

    with torch.no_grad():
        x = features(ROWS, 3)
        torch.testing.assert_close(gsb.compile(program, backend="aot_eager")(x, POINTERS), program(x, POINTERS))


def test_infinite_and_undefined_numbers():
    x = features(ROWS, 2)
    x[4, 0], x[10, 1], x[0, 0] = math.inf, math.nan, -math.inf
    with torch.no_grad():
        for reduce in ("sum", "mean"):
            found = gsb.compile(lambda x, p, r=reduce: segment(x, p, r), backend="aot_eager")(x, POINTERS)
            torch.testing.assert_close(found, segment(x, POINTERS, reduce), equal_nan=True)
    assert counted() == {"segment.sum": 1, "segment.mean": 1}


@pytest.mark.parametrize("pointers", [[0, 3, 21], [0, 3, 19], [0, 5, 3, 20], [1, 20]])
def test_pointers_that_are_none_are_an_error(pointers):
    compiled = gsb.compile(lambda x, p: segment(x, p, "sum"), backend="aot_eager")
    with pytest.raises(ValueError, match="aggregate: "):
        compiled(features(ROWS, 3), torch.tensor(pointers))


@pytest.mark.parametrize("make", [SumAggregation, SoftmaxAggregation])
def test_aggregations_of_pyg(make):
    aggregation, x = make(), features(ROWS, 4)
    gsb.enable("pyg")
    with torch.no_grad():
        eager = aggregation(x, ptr=POINTERS)
        expected = gsb.status().to_dict()["calls"]["pyg"]
        gsb.integrations.reset_status()
        found = gsb.compile(lambda x, p: aggregation(x, ptr=p), backend="aot_eager", dynamic=True)(x, POINTERS)
    torch.testing.assert_close(found, eager)
    assert counted() == {name: each["ours"] for name, each in expected.items()}


def test_other_sizes_are_not_compiled_again():
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    function = gsb.compile(lambda x, p: segment(x, p, "mean"), backend=backend, fullgraph=True, dynamic=True)
    for pointers in (POINTERS, torch.tensor([0, 2, 31]), torch.tensor([0, 7, 7, 8])):
        x = features(int(pointers[-1]), 4)
        torch.testing.assert_close(function(x, pointers), segment(x, pointers, "mean"))
    assert len(compiled) == 1 and counted() == {"segment.mean": 3}
