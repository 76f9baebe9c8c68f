"""``gsb.gspmm`` and ``gsb.aggregate`` against torch's own gather and scatter in float64."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb
from tests.covering import covering
from tests.ops.message_oracle import (
    DTYPES,
    EMPTY,
    LAYOUTS,
    MESSAGES,
    STRUCTURES,
    assert_close_to,
    assert_step,
    case_name,
    from_coo,
    messages,
    reduced,
    values,
)

OPS = ["copy_u", "copy_e", "add", "sub", "mul", "div"]
REDUCTIONS = [
    ("sum", "even"),
    ("mean", "even"),
    ("max", "even"),
    ("max", "last"),
    ("max", "first"),
    ("min", "even"),
    ("min", "last"),
]
FEATURES = [
    ((), ()),
    ((1,), (1,)),
    ((7,), (7,)),
    ((70,), (70,)),
    ((3, 5), (3, 1)),
    ((1,), (5,)),
    ((2, 1, 3), (4, 1)),
    ((6,), ()),
]
CASES = covering(
    {
        "op": OPS,
        "reduction": REDUCTIONS,
        "features": FEATURES,
        "dtype": DTYPES,
        "index": [32, 64],
        "structure": list(STRUCTURES),
        "u_layout": list(LAYOUTS),
        "e_layout": list(LAYOUTS),
    },
    as_one=True,
)
MAGNITUDES = {**MESSAGES, "sub": torch.add}


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_matrix(case, set_index_bits):
    op, (reduce, ties), (u_dims, e_dims), dtype, bits, structure, u_layout, e_layout = case
    set_index_bits(bits)
    edges = STRUCTURES[structure]()
    graph = edges.graph
    assert graph.indices.dtype == (torch.int32 if bits == 32 else torch.int64)
    exact = {
        "u": LAYOUTS[u_layout](values(1, graph.shape[1], *u_dims)),
        "e": LAYOUTS[e_layout](values(2, graph.num_edges, *e_dims, power=op == "div")),
    }
    used = {"copy_u": "u", "copy_e": "e"}.get(op, "ue")
    given = {
        name: LAYOUTS[layout](exact[name].to(dtype)).requires_grad_()
        for name, layout in (("u", u_layout), ("e", e_layout))
        if name in used
    }
    actual = gsb.gspmm(graph, op, reduce, **given, ties=ties)

    inputs = [exact[name].clone().requires_grad_() for name in used]
    expected, shares = reduced(edges, messages(edges, MESSAGES[op], used, inputs), reduce, ties, dtype)
    sizes = [exact[name].abs().requires_grad_() for name in used]
    magnitude, _ = reduced(edges, messages(edges, MAGNITUDES[op], used, sizes), reduce, ties, dtype, shares)
    # where ties share, the share is a division in the type of the operands, by a count in that type
    roundings = 2 if ties == "even" and reduce in ("max", "min") else 0
    assert_step(actual, list(given.values()), expected, inputs, magnitude, sizes, roundings, graph.num_edges)


@pytest.mark.parametrize("structure", EMPTY)
@pytest.mark.parametrize("reduce, ties", REDUCTIONS)
def test_structures_without_edges(structure, reduce, ties, poisoned_memory):
    edges = from_coo(*EMPTY[structure])
    rows, cols = edges.graph.shape
    empty = 0.0 if reduce in ("sum", "mean") or ties == "even" else float("-inf" if reduce == "max" else "inf")
    for op in OPS:
        given = {
            name: torch.zeros(n, 3, requires_grad=True)
            for name, n in (("u", cols), ("e", 0))
            if op not in ("copy_u", "copy_e") or op[-1] == name
        }
        out = gsb.gspmm(edges.graph, op, reduce, **given, ties=ties)
        assert torch.equal(out, torch.full((rows, 3), empty))
        for gradient, x in zip(torch.autograd.grad(out, list(given.values()), torch.ones_like(out)), given.values()):
            assert torch.equal(gradient, torch.zeros_like(x))


@pytest.mark.parametrize("width", [0, 1])
def test_features_of_extent_zero_and_one(width):
    graph = messy_graph()
    u = torch.ones(13, 2, width, requires_grad=True)
    for reduce in ("sum", "max"):
        out = gsb.gspmm(graph, "copy_u", reduce, u)
        assert out.shape == (13, 2, width)
        assert torch.autograd.grad(out.sum(), u)[0].shape == u.shape


def messy_graph():
    return STRUCTURES["messy"]().graph


INF, NAN = float("inf"), float("nan")
# messages of one row, in the order of the non-zeros, and what each rule makes of them: result, gradient
NON_FINITE = {
    ("sum", "even"): [([1, INF], INF, [1, 1]), ([INF, -INF], NAN, [1, 1]), ([NAN, 1], NAN, [1, 1])],
    ("max", "even"): [
        ([1, INF], INF, [0, 1]),
        ([INF, INF], INF, [0.5, 0.5]),
        ([-INF, -INF], -INF, [0.5, 0.5]),
        ([1, NAN], NAN, None),
        ([NAN, 1], NAN, None),
    ],
    ("min", "even"): [([1, -INF], -INF, [0, 1]), ([INF, INF], INF, [0.5, 0.5]), ([NAN, -INF], NAN, None)],
    ("max", "last"): [
        ([1, INF], INF, [0, 1]),
        ([INF, INF], INF, [0, 1]),
        ([-INF, -INF], -INF, [0, 1]),
        ([NAN, 1], 1, [0, 1]),
        ([1, NAN], 1, [1, 0]),
        ([NAN, NAN], -INF, [0, 0]),
    ],
    ("min", "last"): [([INF, INF], INF, [0, 1]), ([NAN, -INF], -INF, [0, 1]), ([NAN, NAN], INF, [0, 0])],
    ("max", "first"): [
        ([2, 2], 2, [1, 0]),
        ([INF, INF], INF, [1, 0]),
        ([-INF, 1], 1, [0, 1]),
        ([NAN, 2], 2, [0, 1]),
        ([NAN, NAN], -INF, [0, 0]),
    ],
    ("min", "first"): [([2, 2], 2, [1, 0]), ([NAN, INF], INF, None), ([NAN, NAN], INF, [0, 0])],
}


@pytest.mark.parametrize("reduce, ties", NON_FINITE)
def test_infinities_and_nan(reduce, ties):
    """In a row of their own, beside a row of ones and an empty row, which they must not touch."""
    graph = gsb.Graph.from_coo(torch.tensor([0, 0, 2, 2]), torch.tensor([0, 1, 2, 3]), (3, 4))
    for first, result, gradient in NON_FINITE[reduce, ties]:
        u = torch.tensor([*first, 1, 1]).float().view(4, 1).repeat(1, 5).requires_grad_()
        out = gsb.gspmm(graph, "copy_u", reduce, u, ties=ties)
        torch.testing.assert_close(out[0], torch.full((5,), float(result)), rtol=0, atol=0, equal_nan=True)
        assert torch.equal(out[2], torch.full((5,), 2.0 if reduce == "sum" else 1.0))
        found = torch.autograd.grad(out.nan_to_num().sum() if gradient is None else out.sum(), u)[0]
        shares = {"even": [0.5, 0.5], "last": [0, 1], "first": [1, 0]}[ties] if reduce != "sum" else [1, 1]
        assert found[2:, 0].tolist() == shares
        if gradient is not None:
            assert found[:2, 0].tolist() == gradient


def test_even_ties_are_those_of_torch_scatter_reduce_even_with_nan():
    edges = STRUCTURES["messy"]()
    u = values(1, 13, 4).float()
    u[3, 1], u[5, 2], u[2, 0] = NAN, INF, -INF
    mine, theirs = (u.clone().requires_grad_() for _ in range(2))
    out = gsb.gspmm(edges.graph, "copy_u", "max", mine)
    index = edges.row[:, None].expand(-1, 4)
    expected = torch.zeros(13, 4).scatter_reduce(0, index, theirs[edges.col], "amax", include_self=False)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
    cotangent = values(2, 13, 4).float()
    torch.testing.assert_close(
        torch.autograd.grad(out, mine, cotangent), torch.autograd.grad(expected, theirs, cotangent), equal_nan=True
    )


def distinct(seed: int, *shape: int) -> torch.Tensor:
    """No two values closer than a step of gradcheck, none near zero."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel()
    return (torch.randperm(count, generator=generator).double() / count + 0.5).view(shape).requires_grad_()


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "op, reduce, ties",
    covering({"op": ["copy_u", "copy_e", "div"], "reduce": ["sum", "mean", "max"], "ties": ["even", "last", "first"]}),
)
def test_gradcheck(op, reduce, ties):
    graph = STRUCTURES["own_order"]().graph
    u, e = distinct(0, 31, 2, 3), distinct(1, 70, 1, 3)
    given = {"copy_u": (u,), "copy_e": (e,)}.get(op, (u, e))

    def function(*operands):
        if op == "copy_e":
            return gsb.gspmm(graph, op, reduce, e=operands[0], ties=ties)
        return gsb.gspmm(graph, op, reduce, *operands, ties=ties)

    assert gradcheck(function, given, fast_mode=True)
    assert gradgradcheck(function, given, fast_mode=True)


