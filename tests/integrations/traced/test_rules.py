"""Programs that belong to no framework, through ``gsb.compile``: what becomes an operator, and what stays as it is."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import gnn_sparse_backend as gsb
from tests.integrations.traced.programs import EDGES, NODES, check, counted, edges, expanded, features, into

GATHERS = {
    "index_select": lambda x, index: torch.index_select(x, 0, index),
    "method": lambda x, index: x.index_select(-2, index),
    "brackets": lambda x, index: x[index],
}
SUMS = {
    "scatter_add_": lambda m, i, n: into(m, n).scatter_add_(0, expanded(i, m), m),
    "scatter_add": lambda m, i, n: torch.scatter_add(torch.zeros(n, m.shape[1], dtype=m.dtype), 0, expanded(i, m), m),
    "index_add_": lambda m, i, n: into(m, n).index_add_(0, i, m),
    "index_add": lambda m, i, n: torch.index_add(into(m, n), 0, i, m),
    "scatter_reduce": lambda m, i, n: into(m, n).scatter_reduce(0, expanded(i, m), m, "sum"),
    "unsqueeze": lambda m, i, n: into(m, n).scatter_add_(0, i.unsqueeze(1).expand(-1, m.shape[1]), m),
    "brackets": lambda m, i, n: into(m, n).scatter_add_(0, i[:, None].expand(-1, m.shape[1]), m),
}


@pytest.mark.parametrize(
    "gather, add", [("index_select", add) for add in SUMS] + [("method", "index_add"), ("brackets", "brackets")]
)
def test_a_sum_of_neighbours(gather, add):
    def program(x, index):
        return SUMS[add](GATHERS[gather](x, index[0]), index[1], x.shape[0])

    assert check(program, features(NODES, 5), edges()) == {"copy.sum": 1}


@pytest.mark.parametrize(
    "reduce, included, fill, name",
    [
        ("amax", False, 0, "copy.max"),
        ("amin", False, 0, "copy.min"),
        ("mean", False, 0, "copy.mean"),
        ("prod", True, 1, "copy.prod"),
        ("amax", True, 0, None),  # zero counts as a message
        ("amax", False, 1, None),
        ("prod", False, 1, None),
    ],
)
@pytest.mark.parametrize("equal", [False, True])
def test_other_reductions(reduce, included, fill, name, equal):
    """equal: many messages are, and many are 0, of which PyTorch shares out gradients with what it scatters into."""

    def program(x, index):
        message = x.index_select(0, index[0])
        out = message.new_full((NODES, 3), fill) if fill else message.new_zeros(NODES, 3)
        return out.scatter_reduce(0, expanded(index[1], message), message, reduce, include_self=included)

    x = features(NODES, 3)
    found = check(program, x.round() if equal else x, edges())
    found.pop("in_degrees", None)
    assert found == ({"edge_map": 1} if name is None else {name: 1})


@pytest.mark.parametrize(
    "message, name",
    [
        (lambda x, y, w, index: x[index[0]] * w[:, None], "mul.sum"),
        (lambda x, y, w, index: (x[index[0]] - y[index[1]]).abs() * w.unsqueeze(-1), "message.sum"),
        (lambda x, y, w, index: 2.0 - torch.relu(x[index[0]] + y[index[1]]), "message.sum"),
        (lambda x, y, w, index: functional.leaky_relu(x[index[0]], 0.1) / (1 + y[index[1]].exp()), "message.sum"),
        (lambda x, y, w, index: x[index[0]] ** 2, "message.sum"),
    ],
)
def test_messages(message, name):
    def program(x, y, w, index):
        m = message(x, y, w, index)
        return into(m, NODES).scatter_add_(0, expanded(index[1], m), m)

    operands = features(NODES, 4), features(NODES, 4, seed=2), features(EDGES, seed=3), edges()
    assert check(program, *operands) == {name: 1}


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_types(dtype, tolerance):
    def program(x, w, index):
        m = x.index_select(0, index[0]) * w
        return into(m, NODES).index_add_(0, index[1], m)

    operands = features(NODES, 7, dtype=dtype), features(EDGES, 1, dtype=dtype), edges()
    assert check(program, *operands, tolerance=tolerance) == {"mul.sum": 1}


@pytest.mark.parametrize("nodes, count, width", [(NODES, 0, 3), (NODES, 1, 1), (NODES, EDGES, 1)])
def test_few_edges_and_features(nodes, count, width):
    def program(x, index):
        m = x.index_select(0, index[0])
        return into(m, nodes).scatter_add_(0, expanded(index[1], m), m)

    assert check(program, features(nodes, width), edges(count=count)) == {"copy.sum": 1}


def test_sums_are_added_to_what_is_there():
    def program(x, out, index):
        m = x.index_select(0, index[0])
        return (out * 2).scatter_add_(0, expanded(index[1], m), m) + out

    assert check(program, features(NODES, 6), features(NODES, 6, seed=4), edges()) == {"copy.sum": 1}


def test_tensors_of_edges():
    def program(e, index):
        return into(e, NODES).scatter_add_(0, expanded(index[1], e), e)

    assert check(program, features(EDGES, 3), edges()) == {"scatter.sum": 1}


def test_a_sum_of_one_number_per_edge_stays():
    def program(e, index):
        return into(e, NODES).scatter_add_(0, index[1], e)

    assert check(program, features(EDGES), edges()) == {}
    fallbacks = gsb.status().to_dict()["calls"]["torch.compile"]["scatter.sum"]["fallbacks"]
    assert list(fallbacks) == ["a sum of one number per edge is no faster on a kernel"]


def attention(scores, values, index):
    highest = scores.new_zeros(NODES, *scores.shape[1:])
    highest = highest.scatter_reduce_(0, expanded(index[1], scores), scores.detach(), "amax", include_self=False)
    p = (scores - highest.index_select(0, index[1])).exp()
    total = into(p, NODES).scatter_add_(0, expanded(index[1], p), p) + 1e-16
    p = p / total.index_select(0, index[1])
    m = p.unsqueeze(-1) * values
    return into(m, NODES).scatter_add_(0, expanded(index[1], m), m)


def test_attention_is_one_operator():
    def program(x, left, right, index):
        scores = functional.leaky_relu(left.index_select(0, index[0]) + right.index_select(0, index[1]), 0.2)
        return attention(scores, x.index_select(0, index[0]), index)

    operands = features(NODES, 2, 4), features(NODES, 2, seed=2), features(NODES, 2, seed=3), edges()
    assert check(program, *operands) == {"attention": 1}


def test_dot_products_as_scores():
    def program(q, k, v, index):
        scores = (q.index_select(0, index[1]) * k.index_select(0, index[0])).sum(-1) / 2.0
        return attention(scores, v.index_select(0, index[0]), index)

    assert check(program, *(features(NODES, 2, 4, seed=at) for at in range(3)), edges()) == {"attention": 1}


def test_the_softmax_of_given_scores():
    def program(scores, x, index):
        return attention(scores, x.index_select(0, index[0]), index)

    assert check(program, features(EDGES, 2), features(NODES, 2, 4), edges()) == {"softmax": 1, "mul.sum": 1}


@pytest.mark.parametrize(
    "written",
    [
        lambda x, m, index: x.add_(1.0),
        lambda x, m, index: x.view(-1)[3:5].zero_(),
        lambda x, m, index: m.mul_(2.0),
        lambda x, m, index: torch.add(x, 1.0, out=x) if not x.requires_grad else x.add_(1.0),
        lambda x, m, index: x.__setitem__(0, 3.0),
    ],
)
def test_what_is_written_to_in_between_is_seen(written):
    def program(x, index):
        x = x * 1.0
        m = x.index_select(0, index[0])
        written(x, m, index)
        return into(m, NODES).scatter_add_(0, expanded(index[1], m), m) + x

    check(program, features(NODES, 5), edges())


def test_what_is_written_to_afterwards_is_kept():
    """Operators keep what the program's own gathers and scatters do not."""

    def program(x, w, left, right, index):
        x = x * 1.0
        m = x.index_select(0, index[0]) * w
        first = into(m, NODES).scatter_add_(0, expanded(index[1], m), m)
        scores = left.index_select(0, index[0]) + right.index_select(0, index[1])
        second = attention(scores, x.view(NODES, 2, 2).index_select(0, index[0]), index)
        x.mul_(2.0)
        first.relu_()
        second.tanh_()
        return first + second.view(NODES, 4) + x

    operands = features(NODES, 4), features(EDGES, 1), features(NODES, 2, seed=2), features(NODES, 2, seed=3)
    check(program, *operands, edges())


