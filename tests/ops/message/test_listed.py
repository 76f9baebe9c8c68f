"""Operators on edges as they are listed are what PyTorch makes of the messages, and gradients of any order with them.

Both ways: on a graph that is not converted (`Graph._of_list`), and with all looked up beforehand (`ops.message.flat`).
"""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.attention.flat import FlatSoftmax
from gnn_sparse_backend.ops.attention.operators import softmax_edges
from gnn_sparse_backend.ops.core.executable import OutOfRange
from gnn_sparse_backend.ops.message.flat import FlatAggregate, FlatExtreme, FlatMap
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.message.operators import aggregate, edge_map
from gnn_sparse_backend.planner.cpu.listed import FIXED, loss
from gnn_sparse_backend.structures.csr import EdgeList

ROWS, COLUMNS, EDGES = 13, 11, 60
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}
MESSAGES = {
    "x0": (("column",), ((5,),), lambda x: x),
    "edges": (("edge",), ((5,),), lambda x: x),
    "numbers": (("edge",), ((),), lambda x: x),
    "mul(x1, x0)": (("column", "edge"), ((5,), (1,)), lambda x, w: w * x),
    "heads": (("column", "edge"), ((3, 4), (3, 1)), lambda x, w: w * x),
    "add(x0, x1)": (("row", "column"), ((1,), (1,)), torch.add),
    "relu(add(x0, x1))": (("column", "edge"), ((17,), (17,)), lambda x, e: (x + e).relu()),
    "leaky_relu(add(x0, x1), 0.2)": (
        ("row", "column"),
        ((4,), (4,)),
        lambda x, y: torch.nn.functional.leaky_relu(x + y, 0.2),
    ),
}
TEXTS = {"edges": "x0", "numbers": "x0", "heads": "mul(x1, x0)"}
REDUCES = {"sum": None, "mean": None, "max": "even_with_zero", "min": "even_with_zero"}


def edges(index_dtype=torch.int64, seed=0) -> EdgeList:
    """Edges with duplicates, self loops, and rows without any."""
    generator = torch.Generator().manual_seed(seed)
    row = torch.randint(ROWS - 3, (EDGES,), generator=generator, dtype=index_dtype)
    col = torch.randint(COLUMNS, (EDGES,), generator=generator, dtype=index_dtype)
    row[1], col[1] = row[0], col[0]
    return EdgeList(row, col, (ROWS, COLUMNS))


def operands(name: str, dtype=torch.float64) -> list[Tensor]:
    places, shapes, _ = MESSAGES[name]
    generator = torch.Generator().manual_seed(1)
    sizes = {"row": ROWS, "column": COLUMNS, "edge": EDGES}
    made = [torch.randn(sizes[p], *s, generator=generator, dtype=torch.float64) for p, s in zip(places, shapes)]
    return [x.mul(8).round().div(8).to(dtype).requires_grad_() for x in made]


def messages(name: str, listed: EdgeList, given: list[Tensor]) -> Tensor:
    """The message of every edge, by PyTorch."""
    places, _, function = MESSAGES[name]
    at = {"row": listed.row.long(), "column": listed.col.long()}
    return function(*(x if place == "edge" else x[at[place]] for x, place in zip(given, places)))


def reduced(message: Tensor, row: Tensor, reduce: str) -> Tensor:
    """PyTorch's own, as PyG calls it."""
    out = message.new_zeros(ROWS, *message.shape[1:])
    index = row.long().view(-1, *(1,) * (message.dim() - 1)).expand_as(message)
    if reduce in ("sum", "mean"):
        out = out.scatter_add(0, index, message)
        count = torch.bincount(row.long(), minlength=ROWS).clamp(min=1).view(-1, *(1,) * (message.dim() - 1))
        return out / count if reduce == "mean" else out
    return out.scatter_reduce(0, index, message, f"a{reduce}", include_self=False)


