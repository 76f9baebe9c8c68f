"""Fused attention and its gradients against the same composed in torch in float64; corners as frameworks have them."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.attention import operators
from gnn_sparse_backend.ops.attention.attention import attend
from gnn_sparse_backend.ops.message.message_op import in_order, message_op
from tests.ops.attention_oracle import assert_close, cases, cotangent_for, graph_of, rows_of

INF, NAN = float("inf"), float("nan")
CASES = cases(2, 3)


def run(case, graph, operands):
    score, value = case.forms
    return attend(graph, score, operands[0], operands[1], case.reduced, value)


def assert_right(case, structure, dtype=torch.float64, graph=None):
    """Forward, and the gradient of every operand."""
    operands = case.operands(structure, dtype)
    actual = run(case, graph or graph_of(structure), operands)
    exact = [[x.detach().double().requires_grad_() for x in group] for group in operands]
    expected = case.exact(structure, *exact)
    assert actual.dtype == dtype and actual.is_contiguous()
    assert_close(actual, expected, dtype)
    cotangent = cotangent_for(expected).to(dtype)
    gradients = torch.autograd.grad(actual, operands[0] + operands[1], cotangent)
    references = torch.autograd.grad(expected, exact[0] + exact[1], cotangent.double())
    for x, gradient, reference in zip(operands[0] + operands[1], gradients, references):
        assert gradient.dtype == dtype and gradient.shape == x.shape
        assert_close(gradient, reference, dtype)


@pytest.mark.parametrize("name", CASES)
def test_every_form(zoo, name):
    assert_right(CASES[name], zoo["random"])


@pytest.mark.parametrize("name", ["gat_edges", "transformer_edges"])
def test_every_structure(structure, name):
    assert_right(CASES[name], structure)


@pytest.mark.parametrize(
    "score, value",
    [
        (("leaky_relu(add(x0, x1), 0.2)", ("column", "row")), ("mul(x0, x1)", ("edge", "column"))),
        (("leaky_relu(add(x1, x0), 0.2)", ("row", "column")), ("mul(x1, x0)", ("column", "edge"))),
    ],
)
def test_the_order_of_sums_and_products_makes_no_kernels(zoo, score, value):
    """As frameworks' layers write them: the same form, and so the same bits, gradients included."""
    graph = graph_of(zoo["random"])
    first = message_op("leaky_relu(add(x0, x1), 0.2)", ("row", "column")), message_op("mul(x0, x1)", ("column", "edge"))
    second = message_op(*score), message_op(*value)
    assert [in_order(of)[0] for of in second] == [in_order(of)[0] for of in first] == [*first]
    generator = torch.Generator().manual_seed(0)
    sizes = {"row": (graph.shape[0], 2, 1), "column": (graph.shape[1], 2, 1), "edge": (graph.num_edges, 2, 1)}
    ends = {at: torch.randn(sizes[at], generator=generator, requires_grad=True) for at in ("row", "column")}
    values = {
        "column": torch.randn(graph.shape[1], 2, 3, generator=generator, requires_grad=True),
        "edge": torch.rand(sizes["edge"], generator=generator, requires_grad=True),
    }
    found = []
    for scored, valued in (first, second):
        out = attend(
            graph, scored, [ends[at] for at in scored.places], [values[at] for at in valued.places], False, valued
        )
        found.append([out, *torch.autograd.grad(out.square().sum(), [*ends.values(), *values.values()])])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name, dtype", [("gat", torch.float32), ("gat", torch.float16), ("gatv2", torch.bfloat16)])
def test_types(zoo, name, dtype):
    assert_right(cases(3, 7)[name], zoo["random"], dtype)


@pytest.mark.parametrize("heads, width", [(1, 1), (8, 8), (1, 130), (4, 24), (70, 2)])
@pytest.mark.parametrize("name", ["gat", "dot"])
def test_widths_forward(zoo, name, heads, width):
    case, structure = cases(heads, width)[name], zoo["duplicates"]
    operands = case.operands(structure, torch.float32, grad=False)
    assert_close(run(case, graph_of(structure), operands), case.exact(structure, *operands), torch.float32)


@pytest.mark.parametrize("heads, width", [(4, 16), (3, 100)])
def test_widths_backward(zoo, heads, width):
    assert_right(cases(heads, width)["dot"], zoo["duplicates"], torch.float32)


def test_int64_indices(zoo, set_index_bits):
    set_index_bits(64)
    graph = graph_of(zoo["random"])
    assert graph.indices.dtype == torch.int64
    assert_right(CASES["gat_edges"], zoo["random"], graph=graph)


def test_edges_in_csr_order(zoo):
    row, col, shape = zoo["random"]
    order = row.argsort(kind="stable")
    graph = graph_of((row[order], col[order], shape))
    assert graph.edge_ids is None
    assert_right(CASES["gat_edges"], (row[order], col[order], shape), graph=graph)


