"""A function of a dot product times a feature, summed: steps of a user's program as one operator (FusedMM)."""

import dgl
import dgl.function as fn
import pytest
import torch
from torch.nn import functional

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import LazyTensor
from gnn_sparse_backend.integrations.scopes import copied, copy_among
from tests.integrations.dgl.oracle import agree, bipartite, calls, multigraph, normal
from tests.integrations.dgl.test_attention_users import apply_edges

ONE, TWO = {"gspmm": (1, {})}, {"gspmm": (1, {}), "gsddmm": (1, {})}
DOT, PRODUCT = fn.u_dot_v("h", "h", "s"), fn.u_mul_e("h", "a", "m")


def fused(graph, of=torch.sigmoid, dot=DOT, message=PRODUCT, reduce=fn.sum, between=lambda h, g: None):
    """FusedMM as users write it. ``between(h, graph)`` runs before the last step."""

    def compute(h):
        with graph.local_scope():
            graph.srcdata["h"] = h
            graph.dstdata["h"] = h if graph.is_homogeneous else h[: graph.num_dst_nodes()]
            graph.edata["a"] = of(apply_edges(graph, dot))
            between(h, graph)
            graph.update_all(message, reduce("m", "y"))
            return graph.dstdata["y"]

    return compute


@pytest.mark.parametrize("of", [torch.sigmoid, torch.tanh, lambda s: functional.leaky_relu(s * 0.5, 0.1).exp() - 1])
def test_one_operator(of, square):
    assert agree(fused(square, of), normal(square.num_nodes(), 3)) == ONE


@pytest.mark.parametrize("reduce", [fn.mean, fn.max])
def test_other_reductions(reduce):
    counts = agree(fused(multigraph(9, 40), reduce=reduce), normal(9, 5))
    assert counts == ({"gspmm_mean": (1, {})} if reduce is fn.mean else ONE)


@pytest.mark.parametrize(
    ("dot", "message"),
    [
        (fn.v_dot_u("h", "h", "s"), PRODUCT),
        (DOT, fn.v_mul_e("h", "a", "m")),
        (DOT, fn.u_add_e("h", "a", "m")),
        (fn.u_sub_v("h", "h", "s"), PRODUCT),
        (DOT, lambda edges: {"m": edges.data["a"] * (edges.src["h"] - edges.dst["h"])}),
    ],
    ids=["v_dot_u", "of the destination", "added", "no sum", "own message"],
)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (1,)])
def test_messages_and_heads(dot, message, shape):
    counts = agree(fused(multigraph(9, 40), dot=dot, message=message), normal(9, *shape))
    assert counts == ONE or (shape == (1,) and counts == TWO)  # rows of one number are gathered as an edge's are


def test_blocks_and_relations(zoo):
    row, col, shape = zoo["wide"]
    block = dgl.to_block(multigraph(9, 12), dst_nodes=torch.arange(9))
    assert agree(fused(block), normal(block.num_src_nodes(), 3)) == ONE
    graph = bipartite(row, col, shape)

    def compute(x, y):
        with graph.local_scope():
            graph.srcdata["h"], graph.dstdata["h"] = x, y
            graph.edata["a"] = torch.tanh(apply_edges(graph, DOT))
            graph.update_all(PRODUCT, fn.sum("m", "y"))
            return graph.dstdata["y"]

    assert agree(compute, normal(shape[1], 3), normal(shape[0], 3, seed=1)) == ONE


def test_a_relation_of_several():
    ends = multigraph(9, 40).edges()
    graph = dgl.heterograph({("a", "r", "a"): ends, ("a", "s", "a"): ends[::-1]}, num_nodes_dict={"a": 9})

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(DOT, etype="s")
            graph.edges["s"].data["a"] = torch.sigmoid(graph.edges["s"].data["s"])
            graph.update_all(PRODUCT, fn.sum("m", "y"), etype="s")
            return graph.ndata["y"]

    assert agree(compute, normal(9, 3)) == ONE


def test_functions_of_dgl_in_a_scope():
    graph = multigraph(9, 40)

    def compute(h):
        with graph.local_scope():
            return dgl.ops.u_mul_e_sum(graph, h, torch.sigmoid(dgl.ops.u_dot_v(graph, h, h)))

    assert agree(compute, normal(9, 3)) == ONE


def test_no_edges():
    agree(fused(dgl.graph(([], []), num_nodes=4)), normal(4, 3))


def test_rows_that_the_sum_does_not_read_go_by_two_kernels():
    def others(h, graph):
        graph.srcdata["h"] = h * 2

    assert agree(fused(multigraph(9, 40), between=others), normal(9, 3)) == TWO


