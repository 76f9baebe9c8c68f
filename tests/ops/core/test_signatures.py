"""Calls like one that went through skip its checks: answers and errors are those of a graph that saw no call before."""

import functools
import gc
import weakref

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.plans import planned
from gnn_sparse_backend.planner.cpu.rows import RowPlan

N, HEADS, WIDTH, RELATIONS = 30, 2, 4, 3
GENERATOR = torch.Generator().manual_seed(0)
ROW, COL = torch.randint(0, N, (2, 120), generator=GENERATOR)


def graph():
    return gsb.Graph.from_coo(ROW.clone(), COL.clone(), (N, N))


def rel_graph():
    return gsb.RelGraph.from_triples(COL.clone(), ROW.clone(), torch.arange(120) % RELATIONS, (N, N), RELATIONS)


def random(*shape, dtype=None):
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


def heads(*, dtype=torch.float32, width=WIDTH):
    return random(N, HEADS, width, dtype=dtype)


def aggregate(g, x, w, **more):
    return gsb.aggregate(g, "mul(x0, x1)", [("u", x), ("e", w)], **more)


CALLS = {
    "attention": (graph, gsb.attention, lambda **of: (heads(**of), heads(**of), heads(**of))),
    "gat_attention": (
        graph,
        gsb.gat_attention,
        lambda dtype=torch.float32, width=WIDTH: (
            random(N, HEADS, dtype=dtype),
            random(N, HEADS, dtype=dtype),
            heads(dtype=dtype, width=width),
        ),
    ),
    "gatv2_attention": (
        graph,
        gsb.gatv2_attention,
        lambda dtype=torch.float32, width=WIDTH: (
            heads(dtype=dtype, width=width),
            heads(dtype=dtype, width=width),
            random(HEADS, width, dtype=dtype),
        ),
    ),
    "spmm": (graph, gsb.spmm, lambda dtype=torch.float32, width=WIDTH: (random(N, width, dtype=dtype),)),
    "spmm_weighted": (
        graph,
        gsb.spmm,
        lambda dtype=torch.float32, width=WIDTH: (random(N, width, dtype=dtype), random(120, dtype=dtype)),
    ),
    "spmm_heads": (graph, gsb.spmm, lambda **of: (heads(**of), random(120, HEADS, dtype=of.get("dtype")))),
    "spmm_max": (
        graph,
        functools.partial(gsb.spmm, reduce="max"),
        lambda dtype=torch.float32, width=WIDTH: (random(N, width, dtype=dtype), random(120, 1, dtype=dtype)),
    ),
    "aggregate": (graph, aggregate, lambda **of: (heads(**of), random(120, HEADS, 1, dtype=of.get("dtype")))),
    "rgms": (
        rel_graph,
        gsb.rgms,
        lambda dtype=torch.float32, width=WIDTH: (
            random(N, width, dtype=dtype),
            random(RELATIONS, width, 5, dtype=dtype),
        ),
    ),
}


@pytest.fixture(params=list(CALLS))
def known(request):
    """(make a graph, operator, make operands, a graph that has seen calls of it)."""
    make, operator, operands = CALLS[request.param]
    seen = make()
    for given in (operands(), operands(dtype=torch.float64)):
        assert torch.equal(operator(seen, *given), operator(seen, *given))
    return make, operator, operands, seen


def both(known, given, **more):
    make, operator, _, seen = known
    return operator(seen, *given, **more), operator(make(), *given, **more)


@pytest.mark.parametrize("of", [{}, {"dtype": torch.float64}, {"dtype": torch.bfloat16}, {"width": 7}], ids=str)
def test_operands_like_those_before_and_others(of, known):
    found, wanted = both(known, known[2](**of))
    assert found.dtype == wanted.dtype and torch.equal(found, wanted)


def test_operands_of_another_width(known):
    """What was looked up for one width is not for another, of any operator."""
    assert torch.equal(*both(known, known[2](width=7)))


def test_operands_laid_out_in_another_way(known):
    given = [torch.stack([x, x], -1)[..., 0] for x in known[2]()]
    assert not any(x.is_contiguous() for x in given)
    assert torch.equal(*both(known, given))


def test_numbers_of_edges_and_heads_that_come_and_go(known):
    name = getattr(known[1], "__name__", "spmm")
    if name in ("spmm", "aggregate"):
        return  # whose weights are operands
    weight = random(120, *(() if name == "rgms" else (HEADS,)))
    for more in ({"edge_weight": weight}, {}, {"edge_weight": weight}):
        assert torch.equal(*both(known, known[2](), **more))
    assert not torch.equal(known[1](known[3], *(given := known[2]())), known[1](known[3], *given, edge_weight=weight))


