"""Attention in users' own words, as one operator; and what is left of the steps between."""

import io

import dgl
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import pytest
import torch
from torch.nn import functional

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import LazyTensor
from tests.integrations.dgl.oracle import agree, calls, multigraph, normal, run
from tests.integrations.dgl.test_attention import ONE, WIDTH, layer
from tests.integrations.dgl.test_layers import OnGraph


def user_attention(graph, score, values="h", scope=None):
    """Attention as users write it: ``score`` computes the scores of a graph with node features h."""

    def compute(h, *others):
        scope_of = graph.local_scope()
        with scope_of:
            graph.srcdata["h"] = h
            graph.dstdata["h"] = h[: graph.num_dst_nodes()]
            for at, other in enumerate(others):
                graph.edata[f"w{at}"] = other
            graph.edata["p"] = dgl.nn.functional.edge_softmax(graph, score(graph))
            graph.update_all(fn.u_mul_e(values, "p", "m"), fn.sum("m", "out"))
            return graph.dstdata["out"]

    return compute


def apply_edges(graph, message):
    graph.apply_edges(message)
    return graph.edata[message.out_field]


SCORES = {
    "dot product": lambda g: apply_edges(g, fn.u_dot_v("h", "h", "s")) / 2.0,
    "sum of a product": lambda g: apply_edges(g, fn.v_mul_u("h", "h", "s")).sum(-1, keepdim=True) * 0.5,
    "of the difference": lambda g: -apply_edges(g, fn.u_sub_v("h", "h", "s")).abs().sum(-1).unsqueeze(-1),
    "squared distance": lambda g: (-(apply_edges(g, fn.u_sub_v("h", "h", "s")) ** 2)).sum(dim=-1, keepdim=True),
    "tanh": lambda g: torch.tanh(apply_edges(g, fn.u_add_v("h", "h", "s"))).sum(-1, keepdim=True),
    "for each feature": lambda g: functional.leaky_relu(apply_edges(g, fn.u_add_v("h", "h", "s")), 0.1),
    "of the source alone": lambda g: apply_edges(g, fn.copy_u("h", "s")).sum(-1, keepdim=True),
    "sigmoid": lambda g: apply_edges(g, fn.u_mul_v("h", "h", "s")).sigmoid(),
}


@pytest.mark.parametrize("name", SCORES)
def test_attention_of_users(name, square):
    assert agree(user_attention(square, SCORES[name]), normal(square.num_nodes(), 3)) == ONE


@pytest.mark.parametrize(
    "name, score, shapes",
    [
        ("added", lambda g: functional.leaky_relu(apply_edges(g, fn.u_add_v("h", "h", "s")) + g.edata["w0"]), [(3,)]),
        ("message of the edge", lambda g: apply_edges(g, fn.e_mul_u("w0", "h", "s")).sum(-1, keepdim=True), [(3,)]),
        (
            "in two steps",
            lambda g: (
                apply_edges(g, fn.u_add_v("h", "h", "s")),
                apply_edges(g, fn.e_add_u("s", "h", "t")),
                apply_edges(g, fn.v_mul_e("h", "t", "r")),
            )[-1].sum(-1, keepdim=True),
            [],
        ),
        ("two kinds", lambda g: apply_edges(g, fn.u_dot_v("h", "h", "s")) + g.edata["w0"], [(1,)]),
    ],
)
def test_scores_with_edge_features(name, score, shapes):
    graph = multigraph(9, 40)
    counts = agree(user_attention(graph, score), normal(9, 3), *[normal(40, *shape, seed=2) for shape in shapes])
    assert all(not reasons for _, reasons in counts.values())
    assert counts == ONE or name == "two kinds"


def test_values_of_the_source_and_the_edge_together():
    """EdgeGATConv's way: messages of both, times the attention, summed as edge features."""
    graph = multigraph(9, 40)
    make = lambda: dglnn.EdgeGATConv(WIDTH, 3, 4, 2, allow_zero_in_degree=True)
    call = lambda layer, graph, x, e: layer(graph, x, e)
    assert agree(OnGraph(layer(make), graph, call), normal(9, WIDTH), normal(40, 3, seed=1)) == ONE


def test_values_at_the_edges_that_are_returned_too():
    graph = dgl.add_self_loop(multigraph(9, 40))
    make = lambda: dglnn.EGATConv(WIDTH, 3, 4, 5, 2)
    call = lambda layer, graph, x, e: torch.cat([each.flatten() for each in layer(graph, x, e)])
    counts = agree(OnGraph(layer(make), graph, call), normal(9, WIDTH), normal(49, 3, seed=1))
    assert counts == {"attention": (1, {}), "gsddmm": (1, {})}


@pytest.mark.short(8)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize(
    "message",
    [fn.copy_e("s", "m"), fn.u_add_e("h", "s", "m"), fn.u_mul_e("h", "s", "m"), fn.u_div_e("h", "s", "m")],
    ids=lambda m: m.name,
)
def test_messages_of_lazy_edge_features(message, reduce, square):
    def compute(h):
        with square.local_scope():
            square.ndata["h"] = h
            square.apply_edges(fn.u_sub_v("h", "h", "s"))
            square.edata["s"] = square.edata["s"].exp() + 1
            square.update_all(message, getattr(fn, reduce)("m", "out"))
            return square.ndata["out"]

    counts = agree(compute, normal(square.num_nodes(), 3).round())
    assert counts == ({"gspmm_mean": (1, {})} if reduce == "mean" else {"gspmm": (1, {})})