@pytest.mark.parametrize(
    "write",
    [
        lambda h: h.add_(1),
        lambda h: h.data.add_(1),
        lambda h: h.detach().numpy().__iadd__(1),
    ],
    ids=["PyTorch's", "data", "NumPy's"],
)
def test_features_written_to_between_two_steps(write):
    """The dot product is of what they were, the message of what they are."""
    graph = multigraph(9, 40)
    compute = fused(graph, between=lambda h, g: write(h))
    with torch.no_grad():
        expected = compute(normal(9, 3))
        with gsb.enabled("dgl"):
            torch.testing.assert_close(compute(normal(9, 3)), expected)
            assert set(calls()) == set(TWO)


def test_a_copy_stands_for_what_it_still_is():
    x = normal(9, 3).requires_grad_() * 1
    copy = copied(x)
    assert copied(copy) is copy and copy_among(x, (copy,)) is copy and copy_among(x.clone(), (copy,)) is not copy
    with torch.no_grad():  # where it would have another history
        assert copy_among(x, (copy,)) is x
    x.mul_(1)
    assert copy_among(x, (copy,)) is x


def test_gradients_of_any_order():
    graph = multigraph(9, 40)
    x = normal(9, 2).requires_grad_()
    with gsb.enabled("dgl"):
        torch.autograd.gradcheck(fused(graph), x, fast_mode=True)
        torch.autograd.gradgradcheck(fused(graph), x, fast_mode=True)
        assert set(calls()) == set(ONE)


@pytest.mark.parametrize("inside", [True, False])
def test_steps_that_are_looked_at(inside):
    """Their gradients, by a hook, ``retain_grad`` and ``autograd.grad``."""
    graph = multigraph(9, 40)

    def compute(h):
        found = []
        h = h * 1
        h.retain_grad()
        with graph.local_scope():
            graph.ndata["h"] = h
            s = apply_edges(graph, DOT)
            a = graph.edata["a"] = torch.sigmoid(s)
            s.register_hook(lambda grad: found.append(grad.clone()))
            a.retain_grad()
            graph.update_all(PRODUCT, fn.sum("m", "y"))
            y = graph.ndata["y"].square().sum()
            if inside:
                found += torch.autograd.grad(y, (a, s, h), create_graph=True)
        if not inside:
            found += torch.autograd.grad(y, (a, s, h), create_graph=True)
        assert type(a) is type(s) is torch.Tensor
        y.backward(retain_graph=True)
        return torch.cat([each.flatten() for each in (y, h.grad, a.grad, a, *found)])

    agree(compute, normal(9, 3))


@pytest.mark.parametrize("second", [fn.copy_e("a", "m"), PRODUCT, fn.u_mul_e("g", "a", "m")])
def test_two_uses_and_what_is_returned(second):
    graph = multigraph(9, 40)

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"], graph.ndata["g"] = h, h + 1
            graph.edata["a"] = torch.sigmoid(apply_edges(graph, DOT))
            graph.update_all(PRODUCT, fn.sum("m", "y"))
            graph.update_all(second, fn.sum("m", "z"))
            return graph.ndata["y"] + graph.ndata["z"], graph.edata["a"]

    def flat(h):
        y, a = compute(h)
        assert type(a) is torch.Tensor
        return torch.cat([y.flatten(), a.flatten()])

    assert all(not reasons for _, reasons in agree(flat, normal(9, 3)).values())
    assert all(not reasons for _, reasons in agree(lambda h: compute(h)[0], normal(9, 3)).values())


def test_what_two_messages_read_is_computed_once_from_the_second_call_on():
    graph = multigraph(9, 40)

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.edata["a"] = torch.sigmoid(apply_edges(graph, DOT))
            graph.update_all(PRODUCT, fn.sum("m", "y"))
            graph.update_all(PRODUCT, fn.max("m", "z"))
            return graph.ndata["y"] + graph.ndata["z"]

    agree(compute, normal(9, 3))
    assert agree(compute, normal(9, 3)) == {"gsddmm": (1, {}), "gspmm": (2, {})}


def test_steps_are_lazy_in_a_layer():
    graph = multigraph(9, 40)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 4).double()

        def forward(self, x):
            with graph.local_scope():
                graph.ndata["h"] = self.linear(x)
                scores = apply_edges(graph, DOT)
                self.lazy = type(scores) is LazyTensor
                graph.edata["a"] = torch.sigmoid(scores)
                graph.update_all(PRODUCT, fn.sum("m", "y"))
                return graph.ndata["y"]

    layer = Layer()
    assert agree(layer, normal(9, 3)) == ONE and layer.lazy
    with torch.inference_mode():
        expected = layer(normal(9, 3))
        with gsb.enabled("dgl"):
            torch.testing.assert_close(layer(normal(9, 3)), expected)
            assert set(calls()) == set(ONE)