def test_any_message_over_all_places():
    edges = STRUCTURES["own_order"]()
    operands = [distinct(0, 31, 3), distinct(1, 5, 2, 1), distinct(2, 70, 1, 3), distinct(3, 3)]
    places = ["u", "v", "e", "all"]
    message = "mul(leaky_relu(sub(x0, x1), 0.1), div(x2, add(exp(x3), 1.0)))"

    def function(*operands):
        return gsb.aggregate(edges.graph, message, list(zip(places, operands)), "mean")

    def plain(x0, x1, x2, x3):
        return torch.nn.functional.leaky_relu(x0 - x1, 0.1) * (x2 / (torch.exp(x3) + 1))

    expected = reduced(edges, messages(edges, plain, places, operands), "mean", "even", torch.float64)[0]
    cotangent = values(4, *expected.shape)
    wanted = torch.autograd.grad(expected, operands, cotangent)
    for run in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
        actual = run(*operands)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(torch.autograd.grad(actual, operands, cotangent), wanted)


@pytest.mark.short(1)
@pytest.mark.parametrize("reduce, ties", [("mean", "even"), ("max", "last")])
def test_operator_of_torch_library(reduce, ties):
    graph = STRUCTURES["own_order"]().graph
    u, e = distinct(0, 31, 2, 3), distinct(1, 70, 2, 1)
    arguments = ([u, e], "mul(x0, x1)", "column,edge", reduce, "" if reduce in ("sum", "mean") else ties, False)
    arrays = graph.indptr, graph.indices, graph.edge_ids, graph.shape[1]
    torch.library.opcheck(torch.ops.gsb.aggregate.default, (*arrays, *arguments))
    eager = gsb.gspmm(graph, "mul", reduce, u, e, ties=ties)
    assert torch.equal(torch.ops.gsb.aggregate(*arrays, *arguments)[0], eager)

    def operator(u, e):
        return torch.ops.gsb.aggregate(*arrays, [u, e], *arguments[1:])[0]

    assert gradcheck(operator, (u, e), fast_mode=True) and gradgradcheck(operator, (u, e), fast_mode=True)


