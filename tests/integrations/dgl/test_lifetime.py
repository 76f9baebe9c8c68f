"""Structures are built once, found again, dropped with their graph, and never mixed up."""

import copy
import gc
import pickle
import threading
import weakref

import dgl
import dgl.nn.pytorch as dglnn
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.dgl import structure
from tests.integrations.dgl.oracle import normal


@pytest.fixture
def builds(monkeypatch):
    """The graphs built so far, as weak references."""
    built = []
    build = structure.Structure._build

    def counting(self, side):
        graph = build(self, side)
        built.append(weakref.ref(graph))
        return graph

    monkeypatch.setattr(structure.Structure, "_build", counting)
    return built


def dense_sum(graph, x):
    source, destination = graph.edges()
    return torch.zeros(graph.num_dst_nodes(), *x.shape[1:], dtype=x.dtype).index_add(0, destination, x[source.long()])


def step(graph, x, w):
    w = w.detach().requires_grad_()
    x = x.detach().requires_grad_()
    out = dgl.ops.u_mul_e_sum(graph, dgl.ops.copy_u_sum(graph, x), w)
    out.sum().backward()
    return out.detach(), x.grad, w.grad


def test_one_build_however_many_steps_and_directions(builds):
    graph, x, w = dgl.rand_graph(30, 200), normal(30, 4), normal(200, 1, seed=1)
    with gsb.enabled("dgl"):
        for _ in range(5):
            step(graph, x, w)
        with graph.local_scope():
            dgl.ops.copy_u_sum(graph, x)
        dgl.ops.copy_u_sum(graph.local_var(), x)
        dgl.ops.copy_u_sum(dgl.reverse(graph), x)
        dgl.ops.copy_u_mean(graph, x)
    assert len(builds) == 1


def test_a_forward_that_fell_back_still_shares_its_reverse(builds):
    graph = dgl.rand_graph(30, 200)
    with gsb.enabled("dgl"):
        for _ in range(4):
            x, w = normal(30, 4).requires_grad_(), normal(200, 4, seed=1)
            dgl.ops.u_add_e_sum(graph, x, w).sum().backward()
    assert len(builds) == 1


def test_one_build_for_each_relation(builds):
    graph = dgl.heterograph({("a", "r", "b"): ([0, 1, 2], [0, 0, 1]), ("b", "s", "a"): ([0, 1], [2, 2])})
    with gsb.enabled("dgl"):
        for _ in range(3):
            for relation, sources in (("r", 3), ("s", 2)):
                x = normal(sources, 4).requires_grad_()
                dgl.ops.copy_u_sum(graph[relation], x).sum().backward()
    assert len(builds) == 2


def test_a_freed_graph_frees_its_structure_at_once(builds):
    with gsb.enabled("dgl"):
        for relation in (False, True):
            graph = dgl.rand_graph(30, 200)
            if relation:
                graph = dgl.heterograph(
                    {("a", "r", "b"): graph.edges(), ("b", "s", "b"): graph.edges()}, num_nodes_dict={"a": 30, "b": 30}
                )
            step(graph["r"] if relation else graph, normal(30, 4), normal(200, 1, seed=1))
            dgl.ops.copy_e_sum(graph["s"] if relation else graph, normal(200, 3))
            index = weakref.ref(graph._graph)
            gc.disable()  # reference counts alone must do it: a training loop makes a graph at every step
            try:
                del graph
                assert index() is None and all(each() is None for each in builds)
            finally:
                gc.enable()
        gc.collect()
        assert len(structure.KEPT) == 0


def test_disable_drops_every_structure(builds):
    graph = dgl.rand_graph(30, 200)
    with gsb.enabled("dgl"):
        step(graph, normal(30, 4), normal(200, 1, seed=1))
    assert len(builds) == 1 and all(each() is None for each in builds)


def test_a_changed_graph_is_seen(builds):
    graph, x = dgl.rand_graph(30, 200), normal(30, 4)
    with gsb.enabled("dgl"):
        for change in (
            lambda: graph.add_edges([0, 1, 2], [3, 3, 4]),
            lambda: graph.remove_edges([5, 6]),
            lambda: graph.add_nodes(2),
            lambda: graph.remove_nodes([0]),
        ):
            change()
            x = normal(graph.num_nodes(), 4)
            torch.testing.assert_close(dgl.ops.copy_u_sum(graph, x), dense_sum(graph, x))
    assert len(builds) == 4