def test_an_index_that_is_written_to_is_another():
    def program(x, index):
        index = index + 0
        m = x.index_select(0, index[0])
        index[0].fill_(1)
        return into(m, NODES).scatter_add_(0, expanded(index[1], m), m) + x.index_select(0, index[0])[:NODES]

    with torch.no_grad():
        x = features(NODES, 5)
        torch.testing.assert_close(gsb.compile(program, backend="aot_eager")(x, edges()), program(x, edges()))


def test_scores_that_are_written_to_within_a_softmax():
    def program(scores, index):
        scores = scores * 1.0
        highest = scores.new_zeros(NODES, 2)
        highest = highest.scatter_reduce_(0, expanded(index[1], scores), scores.detach(), "amax", include_self=False)
        p = (scores - highest.index_select(0, index[1])).exp()
        total = into(p, NODES).scatter_add_(0, expanded(index[1], p), p) + 1e-16
        scores.mul_(3.0)
        return p / total.index_select(0, index[1]) + scores

    check(program, features(EDGES, 2), edges())


@pytest.mark.parametrize("gathered", [True, False])
def test_messages_have_gradients_where_they_are_recorded(gathered):
    def program(x, index):
        with torch.set_grad_enabled(gathered):
            m = x.index_select(0, index[0])
        with torch.set_grad_enabled(not gathered):
            out = into(m, NODES).index_add(0, index[1], m)
        return out + x

    check(program, features(NODES, 5), edges())