def compare(ours: Tensor, theirs: Tensor, given: list[Tensor], dtype) -> None:
    cotangent = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype] * 4}
    torch.testing.assert_close(ours, theirs, **close)
    found = torch.autograd.grad(ours, given, cotangent)
    expected = torch.autograd.grad(theirs, given, cotangent)
    for one, other in zip(found, expected):
        assert one.shape == other.shape and one.dtype is other.dtype
        torch.testing.assert_close(one, other, **close)


@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("name", MESSAGES)
def test_reductions_of_a_graph_that_is_not_converted(name, reduce, dtype, index_dtype):
    if index_dtype is torch.int32 and name not in ("x0", "heads"):
        pytest.skip("two messages tell what the type of an index changes")
    listed, given = edges(index_dtype), operands(name, dtype)
    graph = gsb.Graph._of_list(listed)
    op = message_op(TEXTS.get(name, name), MESSAGES[name][0], reduce, REDUCES[reduce])
    half = dtype in (torch.bfloat16, torch.float16)
    wide = [x.detach().double().requires_grad_() for x in given] if half else given
    theirs = reduced(messages(name, listed, wide), listed.row, reduce)
    ours = aggregate(op, graph, *given)
    if half:
        torch.testing.assert_close(ours.double(), theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 4)
    else:
        compare(ours, theirs, given, dtype)
    assert graph.listed is listed  # nothing was converted


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("name", MESSAGES)
def test_flat_reductions(name, reduce, dtype):
    listed, given = edges(), operands(name, dtype)
    op = message_op(TEXTS.get(name, name), MESSAGES[name][0], reduce, REDUCES[reduce])
    assert FlatAggregate.serves(op, given)
    flat = FlatAggregate(op, [x.detach()[:1] for x in given])
    compare(flat(listed, given), reduced(messages(name, listed, given), listed.row, reduce), given, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("way", ["graph", "flat"])
@pytest.mark.parametrize("name", MESSAGES)
def test_edge_maps(name, way, dtype):
    listed, given = edges(), operands(name, dtype)
    op = message_op(TEXTS.get(name, name), MESSAGES[name][0])
    if way == "graph":
        ours = edge_map(op, gsb.Graph._of_list(listed), (), *given)
    else:
        ours = FlatMap(op, [x.detach()[:1] for x in given])(listed, given)
    compare(ours, messages(name, listed, given), given, dtype)


@pytest.mark.parametrize("way", ["graph", "flat"])
def test_dot_products_with_a_vector_for_all(way):
    listed = edges()
    x, y = torch.randn(ROWS, 3, 4, dtype=torch.float64), torch.randn(COLUMNS, 3, 4, dtype=torch.float64)
    vector = torch.randn(3, 4, dtype=torch.float64)
    given = [each.requires_grad_() for each in (x, y, vector)]
    op, sums = message_op("mul(add(x0, x1), x2)", ("row", "column", "all")), (False, True)
    if way == "graph":
        ours = edge_map(op, gsb.Graph._of_list(listed), sums, *given)
    else:
        ours = FlatMap(op, [x.detach()[:1], y.detach()[:1], vector.detach()], sums)(listed, given)
    theirs = ((x[listed.row] + y[listed.col]) * vector).sum(-1, keepdim=True)
    compare(ours, theirs, given, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("features", [(), (1,), (4,), (9,), (2, 3)], ids=str)
@pytest.mark.parametrize("way", ["graph", "flat"])
def test_softmaxes(way, features, dtype):
    listed = edges()
    scores = torch.randn(EDGES, *features, dtype=dtype).requires_grad_()
    ours = (
        softmax_edges(gsb.Graph._of_list(listed), scores)
        if way == "graph"
        else FlatSoftmax(scores.detach()[:1])(listed, [scores])
    )
    index = listed.row.view(-1, *(1,) * len(features)).expand_as(scores)
    most = scores.detach().new_zeros(ROWS, *features)
    most = most.scatter_reduce(0, index, scores.detach(), "amax", include_self=False)
    powers = (scores - most[listed.row]).exp()
    theirs = powers / powers.new_zeros(ROWS, *features).scatter_add(0, index, powers)[listed.row]
    compare(ours, theirs, [scores], dtype)


@pytest.mark.parametrize("way", ["graph", "flat"])
@pytest.mark.parametrize("name", ["x0", "heads", "relu(add(x0, x1))", "leaky_relu(add(x0, x1), 0.2)"])
@pytest.mark.parametrize("reduce", ["sum", "mean", None])
def test_derivatives_of_any_order(name, reduce, way):
    listed = edges()
    given = [torch.randn_like(x).requires_grad_() for x in operands(name)]  # of none is a sum zero
    op = message_op(TEXTS.get(name, name), MESSAGES[name][0], reduce)
    if way == "flat":
        flat = (FlatAggregate if reduce else FlatMap)(op, [x.detach()[:1] for x in given])
        function = lambda *x: flat(listed, x)
    else:
        graph = gsb.Graph._of_list(listed)
        function = lambda *x: aggregate(op, graph, *x) if reduce else edge_map(op, graph, (), *x)
    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, given, fast_mode=True)
    out = function(*given)
    cotangents = torch.randn(3, *out.shape, dtype=out.dtype)
    batched = torch.autograd.grad(out, given, cotangents, is_grads_batched=True, retain_graph=True)
    for at, cotangent in enumerate(cotangents):
        for one, of_all in zip(torch.autograd.grad(out, given, cotangent, retain_graph=True), batched):
            torch.testing.assert_close(of_all[at], one)


@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize("place", ["column", "edge"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremes_whose_gradient_goes_to_one(reduce, place, ties):
    listed = edges()
    count = {"column": COLUMNS, "edge": EDGES}[place]
    x = torch.randint(3, (count, 4)).double().requires_grad_()  # of which many are equal
    op = message_op("x0", (place,), reduce, ties)
    out = FlatExtreme(op, x.detach()[:1])(listed, [x])
    cotangent = torch.randn_like(out)
    (found,) = torch.autograd.grad(out, x, cotangent, create_graph=True)
    expected = torch.zeros_like(found)
    at = listed.col if place == "column" else torch.arange(EDGES)
    for row in range(ROWS):
        mine = (listed.row == row).nonzero().flatten()
        for feature in range(4):
            values = x.detach()[at[mine], feature]
            if not len(values):
                expected[0, feature] += cotangent[row, feature]
                continue
            best = values.max() if reduce == "max" else values.min()
            assert out[row, feature] == best
            equal = (values == best).nonzero().flatten()
            expected[at[mine[equal[0 if ties == "first" else -1]]], feature] += cotangent[row, feature]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("reduce", REDUCES)
def test_special_values(reduce, value):
    listed, (x,) = edges(), operands("x0", torch.float32)
    with torch.no_grad():
        x[2, 1] = x[3, 0] = value
    op = message_op("x0", ("column",), reduce, REDUCES[reduce])
    expected = reduced(x.detach()[listed.col], listed.row, reduce)
    for ours in (
        aggregate(op, gsb.Graph._of_list(listed), x.detach()),
        FlatAggregate(op, [x.detach()[:1]])(listed, [x.detach()]),
    ):
        torch.testing.assert_close(ours, expected, equal_nan=True)


def test_operands_of_any_layout():
    listed, op = edges(), message_op("mul(x1, x0)", ("column", "edge"), "sum")
    x, w = torch.randn(COLUMNS, 6), torch.randn(EDGES, 1)
    expected = reduced(w * x[listed.col], listed.row, "sum")
    flat = FlatAggregate(op, [x[:1], w[:1]])
    memory = bytearray(x.nbytes + 1)
    unaligned = torch.frombuffer(memory, dtype=torch.uint8)[1:].view(-1)
    unaligned.copy_(x.contiguous().view(torch.uint8).flatten())
    unaligned = torch.from_numpy(np.frombuffer(memory, np.float32, COLUMNS * 6, 1).reshape(COLUMNS, 6))
    assert unaligned.data_ptr() % 4
    for each in (x.t().contiguous().t(), torch.stack((x, x), 1)[:, 0], x.repeat(1, 2)[:, :6], unaligned):
        torch.testing.assert_close(flat(listed, [each, w.expand(EDGES, 1)]), expected)
    ones = torch.ones(1, 1).expand(EDGES, 1)
    torch.testing.assert_close(flat(listed, [x, ones]), reduced(x[listed.col], listed.row, "sum"))


@pytest.mark.parametrize(("end", "value"), [("row", -1), ("row", ROWS), ("col", -(2**60)), ("col", COLUMNS)])
def test_an_end_out_of_range_writes_nothing_outside(end, value):
    listed = edges()
    getattr(listed, end)[7] = value
    listed = EdgeList(listed.row, listed.col, listed.shape)
    x = torch.randn(COLUMNS, 4)
    flats = [FlatAggregate(message_op("x0", ("column",), reduce, REDUCES[reduce]), [x[:1]]) for reduce in REDUCES]
    for flat in (*flats, FlatMap(message_op("x0", ("column",)), [x[:1]])):
        with pytest.raises(OutOfRange, match=r"1 of 60 edges are out of range"):
            flat(listed, [x])
    with pytest.raises(OutOfRange):
        FlatSoftmax(torch.ones(1, 2))(listed, [torch.ones(EDGES, 2)])
    with pytest.raises(OutOfRange):
        aggregate(message_op("x0", ("column",), "sum"), gsb.Graph._of_list(listed), x)


def test_a_write_to_the_list_before_its_gradient_is_an_error():
    listed, (x,) = edges(), operands("x0")
    out = FlatAggregate(message_op("x0", ("column",), "sum"), [x.detach()[:1]])(listed, [x])
    listed.row[0] = 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_graph_is_converted_once_rows_would_have_paid():
    """The passes cost no more than twice what knowing the future would have cost."""
    listed = edges()
    graph = gsb.Graph._of_list(listed)
    x, op = torch.randn(COLUMNS, 32), message_op("x0", ("column",), "sum")
    first = aggregate(op, graph, x)
    assert 0 < listed.lost < FIXED and graph.listed is listed
    assert listed.lost == pytest.approx(loss(ROWS, EDGES, 32, torch.get_num_threads()))
    listed.lost = 1e9
    torch.testing.assert_close(aggregate(op, graph, x), first, rtol=0, atol=0)
    assert graph.listed is None


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_a_call_that_is_known_goes_on_where_the_graph_is_converted(reduce):
    """Between two calls, by this one or by another."""
    x = torch.randn(COLUMNS, 8, requires_grad=True)
    for other in (False, True):
        listed = edges()
        graph, results = gsb.Graph._of_list(listed), []
        for turn in range(6):
            if turn == 3 and other:
                graph.indptr  # noqa: B018  (asked for, it is made)
            elif turn == 3:
                listed.lost = 1e9
            out = gsb.spmm(graph, x, reduce=reduce)
            results.append((out, *torch.autograd.grad(out.square().sum(), x)))
            assert (graph.listed is None) == (turn > 2 or reduce == "prod")
        for found in results[1:]:
            torch.testing.assert_close(found, results[0])


def test_sums_are_the_same_bits_at_each_call():
    listed, (x,) = edges(), operands("x0", torch.float32)
    flat = FlatAggregate(message_op("x0", ("column",), "sum"), [x.detach()[:1]])
    expected = torch.zeros(ROWS, 5).index_add_(0, listed.row, x.detach()[listed.col])
    for _ in range(3):
        assert torch.equal(flat(listed, [x.detach()]), expected)


@pytest.mark.parametrize("make", [FlatAggregate, lambda of, likes: FlatExtreme(of, likes[0])])
def test_what_is_kept_holds_no_memory_of_its_first_operands(make):
    """Operators are kept from call to call, by shape and type."""
    x = torch.randn(100_000, 4)
    ties = "even" if make is FlatAggregate else "last"
    flat, storage = make(message_op("x0", ("edge",), "max", ties), [x.detach()[:1]]), weakref.ref(x.untyped_storage())
    flat.prepare_gradients()
    del x
    assert storage() is None
