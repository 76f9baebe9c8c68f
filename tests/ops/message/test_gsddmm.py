"""``gsb.gsddmm`` and ``gsb.edge_map`` against torch's own gather in float64."""

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
    assert_step,
    case_name,
    from_coo,
    messages,
    values,
)

OPS = ["copy_lhs", "copy_rhs", "add", "sub", "mul", "div", "dot"]
TARGETS = ["uv", "vu", "ue", "ev", "uu", "ee"]
FEATURES = [
    ((1,), (1,)),
    ((7,), (7,)),
    ((70,), (70,)),
    ((3, 5), (3, 1)),
    ((1,), (5,)),
    ((2, 1, 3), (4, 1)),
    ((6,), ()),
    ((2, 33), (2, 33)),
]
CASES = covering(
    {
        "op": OPS,
        "targets": TARGETS,
        "features": FEATURES,
        "dtype": DTYPES,
        "index": [32, 64],
        "structure": list(STRUCTURES),
        "lhs_layout": list(LAYOUTS),
        "rhs_layout": list(LAYOUTS),
    },
    as_one=True,
)
MAGNITUDES = {**MESSAGES, "sub": torch.add}


def rows(graph, target: str) -> int:
    return {"u": graph.shape[1], "v": graph.shape[0], "e": graph.num_edges}[target]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_matrix(case, set_index_bits):
    op, targets, features, dtype, bits, structure, *layouts = case
    set_index_bits(bits)
    edges = STRUCTURES[structure]()
    graph = edges.graph
    exact = [
        LAYOUTS[layout](values(seed, rows(graph, target), *dims, power=op == "div" and seed == 2))
        for seed, target, dims, layout in zip((1, 2), targets, features, layouts)
    ]
    used = {"copy_lhs": [0], "copy_rhs": [1]}.get(op, [0, 1])
    given = [
        LAYOUTS[layouts[side]](exact[side].to(dtype)).requires_grad_() if side in used else None for side in (0, 1)
    ]
    actual = gsb.gsddmm(graph, op, *given, lhs_target=targets[0], rhs_target=targets[1])

    places = [targets[side] for side in used]
    inputs = [exact[side].clone().requires_grad_() for side in used]
    expected = messages(edges, MESSAGES[op], places, inputs)
    sizes = [exact[side].abs().requires_grad_() for side in used]
    magnitude = messages(edges, MAGNITUDES[op], places, sizes)
    assert_step(actual, [given[side] for side in used], expected, inputs, magnitude, sizes, roundings=1)


@pytest.mark.parametrize("structure", EMPTY)
@pytest.mark.parametrize("op", OPS)
def test_structures_without_edges(structure, op):
    graph = from_coo(*EMPTY[structure]).graph
    u, v = torch.zeros(graph.shape[1], 2, 3, requires_grad=True), torch.zeros(graph.shape[0], 2, 3, requires_grad=True)
    given = {"copy_lhs": (u,), "copy_rhs": (None, v)}.get(op, (u, v))
    out = gsb.gsddmm(graph, op, *given)
    assert out.shape == (0, 2, 1 if op == "dot" else 3)
    used = [x for x in given if x is not None]
    for gradient, x in zip(torch.autograd.grad(out, used, torch.ones_like(out)), used):
        assert torch.equal(gradient, torch.zeros_like(x))


def test_a_dot_product_and_a_product_of_the_same_shapes_have_their_own_gradients():
    """Both are one form, with cotangents of other shapes."""
    edges = STRUCTURES["messy"]()
    u, v = values(1, 13, 1).requires_grad_(), values(2, 13, 6).requires_grad_()
    for op in ("mul", "dot", "mul"):
        for lhs, rhs in ((u, v), (u, u), (v, v)):
            inputs = [lhs] if lhs is rhs else [lhs, rhs]
            actual = gsb.gsddmm(edges.graph, op, lhs, rhs)
            expected = messages(edges, MESSAGES[op], "uv", [lhs, rhs])
            cotangent = values(3, *expected.shape)
            torch.testing.assert_close(
                torch.autograd.grad(actual, inputs, cotangent), torch.autograd.grad(expected, inputs, cotangent)
            )


def test_dot_products_of_width_zero():
    graph = STRUCTURES["messy"]().graph
    u = torch.zeros(13, 2, 0, requires_grad=True)
    out = gsb.gsddmm(graph, "dot", u, u)
    assert torch.equal(out, torch.zeros(68, 2, 1))
    assert torch.autograd.grad(out.sum(), u)[0].shape == (13, 2, 0)
    assert gsb.gsddmm(graph, "add", u, u).shape == (68, 2, 0)