def test_numbers_from_the_end():
    def program(x, index):
        m = x[index[0] - NODES]
        return into(m, NODES).index_add_(0, index[1], m)

    assert check(program, features(NODES, 3), edges()) == {"copy.sum": 1}


@pytest.mark.parametrize("row", [0, 1])
def test_ids_out_of_range_are_an_error(row):
    def program(x, index):
        m = x.index_select(0, index[0])
        return into(m, NODES).scatter_add_(0, expanded(index[1], m), m)

    index = edges()
    index[row, 7] = NODES
    with pytest.raises((IndexError, RuntimeError)):
        program(features(NODES, 3), index)
    with pytest.raises(IndexError, match="edge index is out of range"):
        gsb.compile(program, backend="aot_eager")(features(NODES, 3), index)


def test_messages_that_are_looked_at_have_gradients_without_a_scatter():
    def program(x, index):
        return torch.cumsum(x.index_select(0, index[0]), 0)

    assert check(program, features(NODES, 3), edges()) == {"edge_map": 1}


def test_graphs_of_other_sizes_are_not_compiled_again():
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    def program(x, index):
        m = x.index_select(0, index[0])
        return into(m, x.shape[0]).scatter_add_(0, expanded(index[1], m), m)

    function = gsb.compile(program, backend=backend, fullgraph=True, dynamic=True)
    for nodes in (NODES, NODES + 5, 2 * NODES):
        x, index = features(nodes, 4), edges(nodes, nodes * 3)
        torch.testing.assert_close(function(x, index), program(x, index))
    assert len(compiled) == 1 and counted() == {"copy.sum": 3}


def test_as_a_decorator_and_with_names_of_arguments():
    @gsb.compile(backend="aot_eager", fullgraph=True)
    def program(x, *, index):
        m = x.index_select(0, index[0])
        return into(m, NODES).scatter_add_(0, expanded(index[1], m), m)

    x = features(NODES, 4)
    torch.testing.assert_close(program(x, index=edges()), torch.zeros_like(x).index_add(0, edges()[1], x[edges()[0]]))
    assert counted() == {"copy.sum": 1}


def test_programs_without_edges_stay_as_they_are():
    assert check(lambda x: torch.relu(x @ x.t()), features(5, 5)) == {}


def test_dot_products_between_three_ends():
    """Triplets, of which DimeNet takes the angles."""

    def program(x, index):
        i, j, k = index[0], index[1], index[0].flip(0)
        return ((x[j] - x[i]) * (x[k] - x[i])).sum(-1)

    check(program, features(NODES, 3), edges())


def test_a_number_divided_by_a_gathered_sum_is_no_softmax():
    def program(x, index):
        total = into(x, NODES).index_add_(0, index[1], x[index[0]])
        return 1.0 / (total + 10.0)[index[1]]

    check(program, features(NODES, 3), edges())
