"""Messages without an operator of DGL's, and those of users' functions: one operator where they are arithmetic."""

import dgl
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import pytest
import torch
from torch.nn import functional

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import agree, bipartite, multigraph, normal
from tests.integrations.dgl.test_layers import OnGraph

SUM = fn.sum("m", "out")


def passing(graph, message, reduce=SUM):
    def compute(h, *edges):
        with graph.local_scope():
            graph.srcdata["h"] = h
            graph.dstdata["d"] = h[: graph.num_dst_nodes()]
            for at, e in enumerate(edges):
                graph.edata[f"w{at}"] = e
            graph.update_all(message, reduce)
            return graph.dstdata["out"]

    return compute


@pytest.fixture(params=[torch.int32, torch.int64], ids=str)
def graph(request):
    return multigraph(9, 40, idtype=request.param)


@pytest.mark.parametrize(
    "message, counts",
    [
        (lambda edges: {"m": edges.src["h"]}, {"gspmm": (1, {})}),
        (lambda edges: {"m": edges.src["h"] * edges.data["w0"]}, {"gspmm": (1, {})}),
        (lambda edges: {"m": edges.data["w0"] * torch.relu(edges.src["h"] - edges.dst["d"])}, {"gspmm": (1, {})}),
        (lambda edges: {"m": torch.sigmoid(edges.src["h"] + edges.dst["d"]) * edges.src["h"]}, {"gspmm": (1, {})}),
        (lambda edges: {"m": edges.data["w0"] * 2}, {"gspmm": (1, {})}),
        (lambda edges: {"m": torch.cat([edges.src["h"], edges.dst["d"]], 1)}, {"gspmm": (1, {}), "gsddmm": (2, {})}),
        (lambda edges: {"m": edges.src["h"].softmax(-1)}, {"gspmm": (1, {}), "gsddmm": (1, {})}),
        (lambda edges: {"m": edges.src["h"] * edges.src["h"].mean()}, {"gspmm": (1, {}), "gsddmm": (1, {})}),
        (lambda edges: {"m": edges.src["h"].clone().mul_(2)}, {"gspmm": (1, {}), "gsddmm": (1, {})}),
        # a dot product of the ends beside their rows (FusedMM)
        (
            lambda edges: {
                "m": torch.sigmoid((edges.src["h"] * edges.dst["d"]).sum(-1, keepdim=True)) * edges.src["h"]
            },
            {"gspmm": (1, {})},
        ),
    ],
    ids=range(10),
)
def test_messages(graph, message, counts):
    assert agree(passing(graph, message), normal(9, 3), normal(40, 1, seed=1)) == counts


@pytest.mark.parametrize(
    "reduce", [fn.sum("m", "out"), fn.mean("m", "out"), fn.max("m", "out"), fn.min("m", "out")], ids=lambda r: r.name
)
@pytest.mark.parametrize(
    "message",
    [fn.u_sub_v("h", "d", "m"), fn.v_mul_e("d", "w0", "m"), fn.e_sub_u("w0", "h", "m"), fn.u_dot_v("h", "d", "m")],
    ids=lambda m: m.name,
)
def test_built_in_messages_that_dgl_computes_first(graph, message, reduce):
    counts = agree(passing(graph, message, reduce), normal(9, 3).round(), normal(40, 3, seed=1).round())
    if message.name == "u_dot_v":
        assert counts["gsddmm"] == (1, {}) and len(counts) == 2
    else:
        assert counts == ({"gspmm_mean": (1, {})} if reduce.name == "mean" else {"gspmm": (1, {})})


def test_edge_features_of_a_function_of_nodes_are_not_messages(graph):
    """The flag that messages are lazy must not reach what is stored by the way."""

    def apply(nodes):
        graph.apply_edges(fn.u_add_v("h", "h", "stored"))
        return {"out": nodes.data["out"] * 2}

    graph.ndata["h"] = normal(9, 3)
    with gsb.enabled("dgl"):
        graph.update_all(fn.u_add_v("h", "h", "m"), fn.sum("m", "out"), apply)
        graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"), apply)
        assert type(graph.edata["stored"]) is torch.Tensor and "m" not in graph.edata


@pytest.mark.parametrize("reduce", [fn.mean("m", "out"), fn.max("m", "out"), fn.min("m", "out")], ids=lambda r: r.name)
def test_other_reductions(graph, reduce):
    message = lambda edges: {"m": edges.src["h"] - edges.dst["d"]}
    counts = agree(passing(graph, message, reduce), normal(9, 3).round())
    assert counts == ({"gspmm_mean": (1, {})} if reduce.name == "mean" else {"gspmm": (1, {})})


def test_reduce_functions_of_users(graph):
    message = lambda edges: {
        "m": edges.src["h"] * edges.dst["d"],
        "s": (edges.src["h"] * edges.dst["d"]).sum(-1, keepdim=True),
    }
    reduce = lambda nodes: {"out": (nodes.mailbox["s"].softmax(1) * nodes.mailbox["m"]).sum(1)}
    assert agree(passing(graph, message, reduce), normal(9, 3)) == {"gsddmm": (2, {}), "attention": (1, {})}


