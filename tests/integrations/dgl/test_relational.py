"""``RelGraphConv`` with the backend and without: one operator of ours, the same outputs and gradients."""

import dgl
import dgl.nn.pytorch as dglnn
import pytest
import torch

import gnn_sparse_backend as gsb
from tests.covering import covering
from tests.integrations.dgl.oracle import agree, calls, multigraph, normal
from tests.integrations.dgl.test_layers import OnGraph
from tests.ops.allocations import recorded

OURS = {"rgms": (1, {})}
KINDS = torch.arange(40) % 3


def layer(*arguments, **options):
    torch.manual_seed(0)
    return dglnn.RelGraphConv(*arguments, **options).double()


def counted(conv, graph, kinds, *inputs, **options):
    """Calls of a step: feature matrix first, then the norm if any."""
    call = lambda conv, graph, x, *norm: conv(graph, x, kinds, *norm, **options)
    return agree(OnGraph(conv, graph, call), *inputs)


@pytest.mark.parametrize(
    "regularizer, options, norm, idtype",
    covering(
        {
            "regularizer": [None, "basis", "bdd"],
            "options": [{}, {"layer_norm": True, "activation": torch.relu}, {"self_loop": False, "bias": False}],
            "norm": [False, True],
            "idtype": [torch.int32, torch.int64],
        }
    ),
)
def test_layer(regularizer, options, norm, idtype):
    inputs = [normal(9, 6), *([normal(40, 1, seed=2)] if norm else [])]
    conv = layer(6, 12, 3, regularizer, 2, **options)
    assert counted(conv, multigraph(9, 40, idtype=idtype), KINDS, *inputs) == OURS


@pytest.mark.parametrize("regularizer", [None, "basis"])
def test_presorted(regularizer):
    assert (
        counted(layer(6, 12, 5, regularizer), multigraph(9, 40), KINDS.sort().values, normal(9, 6), presorted=True)
        == OURS
    )


def test_many_relations_of_bases_want_no_matrix_each():
    nodes, edges, relations, width = 1000, 20_000, 1000, 64
    graph, kinds = (
        multigraph(nodes, edges),
        torch.randint(0, relations, (edges,), generator=torch.Generator().manual_seed(0)),
    )
    conv, x = layer(width, width, relations, "basis", 4).float(), normal(nodes, width).float()
    with recorded() as found, gsb.enabled("dgl"):
        conv(graph, x, kinds).sum().backward()
    assert calls()["rgms"] == (1, {}) and 0 < found.largest < 4 * relations * width * width / 1.5


def test_relations_without_edges_and_one_relation():
    graph = multigraph(9, 40)
    assert counted(layer(6, 4, 50), graph, KINDS * 20, normal(9, 6)) == OURS
    assert counted(layer(6, 4, 1), graph, KINDS * 0, normal(9, 6)) == OURS


def test_block():
    block = dgl.to_block(dgl.in_subgraph(multigraph(30, 90), torch.arange(5)), torch.arange(5))
    kinds = torch.arange(block.num_edges()) % 3
    assert counted(layer(6, 4, 3), block, kinds, normal(block.num_src_nodes(), 6)) == OURS


def test_a_norm_that_the_graph_has_already():
    graph = multigraph(9, 40)
    graph.edata["norm"] = normal(40, 1, seed=3)
    assert counted(layer(6, 4, 3), graph, KINDS, normal(9, 6)) == OURS


class Own(dglnn.RelGraphConv):
    def message(self, edges):
        return {"m": edges.src["h"]}


@pytest.mark.parametrize(
    "reason, make",
    [
        ("the linear layer is the user's, or has hooks", "hooked"),
        ("no edges", "empty"),
        ("norm is not one number per edge of the features' type", "wide norm"),
    ],
)
def test_falls_back(reason, make):
    graph, conv, inputs, kinds = multigraph(9, 40), layer(6, 4, 3), [normal(9, 6)], KINDS
    if make == "hooked":
        conv.linear_r.register_forward_hook(lambda module, given, out: out * 2)
    elif make == "empty":
        graph, kinds = dgl.graph(([], []), num_nodes=9), KINDS[:0]
    else:
        inputs.append(normal(40, 4, seed=2))
    assert counted(conv, graph, kinds, *inputs)["rgms"] == (0, {reason: 1})


