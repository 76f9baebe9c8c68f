"""Calls that are errors in DGL: with the backend they raise the same type."""

import dgl
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import dgl.ops
import pytest
import torch
from dgl.nn.functional import edge_softmax

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import calls, multigraph, normal

NODES, EDGES = 7, 20
TYPES = torch.arange(EDGES) % 3
COUNTS = {"user": 6, "item": 5}


def graph():
    return multigraph(NODES, EDGES)


def hetero():
    ends = torch.arange(5), torch.arange(5).flip(0)
    names = [("user", "likes", "item"), ("item", "liked by", "user"), ("user", "knows", "user")]
    return dgl.heterograph(dict.fromkeys(names, ends), num_nodes_dict=COUNTS)


def outcome(function):
    torch.manual_seed(0)
    try:
        function()
    except Exception as error:
        return type(error)
    return None


def raises(function):
    """An error, and of the same type with the backend and without."""
    expected = outcome(function)
    with gsb.enabled("dgl"):
        found = outcome(function)
    assert expected is not None and found is expected


FEATURES = {
    "fewer rows": lambda rows: normal(rows - 1, 4),
    "more rows": lambda rows: normal(rows + 1, 4),
    "no rows": lambda rows: normal(0, 4),
    "another width": lambda rows: normal(rows, 3),
    "another type": lambda rows: normal(rows, 4, dtype=torch.float32),
    "none": lambda rows: None,
    "a list": lambda rows: [[1.0] * 4] * rows,
}


@pytest.mark.parametrize("case", FEATURES)
@pytest.mark.parametrize(
    "layer",
    [
        lambda: dglnn.GraphConv(4, 3, allow_zero_in_degree=True),
        lambda: dglnn.GraphConv(4, 9, "right", allow_zero_in_degree=True),
        lambda: dglnn.SAGEConv(4, 3, "mean"),
        lambda: dglnn.GATConv(4, 3, 2, allow_zero_in_degree=True),
        lambda: dglnn.RelGraphConv(4, 3, 3),
    ],
    ids=["graph", "graph right", "sage", "gat", "relations"],
)
def test_features_of_a_layer(layer, case):
    more = () if not isinstance(layer(), dglnn.RelGraphConv) else (TYPES,)
    raises(lambda: layer().double()(graph(), FEATURES[case](NODES), *more))


@pytest.mark.parametrize("case", ["fewer rows", "more rows", "another type", "none", "a list"])
@pytest.mark.parametrize("where", [0, 1], ids=["nodes", "edges"])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_operands_of_a_product_and_its_reduction(reduce, where, case):
    operands = [normal(NODES, 4), normal(EDGES, 4)]
    operands[where] = FEATURES[case]((NODES, EDGES)[where])
    raises(lambda: dgl.ops.gspmm(graph(), "mul", reduce, *operands))


@pytest.mark.parametrize("case", ["fewer rows", "another width", "another type", "none", "a list"])
@pytest.mark.parametrize("op", ["add", "dot"])
def test_operands_of_scores(op, case):
    raises(lambda: dgl.ops.gsddmm(graph(), op, normal(NODES, 4), FEATURES[case](NODES)))


def test_unknown_operators_and_fields():
    x = normal(NODES, 4)
    raises(lambda: dgl.ops.gspmm(graph(), "pow", "sum", x, normal(EDGES, 4)))
    raises(lambda: dgl.ops.gspmm(graph(), "mul", "prod", x, normal(EDGES, 4)))
    raises(lambda: dgl.ops.gsddmm(graph(), "add", x, x, "u", "x"))
    raises(lambda: graph().update_all(fn.copy_u("h", "m"), fn.sum("m", "h")))
    raises(lambda: edge_softmax(graph(), None))


@pytest.mark.parametrize(
    "types",
    [TYPES + 1, TYPES + 10**9, TYPES[:-1], TYPES.double(), TYPES[:, None], None],
    ids=["large", "very large", "short", "floating", "matrix", "none"],
)
@pytest.mark.parametrize("regularizer", [None, "basis", "bdd"])
def test_types_of_edges_and_rows(regularizer, types):
    make = {
        "layer": lambda: dglnn.RelGraphConv(4, 6, 3, regularizer, 2).double()(graph(), normal(NODES, 4), types),
        "linear": lambda: dglnn.TypedLinear(4, 6, 3, regularizer, 2).double()(normal(EDGES, 4), types),
    }
    for call in make.values():
        raises(call)


def test_lengths_of_segments():
    raises(lambda: dgl.ops.segment_mm(normal(EDGES, 4), normal(3, 4, 2), torch.tensor([3, 5])))


@pytest.mark.parametrize("as_pair", [False, True], ids=["dict", "pair"])
@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize("case", FEATURES)
@pytest.mark.parametrize("norm", ["none", "both"])
def test_features_of_several_node_types(norm, case, kind, as_pair):
    def call():
        names = ["likes", "liked by", "knows"]
        conv = dglnn.HeteroGraphConv({name: dglnn.GraphConv(4, 3, norm) for name in names}).double()
        x = {each: normal(count, 4) for each, count in COUNTS.items()} | {kind: FEATURES[case](COUNTS[kind])}
        return conv(hetero(), (x, x) if as_pair else x)

    raises(call)


def test_a_source_whose_features_are_missing_is_counted():
    conv = dglnn.HeteroGraphConv({name: dglnn.GraphConv(4, 3) for name in ("likes", "liked by", "knows")}).double()
    with gsb.enabled("dgl"), pytest.raises(AttributeError):
        conv(hetero(), {"user": normal(6, 4), "item": None})
    assert calls()["rgms"] == (0, {"missing feature": 1})