def test_what_leaves_its_scope_is_an_ordinary_tensor():
    graph = multigraph(9, 40)

    def predictor(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(fn.u_dot_v("h", "h", "score"))
            return graph.edata["score"]

    assert agree(predictor, normal(9, 3)) == {"gsddmm": (1, {})}
    with gsb.enabled("dgl"):
        for h in (normal(9, 3), normal(9, 3).requires_grad_()):
            score = predictor(h)
            assert type(score) is torch.Tensor and score.requires_grad == h.requires_grad and score.is_contiguous()
            with torch.no_grad():
                h.zero_()
            assert score.abs().sum() > 0  # it does not read its operands any more
            torch.save(score, io.BytesIO())
            score.detach().numpy()


def test_what_leaves_in_another_name_is_a_tensor_in_every_way_but_its_type():
    graph, h = multigraph(9, 40), normal(9, 3)

    def predictor(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(fn.u_dot_v("h", "h", "score"))
            return graph.edata.pop("score").sigmoid()

    expected = predictor(h)
    with gsb.enabled("dgl"):
        found = predictor(h)
        assert isinstance(found, torch.Tensor) and found.shape == (40, 1) and found.tolist()
        torch.testing.assert_close(found + 0, expected)
        stored = io.BytesIO()
        torch.save(found, stored)
        stored.seek(0)
        torch.testing.assert_close(torch.load(stored), expected)
        assert repr(found) == repr(expected) or "..." in repr(found)
    assert agree(predictor, h) == {"gsddmm": (1, {})}


def test_a_step_that_a_variable_still_holds_is_not_computed_for_that():
    graph = multigraph(9, 40)

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(fn.u_add_v("h", "h", "e"))
            step = graph.edata["e"]
            graph.edata["s"] = functional.leaky_relu(step).sum(-1, keepdim=True)
            graph.edata["p"] = dgl.ops.edge_softmax(graph, graph.edata["s"])
            graph.update_all(fn.u_mul_e("h", "p", "m"), fn.sum("m", "out"))
            return graph.ndata["out"]

    assert agree(compute, normal(9, 3)) == ONE


def test_attention_that_users_return_is_an_ordinary_tensor():
    graph = multigraph(9, 40)

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.edata["p"] = dgl.ops.edge_softmax(graph, apply_edges(graph, fn.u_dot_v("h", "h", "s")))
            graph.update_all(fn.u_mul_e("h", "p", "m"), fn.sum("m", "out"))
            return graph.ndata["out"], graph.edata["p"]

    def flat(h):
        out, weights = compute(h)
        assert type(weights) is torch.Tensor
        return torch.cat([out.flatten(), weights.flatten()])

    assert agree(flat, normal(9, 3)) == {"attention": (1, {}), "gsddmm": (1, {}), "edge_softmax_forward": (1, {})}


def test_edge_features_outside_of_a_scope_are_never_lazy():
    graph = multigraph(9, 40)
    graph.ndata["h"] = normal(9, 3)
    with gsb.enabled("dgl"):
        graph.apply_edges(fn.u_add_v("h", "h", "s"))
        assert type(graph.edata["s"]) is torch.Tensor
        with graph.local_scope():
            graph.apply_edges(fn.u_add_v("h", "h", "t"))
            assert type(graph.edata["s"]) is torch.Tensor and type(graph.edata["t"]) is LazyTensor
            with graph.local_scope():
                graph.apply_edges(fn.e_add_u("t", "h", "t"))
                assert type(graph.edata["t"]) is LazyTensor
        assert "t" not in graph.edata
        graph.apply_edges(fn.u_add_v("h", "h", "t"))
        assert type(graph.edata["t"]) is torch.Tensor
        local = graph.local_var()  # of which nobody knows when it ends
        local.apply_edges(fn.u_dot_v("h", "h", "r"))
        assert type(local.edata["r"]) is torch.Tensor and "r" not in graph.edata
    with graph.local_scope():
        graph.apply_edges(fn.u_add_v("h", "h", "r"))
        assert type(graph.edata["r"]) is torch.Tensor


def test_a_scope_left_by_an_error_leaves_the_graph_as_dgl_does():
    graph = multigraph(9, 40)
    graph.ndata["h"] = normal(9, 3)
    with gsb.enabled("dgl"), pytest.raises(KeyError):
        with graph.local_scope():
            graph.edata["nothing"]
    graph.apply_edges(fn.u_add_v("h", "h", "s"))
    assert type(graph.edata["s"]) is torch.Tensor


@pytest.mark.parametrize(
    "step",
    [
        lambda e: e.clamp(max=0.5),
        lambda e: torch.where(e > 0, e, e - 1),
        lambda e: e * e.detach(),
        lambda e: e.cumsum(0),
        lambda e: e[torch.arange(39, -1, -1)],
        lambda e: e.float().double(),
        lambda e: functional.dropout(e, 0.0),
        lambda e: e.t().contiguous().t(),
        lambda e: torch.stack([e, e]).sum(0),
        lambda e: functional.linear(e, torch.ones(1, 1, dtype=e.dtype)),
        lambda e: e.mean(-1, keepdim=True),
        lambda e: e.mul_(2),
        lambda e: e.masked_fill(e < 0, 1.0),
        lambda e: functional.relu(e, inplace=True),
    ],
    ids=range(14),
)
def test_any_step_between_gives_what_dgl_gives(step):
    graph = multigraph(9, 40)
    score = lambda g: step(apply_edges(g, fn.u_dot_v("h", "h", "s")))
    counts = agree(user_attention(graph, score), normal(9, 3))
    assert all(not reasons for _, reasons in counts.values())


def test_scores_of_another_graph_are_computed_first():
    graph, other = multigraph(9, 40), multigraph(9, 40, seed=8)

    def compute(h):
        with graph.local_scope(), other.local_scope():
            graph.ndata["h"] = other.ndata["h"] = h
            graph.apply_edges(fn.u_dot_v("h", "h", "s"))
            other.apply_edges(fn.copy_u("h", "t"))
            other.edata["p"] = dgl.ops.edge_softmax(other, graph.edata["s"] * other.edata["t"])
            other.update_all(fn.u_mul_e("h", "p", "m"), fn.sum("m", "out"))
            reverse = dgl.reverse(graph)
            return other.ndata["out"] + dgl.ops.u_mul_e_sum(reverse, h, graph.edata["s"])

    counts = agree(compute, normal(9, 3))
    assert all(not reasons for _, reasons in counts.values())


def test_softmax_over_the_edges_out_of_each_source():
    graph = multigraph(9, 40)

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(fn.u_dot_v("h", "h", "s"))
            graph.edata["p"] = dgl.ops.edge_softmax(graph, graph.edata["s"], norm_by="src")
            graph.update_all(fn.u_mul_e("h", "p", "m"), fn.sum("m", "out"))
            return graph.ndata["out"]

    counts = agree(compute, normal(9, 3))
    assert counts == {"gsddmm": (1, {}), "edge_softmax_forward": (1, {}), "gspmm": (1, {})}


def test_operands_written_to_before_they_are_read_are_read_as_they_were():
    graph = multigraph(9, 40)

    def compute(h):
        h = h * 1
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(fn.u_add_v("h", "h", "s"))
            h.data.add_(1)
            return graph.edata["s"].max()

    agree(compute, normal(9, 3))


def test_modes_of_recording():
    graph, h = multigraph(9, 40), normal(9, 3).requires_grad_()
    with gsb.enabled("dgl"), graph.local_scope():
        graph.ndata["h"] = h
        with torch.no_grad():
            graph.apply_edges(fn.u_dot_v("h", "h", "s"))
        assert not (graph.edata["s"] * 2).requires_grad
        graph.apply_edges(fn.u_dot_v("h", "h", "t"))
        with torch.no_grad():
            assert not (graph.edata["t"] * 2).requires_grad
        assert (graph.edata["t"] * 2).requires_grad
    with gsb.enabled("dgl"), torch.inference_mode():
        assert user_attention(graph, SCORES["dot product"])(h).is_inference()


def test_gradients_of_gradients():
    graph = multigraph(9, 40)
    compute = user_attention(graph, SCORES["sum of a product"])
    with gsb.enabled("dgl"):
        torch.autograd.gradgradcheck(compute, normal(9, 2).requires_grad_(), fast_mode=True)
        assert calls() == {"attention": (calls()["attention"][0], {})}


def test_hooks_see_the_gradient_of_the_scores():
    graph, seen = multigraph(9, 40), []

    def score(g):
        scores = apply_edges(g, fn.u_dot_v("h", "h", "s"))
        scores.register_hook(lambda grad: seen.append(grad.clone()))
        return scores

    run(user_attention(graph, score), [normal(9, 3)])
    with gsb.enabled("dgl"):
        run(user_attention(graph, score), [normal(9, 3)])
    torch.testing.assert_close(*seen)


def test_one_relation_of_several():
    edges = multigraph(9, 40).edges()
    graph = dgl.heterograph({("a", "r", "a"): edges, ("a", "s", "a"): edges[::-1]}, num_nodes_dict={"a": 9})

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(fn.u_dot_v("h", "h", "s"), etype="s")
            scores = graph.edges["s"].data["s"]
            graph.edges["s"].data["p"] = dgl.ops.edge_softmax(graph["s"], scores)
            graph.update_all(fn.u_mul_e("h", "p", "m"), fn.sum("m", "out"), etype="s")
            graph.edges["r"].data["s"] = scores * 2
            graph.update_all(fn.u_mul_e("h", "s", "m"), fn.sum("m", "all"))
            return graph.ndata["out"] + graph.ndata["all"]

    counts = agree(compute, normal(9, 3))
    assert counts["attention"] == (1, {}) and all(not reasons for _, reasons in counts.values())