def test_edge_features_that_a_function_computes(graph):
    def compute(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(
                lambda edges: {"s": functional.leaky_relu(edges.src["h"] + edges.dst["h"]).sum(-1, keepdim=True)}
            )
            graph.edata["p"] = dgl.ops.edge_softmax(graph, graph.edata["s"])
            graph.update_all(lambda edges: {"m": edges.src["h"] * edges.data["p"]}, fn.sum("m", "out"))
            return graph.ndata["out"]

    # what a function of users gives is computed: they may write to what it is made of
    assert agree(compute, normal(9, 3)) == {"edge_softmax_forward": (1, {}), "gsddmm": (1, {}), "gspmm": (1, {})}


def test_stored_edge_features_are_ordinary_tensors(graph):
    graph.ndata["h"] = normal(9, 3)
    function = lambda edges: {"s": edges.src["h"] + edges.dst["h"]}
    graph.apply_edges(function)
    expected = graph.edata.pop("s")
    with gsb.enabled("dgl"):
        graph.apply_edges(function)
        assert type(graph.edata["s"]) is torch.Tensor
        torch.testing.assert_close(graph.edata.pop("s"), expected, rtol=0, atol=0)
        with graph.local_scope():
            graph.apply_edges(function)
            assert type(graph.edata["s"]) is torch.Tensor


def test_a_part_of_the_edges_stays_dgls(graph):
    graph.ndata["h"] = normal(9, 3)
    some = torch.arange(30, 2, -2).to(graph.idtype)

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"], graph.edata["s"] = h, torch.zeros(40, 3, dtype=h.dtype)
            graph.apply_edges(lambda edges: {"s": edges.src["h"] * edges.dst["h"]}, some)
            graph.send_and_recv(some, lambda edges: {"m": edges.src["h"] * 2}, fn.sum("m", "out"))
            return torch.cat([graph.edata["s"], graph.ndata["out"]])

    assert agree(compute, normal(9, 3)) == {"gspmm": (1, {})}


def test_other_kinds_of_features(graph):
    """Numbers of nodes, flags and features without a dimension are no operands of kernels: DGL gathers them."""

    def message(edges):
        flag = edges.src["flag"] & (edges.src["number"] < 5)
        return {"m": torch.where(flag, edges.src["h"][:, 0], edges.dst["number"].to(torch.float64))}

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"], graph.ndata["number"] = h, torch.arange(9)
            graph.ndata["flag"] = torch.arange(9) % 2 == 0
            graph.update_all(message, fn.sum("m", "out"))
            return graph.ndata["out"]

    assert agree(compute, normal(9, 3)) == {"gspmm": (1, {}), "gsddmm": (1, {})}


@pytest.mark.parametrize("structure_name", ["wide", "tall", "last_rows_empty", "duplicates"])
def test_between_two_kinds_of_nodes(zoo, structure_name):
    graph = bipartite(*zoo[structure_name])

    def compute(x, y):
        with graph.local_scope():
            graph.srcdata["h"], graph.dstdata["d"] = x, y
            graph.update_all(lambda edges: {"m": edges.src["h"] * edges.dst["d"]}, fn.sum("m", "out"))
            return graph.dstdata["out"]

    counts = agree(compute, normal(graph.num_src_nodes(), 3), normal(graph.num_dst_nodes(), 3, seed=1))
    assert counts == {"gspmm": (1, {})}


def test_without_edges_dgl_warns_as_before():
    graph = dgl.graph(([], []), num_nodes=4)
    graph.ndata["h"] = normal(4, 3)
    with gsb.enabled("dgl"), pytest.warns(UserWarning, match="does not contain valid edges"):
        graph.apply_edges(lambda edges: {"s": edges.src["h"]})
    assert graph.edata["s"].shape == (0, 3)


def test_relations_with_functions_of_users():
    edges = multigraph(9, 40).edges()
    graph = dgl.heterograph({("a", "r", "a"): edges, ("a", "s", "a"): edges[::-1]}, num_nodes_dict={"a": 9})

    def compute(h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.multi_update_all(
                {
                    "r": (lambda edges: {"m": edges.src["h"] * edges.dst["h"]}, fn.sum("m", "out")),
                    "s": (fn.copy_u("h", "m"), fn.sum("m", "out")),
                },
                "sum",
            )
            return graph.ndata["out"]

    assert agree(compute, normal(9, 3)) == {"gspmm": (2, {})}


@pytest.mark.parametrize(
    "make, inputs",
    [
        (lambda: dglnn.RelGraphConv(6, 4, 3, "basis", 2), lambda: (torch.arange(40) % 3,)),
        (lambda: dglnn.RelGraphConv(6, 4, 3, "bdd", 2), lambda: (torch.arange(40) % 3,)),
        (lambda: dglnn.HGTConv(6, 3, 2, 2, 3, dropout=0.0), lambda: (torch.arange(9) % 2, torch.arange(40) % 3)),
        (lambda: dglnn.PNAConv(6, 4, ["mean", "max", "sum"], ["identity"], 1.0, edge_feat_size=0), lambda: ()),
    ],
    ids=["relational basis", "relational blocks", "heterogeneous transformer", "principal neighbourhood"],
)
def test_layers_with_functions_of_their_own(make, inputs):
    graph = multigraph(9, 40)
    torch.manual_seed(0)
    call = lambda layer, graph, x: layer(graph, x, *inputs())
    counts = agree(OnGraph(make().double(), graph, call), normal(9, 6))
    assert all(not reasons for _, reasons in counts.values())
