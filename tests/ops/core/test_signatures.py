"""Calls like one that went through skip its checks: answers and errors are those of a graph that saw no call before."""

import gc
import weakref

import pytest
import torch

import gnn_sparse_backend as gsb

N, HEADS, WIDTH, RELATIONS = 30, 2, 4, 3
GENERATOR = torch.Generator().manual_seed(0)
ROW, COL = torch.randint(0, N, (2, 120), generator=GENERATOR)


def graph():
    return gsb.Graph.from_coo(ROW.clone(), COL.clone(), (N, N))


def rel_graph():
    return gsb.RelGraph.from_triples(COL.clone(), ROW.clone(), torch.arange(120) % RELATIONS, (N, N), RELATIONS)


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


def heads(*, dtype=torch.float32, width=WIDTH):
    return random(N, HEADS, width, dtype=dtype)


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
    name = known[1].__name__
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


def test_errors_are_those_of_a_first_call(known):
    _, operator, operands, seen = known
    given = list(operands())
    for at, x in enumerate(given):
        for wrong in (x[:-1], x.double(), x.int(), x.to_sparse(), None, x.tolist()):
            messages = []
            for g in (seen, known[0]()):
                with pytest.raises((TypeError, ValueError)) as error:
                    operator(g, *given[:at], wrong, *given[at + 1 :])
                messages.append((type(error.value), str(error.value)))
            assert messages[0] == messages[1]


def test_autocast_after_calls_without_it(known):
    given = known[2]()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = both(known, given)
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)
        mixed = [given[0].bfloat16(), *given[1:]]
        found, wanted = both(known, mixed)
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)
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