@pytest.mark.short(1)
@pytest.mark.parametrize("reduce, dtype", [("max", torch.bfloat16), ("min", torch.float32)])
def test_spmm_takes_maxima(reduce, dtype):
    edges = STRUCTURES["messy"]()
    x, weight = values(1, 13, 2, 3).to(dtype), values(2, 68, 2).to(dtype)
    for operands, message in (
        ((x, weight), lambda x, w: x * w[..., None]),
        ((x,), lambda x: x),
        ((x.flatten(1), weight[:, :1]), lambda x, w: x * w),
    ):
        given = [operand.clone().requires_grad_() for operand in operands]
        actual = gsb.spmm(edges.graph, *given, reduce=reduce)
        exact = [a.detach().double().requires_grad_() for a in given]
        at_edges = [exact[0][edges.col], *exact[1:]]
        expected, _ = reduced(edges, message(*at_edges), reduce, "even", dtype)
        assert_close_to(actual, expected, expected)
        cotangent = values(3, *expected.shape)
        for found, right in zip(
            torch.autograd.grad(actual, given, cotangent.to(dtype)), torch.autograd.grad(expected, exact, cotangent)
        ):
            assert_close_to(found, right, torch.full_like(right, 68.0), roundings=2)


def test_autocast_widens():
    graph, u, e = messy_graph(), values(1, 13, 3).bfloat16(), values(2, 68, 1).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = gsb.gspmm(graph, "mul", "sum", u, e)
    assert out.dtype == torch.float32 and torch.equal(out, gsb.gspmm(graph, "mul", "sum", u.float(), e))