@pytest.mark.parametrize("name", ["gat", "dot", "dropout"])
def test_scores_that_keep_growing(name):
    """The running maximum is overtaken again and again, by less and by more than the margin."""
    structure = rows_of([200, 0, 60])
    case = CASES[name]
    operands = case.operands(structure, grad=False)
    steps = torch.linspace(-300, 300, 260, dtype=torch.float64).view(-1, 1, 1)
    operands[0][1].add_(steps if name == "gat" else steps * 0.2)
    for index in (slice(None), torch.arange(259, -1, -1), torch.randperm(260)):
        turned = [[x[index] if x.shape[0] == 260 else x for x in group] for group in operands]
        assert_close(run(case, graph_of(structure), turned), case.exact(structure, *turned), torch.float64)


ROWS = [
    [-INF, 1, 2],
    [1, -INF, 2],
    [2, 1, -INF],
    [-INF, -INF, -INF],
    [-INF],
    [NAN, 1, 2],
    [1, 2, NAN],
    [-INF, NAN, 1],
    [INF, 1, 2],
    [1, INF, 2],
    [INF, INF, 1],
    [-INF, INF],
    [500, -500, 0],
    [-3e38, 3e38, 0],
    [3e38, -3e38, -INF],
    [-1e30, -1e30, -1e30],
    [20, 40, 60],
    [],
    [5],
]