def test_arguments_that_are_no_tensors():
    scores, value, seen = random(N, HEADS), heads(), graph()
    found = [gsb.gat_attention(seen, scores, scores, value, slope) for slope in (0.2, 0.5, 0.2)]
    assert torch.equal(found[0], found[2]) and not torch.allclose(found[0], found[1])
    found = [gsb.attention(seen, value, value, value, scale) for scale in (None, 2.0, None)]
    assert torch.equal(found[0], found[2]) and not torch.allclose(found[0], found[1])
    x, weight, seen = random(N, WIDTH), random(RELATIONS, WIDTH, 5), rel_graph()
    found = [gsb.rgms(seen, x, weight, None, reduce) for reduce in ("sum", "mean", "sum")]
    assert torch.equal(found[0], found[2]) and not torch.allclose(found[0], found[1])
    for name, given, wrong in (
        ("gat_attention", (scores, scores, value), "0.2"),
        ("attention", (value,) * 3, "2"),
        ("rgms", (x, weight, None), "median"),
    ):
        with pytest.raises(ValueError, match=wrong):
            getattr(gsb, name)(graph() if name != "rgms" else seen, *given, wrong)


def test_gradients_after_a_call_without(known):
    def gradients(g):
        operands = [x.clone().requires_grad_() for x in given]
        out = known[1](g, *operands)
        return torch.autograd.grad(out, operands, torch.ones_like(out))

    given = known[2](dtype=torch.float64)
    for found, wanted in zip(gradients(known[3]), gradients(known[0]())):
        assert torch.equal(found, wanted)
    leaves = [x.clone().requires_grad_() for x in given]
    assert torch.autograd.gradcheck(lambda *x: known[1](known[3], *x), leaves)


def outcome(operator, g, given):
    """The result as a list, or the error as its type and text."""
    try:
        return operator(g, *given).tolist()
    except (TypeError, ValueError) as error:
        return type(error), str(error)


def test_errors_are_those_of_a_first_call(known):
    _, operator, operands, seen = known
    given = list(operands())
    for at, x in enumerate(given):
        refused = 0
        for wrong in (x[:-1], x.double(), x.int(), x.to_sparse(), None, x.tolist()):
            operands = *given[:at], wrong, *given[at + 1 :]
            found = outcome(operator, seen, operands)
            assert found == outcome(operator, known[0](), operands)
            refused += isinstance(found, tuple)
        assert refused >= 5  # one operand may be of another type, and no weight is one


@pytest.mark.parametrize("reduce", ["median", ["sum"], None, 1])
def test_reductions_that_are_none(reduce):
    x, seen = random(N, WIDTH), graph()
    gsb.spmm(seen, x)
    gsb.aggregate(seen, "x0", [("u", x)])
    for call in (lambda: gsb.spmm(seen, x, None, reduce), lambda: gsb.aggregate(seen, "x0", [("u", x)], reduce)):
        with pytest.raises(ValueError, match="reduce must be"):
            call()


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_another_plan_is_taken_up(reduce, set_threads):
    """What is kept for a call goes by the plan that the graph has, also where threads change."""
    seen, x = graph(), random(N, WIDTH)
    wanted = gsb.spmm(graph(), x, None, reduce)
    for _ in range(3):
        gsb.spmm(seen, x, None, reduce)
    with planned(seen, f"{reduce}:column", WIDTH, torch.float32, RowPlan(2, 4)):
        assert torch.equal(gsb.spmm(seen, x, None, reduce), wanted)
        assert gsb.last_run().steps[0].plan == RowPlan(2, 4)
    gsb.spmm(seen, x, None, reduce)
    assert gsb.last_run().steps[0].plan == RowPlan(1)
    set_threads(2)
    assert torch.equal(gsb.spmm(seen, x, None, reduce), wanted)
    seen.release()
    assert not seen.calls and torch.equal(gsb.spmm(seen, x, None, reduce), wanted)


def test_autocast_after_calls_without_it(known):
    given = known[2]()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = both(known, given)
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)
        mixed = [given[0].bfloat16(), *given[1:]]
        found, wanted = both(known, mixed)
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)
    if len(given) > 1:
        with pytest.raises(TypeError):
            both(known, mixed)
    assert torch.equal(*both(known, given))


def test_a_graph_that_has_gone_leaves_nothing_behind(known):
    make, operator, operands, _ = known
    g = make()
    operator(g, *operands())
    operator(g, *operands())
    gone = weakref.ref(g)
    gc.disable()
    try:
        del g
        assert gone() is None  # no cycle, which would keep a GPU's memory until the collector runs
    finally:
        gc.enable()