@pytest.mark.parametrize("op", OPS)
def test_infinities_and_nan_stay_at_their_edges(op):
    edges = STRUCTURES["messy"]()
    u, v = values(1, 13, 5), values(2, 13, 5, power=True)
    u[2, 1], u[3, 0], v[4, 2], v[5, 3] = float("inf"), float("nan"), float("-inf"), 0
    given, places = {"copy_lhs": ((u,), "u"), "copy_rhs": ((None, v), "v")}.get(op, ((u, v), "uv"))
    inputs = [x for x in given if x is not None]
    expected = messages(edges, MESSAGES[op], places, inputs)
    actual = gsb.gsddmm(edges.graph, op, *(None if x is None else x.float() for x in given))
    torch.testing.assert_close(actual, expected.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.short(2)
@pytest.mark.parametrize("op, targets", [("copy_rhs", "uv"), ("div", "ev"), ("dot", "vu"), ("dot", "uu")])
def test_gradcheck(op, targets):
    graph = STRUCTURES["own_order"]().graph
    operands = [
        (values(seed, rows(graph, target), 2, dims, power=True)).requires_grad_()
        for seed, (target, dims) in enumerate(zip(targets, (3, 1)))
    ]
    if op == "copy_rhs":
        operands = operands[1:]

    def function(*operands):
        operands = (None, *operands) if op == "copy_rhs" else operands
        return gsb.gsddmm(graph, op, *operands, lhs_target=targets[0], rhs_target=targets[1])

    assert gradcheck(function, operands, fast_mode=True)
    assert gradgradcheck(function, operands, fast_mode=True)


@pytest.mark.short(1)
@pytest.mark.parametrize("sum_last", [False, True])
def test_any_message_in_every_mode(sum_last):
    edges = STRUCTURES["own_order"]()
    operands = [values(1, 31, 2, 3), values(2, 5, 3), values(3, 2, 1)]
    operands = [x.requires_grad_() for x in operands]
    places = ["u", "v", "all"]

    def function(*operands):
        return gsb.edge_map(edges.graph, "mul(x2, tanh(sub(x0, x1)))", list(zip(places, operands)), sum_last)

    expected = messages(edges, lambda x0, x1, x2: x2 * torch.tanh(x0 - x1), places, operands)
    expected = expected.sum(-1, keepdim=True) if sum_last else expected
    cotangent = values(4, *expected.shape)
    wanted = torch.autograd.grad(expected, operands, cotangent)
    for run in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
        actual = run(*operands)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(torch.autograd.grad(actual, operands, cotangent), wanted)


@pytest.mark.parametrize("reduced", [[], [True, False]])
def test_operator_of_torch_library(reduced):
    graph = STRUCTURES["own_order"]().graph
    u, v = values(1, 31, 2, 3).requires_grad_(), values(2, 5, 3).requires_grad_()
    arrays = graph.indptr, graph.indices, graph.edge_ids, graph.shape[1]
    arguments = "mul(x0, x1)", "column,row", reduced
    torch.library.opcheck(torch.ops.gsb.edge_map.default, (*arrays, [u, v], *arguments))

    def operator(u, v):
        return torch.ops.gsb.edge_map(*arrays, [u, v], *arguments)

    assert gradcheck(operator, (u, v), fast_mode=True) and gradgradcheck(operator, (u, v), fast_mode=True)
    with pytest.raises(ValueError, match="reduced must say of each of 2 feature dimensions"):
        torch.ops.gsb.edge_map(*arrays, [u, v], *arguments[:2], [True])


U, V, E = torch.zeros(13, 3), torch.zeros(13, 3), torch.zeros(68, 3)
REFUSED = {
    "op": (("max", U, V), {}, ValueError, "gsddmm: op must be 'copy_lhs', .* or 'dot', got 'max'"),
    "target": (
        ("add", U, V),
        {"rhs_target": "src"},
        ValueError,
        "gsddmm: rhs_target must be 'u', 'v' or 'e', got 'src'",
    ),
    "target type": (("add", U, V), {"lhs_target": None}, ValueError, "gsddmm: lhs_target must be .*, got None"),
    "missing": (("add", U), {}, ValueError, "gsddmm: op 'add' wants rhs, which is missing"),
    "missing lhs": (("copy_lhs", None), {}, ValueError, "gsddmm: op 'copy_lhs' wants lhs, which is missing"),
    "too much": (("copy_lhs", U, V), {}, ValueError, "gsddmm: op 'copy_lhs' does not read rhs; leave it out"),
    "edges": (("add", U, E[1:]), {"rhs_target": "e"}, ValueError, r"gsddmm: rhs must have 68 rows, one per edge"),
    "rows": (("add", U[1:], V), {}, ValueError, "gsddmm: lhs must have 13 rows, one per source"),
    "types": (("mul", U, V.half()), {}, TypeError, "gsddmm: lhs is torch.float32 but rhs is torch.float16"),
    "shapes": (("mul", U, V[:, :2]), {}, ValueError, r"gsddmm: of lhs, rhs the feature shapes \(3,\), \(2,\) do not"),
    "dot": (
        ("dot", U[:, 0], V[:, 0]),
        {},
        ValueError,
        r"gsddmm: there is no feature dimension to sum over: .* \(13,\)",
    ),
    "graph": (("copy_lhs", U), {"graph": "g"}, TypeError, "gsddmm: graph must be a gsb.Graph, got str"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case):
    arguments, keywords, error, words = REFUSED[case]
    graph = keywords.pop("graph", None) or STRUCTURES["messy"]().graph
    with pytest.raises(error, match=words):
        gsb.gsddmm(graph, *arguments, **keywords)