def test_weights_changed_in_place_are_seen():
    graph, x, w = dgl.rand_graph(30, 200), normal(30, 4), normal(200, 1, seed=1)
    with gsb.enabled("dgl"):
        once = dgl.ops.u_mul_e_sum(graph, x, w)
        w.mul_(2)
        torch.testing.assert_close(dgl.ops.u_mul_e_sum(graph, x, w), 2 * once)
        x.zero_()
        assert not dgl.ops.u_mul_e_sum(graph, x, w).any()


def test_graphs_of_one_size_made_one_after_the_other_are_told_apart():
    x = normal(30, 4)
    with gsb.enabled("dgl"):
        for seed in range(100):
            torch.manual_seed(seed)
            graph = dgl.graph((torch.randint(30, (200,)), torch.randint(30, (200,))), num_nodes=30)
            torch.testing.assert_close(dgl.ops.copy_u_sum(graph, x), dense_sum(graph, x))


def test_several_graphs_alive_and_their_copies():
    x = normal(30, 4)
    with gsb.enabled("dgl"):
        graphs = [dgl.rand_graph(30, 200) for _ in range(5)]
        graphs += [
            dgl.reverse(graphs[0]),
            copy.deepcopy(graphs[1]),
            pickle.loads(pickle.dumps(graphs[2])),
            graphs[3].int(),
            dgl.to_bidirected(graphs[4]),
            dgl.add_self_loop(graphs[0]),
        ]
        for _ in range(2):
            for graph in graphs:
                torch.testing.assert_close(dgl.ops.copy_u_sum(graph, x), dense_sum(graph, x))
        batch = dgl.batch(graphs[:3])
        y = normal(90, 4)
        torch.testing.assert_close(dgl.ops.copy_u_sum(batch, y), dense_sum(batch, y))


def test_enabled_between_forward_and_backward_and_the_other_way():
    graph, x = dgl.rand_graph(30, 200), normal(30, 4).requires_grad_()
    (expected,) = torch.autograd.grad(dgl.ops.copy_u_sum(graph, x).pow(2).sum(), x)
    out = dgl.ops.copy_u_sum(graph, x).pow(2).sum()
    with gsb.enabled("dgl"):
        torch.testing.assert_close(torch.autograd.grad(out, x)[0], expected)
        out = dgl.ops.copy_u_sum(graph, x).pow(2).sum()
    torch.testing.assert_close(torch.autograd.grad(out, x)[0], expected)


def test_two_threads_with_one_graph_and_with_their_own():
    shared, x, w = dgl.rand_graph(60, 900), normal(60, 8), normal(900, 1, seed=1)
    expected = step(shared, x, w)
    failures = []

    def work():
        try:
            for _ in range(20):
                for one, other in zip(step(shared, x, w), expected):
                    torch.testing.assert_close(one, other)
                own = dgl.rand_graph(60, 300)
                torch.testing.assert_close(dgl.ops.copy_u_sum(own, x), dense_sum(own, x))
        except BaseException as error:  # reported by the main thread
            failures.append(error)

    with gsb.enabled("dgl"):
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_training_takes_the_same_path_with_and_without():
    generator = torch.Generator().manual_seed(2)
    graph = dgl.add_self_loop(dgl.graph(tuple(torch.randint(40, (2, 160), generator=generator)), num_nodes=40))
    x, target = normal(40, 6), torch.randint(3, (40,), generator=generator)

    def losses():
        torch.manual_seed(0)
        layers = torch.nn.ModuleList([dglnn.SAGEConv(6, 16, "mean"), dglnn.GraphConv(16, 3)]).double()
        parameters = list(layers.parameters())
        for _ in range(30):
            loss = torch.nn.functional.cross_entropy(layers[1](graph, layers[0](graph, x).relu()), target)
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
                parameter.data -= 0.2 * gradient
            yield loss.item()

    expected = list(losses())
    with gsb.enabled("dgl"):
        actual = list(losses())
    assert expected[-1] < 0.9 * expected[0]
    torch.testing.assert_close(torch.tensor(actual), torch.tensor(expected), rtol=1e-8, atol=0)