U, E = torch.zeros(13, 3), torch.zeros(68, 3)
REFUSED = {
    "op": (("pow", "sum", U, E), {}, ValueError, "gspmm: op must be 'copy_u', .* or 'div', got 'pow'"),
    "op type": (([], "sum", U, E), {}, ValueError, r"gspmm: op must be .*, got \[\]"),
    "reduce": (
        ("add", "mul", U, E),
        {},
        ValueError,
        "gspmm: reduce must be 'sum', 'mean', 'prod', 'max' or 'min', got 'mul'",
    ),
    "ties": (("add", "max", U, E), {"ties": "all"}, ValueError, "gspmm: ties must be 'even', .*, got 'all'"),
    "no e": (("add", "sum", U), {}, ValueError, "gspmm: op 'add' wants e, which is missing"),
    "no u": (("copy_u", "sum"), {}, ValueError, "gspmm: op 'copy_u' wants u, which is missing"),
    "too much": (("copy_e", "sum", U, E), {}, ValueError, "gspmm: op 'copy_e' does not read u; leave it out"),
    "rows": (("copy_u", "sum", U[1:]), {}, ValueError, r"gspmm: u must have 13 rows, one per source .* \(12, 3\)"),
    "edges": (("add", "sum", U, E[1:]), {}, ValueError, r"gspmm: e must have 68 rows, one per edge .* \(67, 3\)"),
    "scalar": (("copy_u", "sum", U[0, 0]), {}, ValueError, "gspmm: u must have a row per source"),
    "types": (("add", "sum", U, E.double()), {}, TypeError, "gspmm: u is torch.float32 but e is torch.float64"),
    "integers": (("copy_e", "sum", None, E.long()), {}, TypeError, "gspmm: e must be float32, .* got torch.int64"),
    "shapes": (
        ("add", "sum", U, E[:, :2]),
        {},
        ValueError,
        r"gspmm: of u, e the feature shapes \(3,\), \(2,\) do not broadcast",
    ),
    "numpy": (("copy_u", "sum", U.numpy()), {}, TypeError, "gspmm: u must be a torch tensor, got ndarray"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case):
    arguments, keywords, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        gsb.gspmm(messy_graph(), *arguments, **keywords)


@pytest.mark.parametrize(
    "message, operands, words",
    [
        ("x0 + x1", [("u", U)], "aggregate: 'x0 \\+ x1' is not a message"),
        ("pow(x0)", [("u", U)], "is not a message"),
        ("max(x0,x1)", [("u", U), ("v", U)], "max is a reduction: give reduce='max'"),
        ("x0*x1", [("u", U), ("v", U)], r"write mul\(a, b\) in the place of 'x0 \* x1'"),
        ("rellu(x0)", [("u", U)], "there is no operator 'rellu'; did you mean 'relu'"),
        ("add(x0)", [("u", U)], "add wants 2 arguments, got 1"),
        ("add(x0, x1)", [("u", U)], r"the message 'add\(x0, x1\)' reads x1, but there are 1 operands"),
        ("x0", [("u", U), ("e", E)], "does not read operand x1; leave it out"),
        ("x0", [("w", U)], "operand 0 stands at 'w'"),
        ("x0", [("v", U[1:])], "x0 must have 13 rows, one per destination"),
        ("x0", [U], "operand 0 is of type Tensor"),
        ("x0", U, "got Tensor"),
        ("1.0", [], "got none"),
    ],
)
def test_aggregate_refuses(message, operands, words):
    with pytest.raises((TypeError, ValueError), match=words):
        gsb.aggregate(messy_graph(), message, operands)


def test_what_the_operator_of_torch_library_is_given_is_checked():
    graph = messy_graph()
    arrays = graph.indptr, graph.indices, graph.edge_ids, graph.shape[1]
    for arguments, words in [
        (([U], "x0", "nowhere", "sum", "", False), "stands at one of row, column"),
        (([U], "x0", "column,column", "sum", "", False), "want 2 operands, got 1|does not read"),
        (([U], "x0", "column", "sum", "last", False), "ties must be"),
        (([U[1:]], "x0", "column", "sum", "", False), "must have 13 rows"),
        (([U], "x0", "column", "mean", "", True), "a mean of the transpose"),
    ]:
        with pytest.raises(ValueError, match=words):
            torch.ops.gsb.aggregate(*arrays, *arguments)