@pytest.mark.parametrize("values", ["finite", "with infinities"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_infinities_and_nan(values, dtype):
    structure = rows_of([len(r) for r in ROWS])
    case = cases(1, 3)["no_heads"]
    scores = torch.tensor([x for r in ROWS for x in r], dtype=dtype)
    value = case.operands(structure, dtype, grad=False)[1][0]
    if values != "finite":
        value[::4], value[1::7] = INF, NAN
    scores.requires_grad_()
    value.requires_grad_()
    actual = run(case, graph_of(structure), [[scores], [value]])
    exact = [scores.detach().double().requires_grad_(), value.detach().double().requires_grad_()]
    expected = case.exact(structure, exact[:1], exact[1:])
    nan_rows = expected.isnan().all(1)
    assert nan_rows[[3, 4, 5, 6, 7, 8, 9, 10, 11]].all() and not nan_rows[17] and expected[17].eq(0).all()
    assert_close(actual, expected, dtype)
    cotangent = cotangent_for(expected).to(dtype)
    for gradient, reference in zip(
        torch.autograd.grad(actual, [scores, value], cotangent),
        torch.autograd.grad(expected, exact, cotangent.double()),
    ):
        assert_close(gradient, reference, dtype)


def test_weight_zero_times_infinity_is_nan_in_every_framework():
    """An edge of score -inf and value inf."""
    graph = gsb.Graph.from_coo(torch.tensor([0, 0]), torch.tensor([0, 1]), (1, 2))
    out = attend(
        graph, message_op("x0", ("edge",)), [torch.tensor([-INF, 1.0])], torch.tensor([[INF, 1.0], [1.0, 1.0]])
    )
    assert out[0].isnan().tolist() == [True, False] and out[0, 1] == 1


@pytest.mark.short(1)
@pytest.mark.parametrize("name", ["gatv2", "dropout"])
def test_gradients_of_gradients(name):
    structure = rows_of([3, 0, 2])
    case, graph = cases(1, 2)[name], graph_of(structure)
    operands = case.operands(structure)
    count = len(operands[0])
    assert torch.autograd.gradgradcheck(
        lambda *x: run(case, graph, (x[:count], x[count:])), operands[0] + operands[1], fast_mode=True
    )


def test_one_tensor_in_several_places(zoo):
    structure = zoo["self_loops"]
    case, graph = CASES["dot"], graph_of(structure)
    x = case.operands(structure)[1][0]

    def ours(x):
        return run(case, graph, ([x, x], [x]))

    exact = x.detach().clone().requires_grad_()
    expected = case.exact(structure, [exact, exact], [exact])
    cotangent = cotangent_for(expected)
    (reference,) = torch.autograd.grad(expected, exact, cotangent)
    assert_close(*torch.autograd.grad(ours(x), x, cotangent), reference, torch.float64)
    assert_close(*torch.autograd.grad(ours(x), x, cotangent, create_graph=True), reference, torch.float64)


@pytest.mark.parametrize("name, places", [("dot", "aab"), ("dot", "aba"), ("dot", "baa"), ("gatv2", "abcb")])
@pytest.mark.parametrize("heads, width", [(1, 8), (2, 3)])
def test_one_variable_in_some_places(zoo, name, places, heads, width):
    """Its gradient is that of all its places, which the first alone gets; memory alone makes no variable."""
    structure = zoo["self_loops"]
    case, graph = cases(heads, width)[name], graph_of(structure)
    operands = case.operands(structure)
    count, flat = len(operands[0]), operands[0] + operands[1]
    variables = dict(zip(places, flat))

    def gradients(form, of, dtype=torch.float64):
        given = [of[letter] for letter in places]
        out = form(given[:count], given[count:])
        return torch.autograd.grad(out, [*of.values()], cotangent_for(out).to(dtype))

    exact = {letter: x.detach().double().requires_grad_() for letter, x in variables.items()}
    expected = gradients(lambda *given: case.exact(structure, *given), exact)
    for found, reference in zip(gradients(lambda *given: run(case, graph, given), variables), expected):
        assert_close(found, reference, torch.float64)
    alone = [x.detach().requires_grad_() for x in map(variables.get, places)]
    out = run(case, graph, (alone[:count], alone[count:]))
    shares = torch.autograd.grad(out, alone, cotangent_for(out))
    for letter, reference in zip(variables, expected):
        assert_close(sum(g for at, g in zip(places, shares) if at == letter), reference, torch.float64)


def test_gradients_only_where_they_are_asked_for(zoo):
    case, structure = CASES["gat_edges"], zoo["random"]
    graph, everything = graph_of(structure), CASES["gat_edges"].operands(structure)
    flat = everything[0] + everything[1]
    expected = torch.autograd.grad(run(case, graph, everything), flat, cotangent_for(torch.empty(33, 2, 3)))
    for wanted in range(4):
        given = [x.detach().requires_grad_(at == wanted) for at, x in enumerate(flat)]
        out = run(case, graph, (given[:3], given[3:]))
        out.backward(cotangent_for(out))
        assert_close(given[wanted].grad, expected[wanted], torch.float64)
        assert all(x.grad is None for at, x in enumerate(given) if at != wanted)


def test_strided_operands_and_cotangents(zoo):
    structure = zoo["random"]
    case, graph = CASES["dot"], graph_of(structure)
    operands = case.operands(structure, grad=False)
    expected = run(case, graph, operands)
    for change in (
        lambda x: torch.cat([x, x], 2)[..., :3],
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: torch.cat([x, x])[: len(x)],
        lambda x: torch.stack([x, x], 1)[:, 0],
    ):
        changed = [[change(x) for x in group] for group in operands]
        assert torch.equal(run(case, graph, changed), expected)
    x = operands[1][0].requires_grad_()
    out = run(case, graph, operands)
    (total,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
    assert torch.equal(total, torch.autograd.grad(out, x, torch.ones_like(out))[0])


def test_a_result_may_be_written_to(zoo):
    """As a layer's may, whose user adds to it in place: the gradients are those of what was computed."""
    case, structure = CASES["gat_edges"], zoo["random"]
    graph, operands = graph_of(structure), case.operands(structure)
    wanted = operands[0] + operands[1]
    out = run(case, graph, operands)
    expected = torch.autograd.grad(out, wanted, cotangent_for(out))
    found = run(case, graph, operands)
    with torch.no_grad():
        found.mul_(3)
    for gradient, right in zip(torch.autograd.grad(found, wanted, cotangent_for(found)), expected, strict=True):
        assert torch.equal(gradient, right)


def test_nothing_of_the_size_of_edges_times_features_is_kept(zoo):
    structure = zoo["skewed"]
    case, kept = cases(2, 50)["dot"], []
    operands = case.operands(structure, torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        run(case, graph_of(structure), operands)
    assert kept and max(kept) <= 100 * 100 < 900 * 2 * 50


def test_threads_do_not_change_a_bit(zoo):
    case, structure = CASES["gat_edges"], zoo["skewed"]
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            operands = case.operands(structure)
            out = run(case, graph_of(structure), operands)
            results.append((out, *torch.autograd.grad(out, operands[0] + operands[1], cotangent_for(out))))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_outputs_are_written_entirely(zoo, poisoned_memory):
    assert_right(CASES["gat_edges"], zoo["last_rows_empty"])


@pytest.mark.parametrize("score, value", [((2, 0), (2, 3)), ((2, 3), (2, 0)), ((0, 3), (0, 3))])
def test_extents_of_zero(zoo, score, value):
    """Sums of no terms are equal scores; no features, or no heads, is an empty result."""
    structure = zoo["duplicates"]
    *_, (rows, cols) = structure
    q, k, v = (
        torch.randn(n, *shape, dtype=torch.float64, requires_grad=True)
        for n, shape in ((rows, score), (cols, score), (cols, value))
    )
    out = attend(graph_of(structure), message_op("mul(x0, x1)", ("row", "column")), (q, k), v, True)
    assert out.shape == (rows, *value)
    if score == (2, 0):
        mean = gsb.spmm(graph_of(structure), v.flatten(1), reduce="mean").view(out.shape)
        torch.testing.assert_close(out, mean)
    for x, gradient in zip((q, k, v), torch.autograd.grad(out.sum(), (q, k, v))):
        assert gradient.shape == x.shape and gradient.isfinite().all()


def test_the_fused_kernel_is_what_runs(zoo, calls_to):
    """Without second derivatives nothing is composed of other operators."""
    composed = calls_to(operators, "composed")
    assert_right(CASES["dot"], zoo["random"])
    assert not composed