def test_a_message_of_the_users_is_theirs():
    torch.manual_seed(0)
    assert "rgms" not in counted(Own(6, 6, 3).double(), multigraph(9, 40), KINDS, normal(9, 6))


def test_an_edge_type_out_of_range_is_an_error_as_before():
    graph, conv = multigraph(9, 40), layer(6, 4, 2)
    with gsb.enabled("dgl"), pytest.raises((RuntimeError, IndexError)):
        conv(graph, normal(9, 6), KINDS)
    assert calls()["rgms"] == (0, {"an edge type is out of range": 1})


def test_relations_are_found_again_and_noticed_when_they_change(monkeypatch):
    made = []
    original = gsb.RelGraph.from_triples.__func__
    monkeypatch.setattr(
        gsb.RelGraph, "from_triples", classmethod(lambda cls, *given: made.append(1) or original(cls, *given))
    )
    graph, conv, x, kinds = multigraph(9, 40), layer(6, 4, 3), normal(9, 6), KINDS.clone()
    with gsb.enabled("dgl"):
        for _ in range(3):
            conv(graph, x, kinds)
        conv(graph, x, kinds.clone())
        assert len(made) == 1
        kinds[5] = (kinds[5] + 1) % 3
        changed = conv(graph, x, kinds)
        assert len(made) == 2
    torch.testing.assert_close(changed, conv(graph, x, kinds))


def test_relations_of_one_edge_type_are_found_again(monkeypatch):
    """DGL makes a new graph at every ``hetero[etype]``, of the same structure; its reverse has another."""
    made = []
    original = gsb.RelGraph.from_triples.__func__
    monkeypatch.setattr(
        gsb.RelGraph, "from_triples", classmethod(lambda cls, *given: made.append(1) or original(cls, *given))
    )
    u, v = multigraph(9, 40).edges()
    hetero = dgl.heterograph({("n", "r", "n"): (u, v), ("n", "s", "n"): (v, u)}, num_nodes_dict={"n": 9})
    conv, x = layer(6, 4, 3), normal(9, 6)
    expected = conv(dgl.graph((u, v)), x, KINDS), conv(dgl.graph((v, u)), x, KINDS)
    with gsb.enabled("dgl"):
        for _ in range(3):
            torch.testing.assert_close(conv(hetero["r"], x, KINDS), expected[0])
        assert len(made) == 1
        torch.testing.assert_close(conv(hetero["s"], x, KINDS), expected[1])
        graph = dgl.graph((u, v))
        torch.testing.assert_close(conv(graph, x, KINDS), expected[0])
        torch.testing.assert_close(conv(dgl.reverse(graph), x, KINDS), expected[1])


class Typed(torch.nn.Module):
    """A ``TypedLinear`` as a function of its rows."""

    def __init__(self, linear, kinds, in_order=False):
        super().__init__()
        self.linear, self.kinds, self.in_order = linear, kinds, in_order

    def forward(self, x):
        return self.linear(x, self.kinds, self.in_order)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("regularizer", [None, "basis", "bdd"])
def test_typed_linear(regularizer, in_order):
    torch.manual_seed(0)
    kinds = torch.tensor([0, 2, 5])[KINDS]  # types 1, 3 and 4 have no rows
    linear = dglnn.TypedLinear(6, 12, 6, regularizer, 3).double()
    counts = agree(Typed(linear, kinds.sort().values if in_order else kinds, in_order), normal(40, 6))
    assert counts == {"segment_mm" if in_order and regularizer != "bdd" else "gather_mm": (1, {})}


def test_typed_linear_in_blocks_of_an_unknown_type():
    linear = dglnn.TypedLinear(6, 12, 2, "bdd", 3).double()
    with gsb.enabled("dgl"), pytest.raises(IndexError):
        linear(normal(40, 6), KINDS)
    assert calls() == {"gather_mm": (0, {"an index is out of range": 1})}


def test_dropout_draws_the_same():
    conv, graph, x = layer(6, 4, 3, dropout=0.5), multigraph(9, 40), normal(9, 6)
    torch.manual_seed(1)
    expected = conv(graph, x, KINDS)
    with gsb.enabled("dgl"):
        torch.manual_seed(1)
        torch.testing.assert_close(conv(graph, x, KINDS), expected)
    assert calls() == OURS and (expected == 0).any()
