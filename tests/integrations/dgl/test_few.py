"""DGL on graphs of a few edges: what it computes is read off the list of edges, and is what DGL alone gives."""

from __future__ import annotations

import gc
import weakref

import dgl
import dgl.function as fn
import dgl.nn as layers
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.integrations.core.counters import OperatorCounts
from gnn_sparse_backend.integrations.dgl.structure import edges_of, structures_of

pytestmark = pytest.mark.few
NODES, EDGES = 23, 90


def graph(kind: str = "coo", dtype=torch.int64) -> dgl.DGLGraph:
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(NODES - 2, (EDGES,), generator=generator, dtype=dtype)
    destination = torch.randint(NODES - 3, (EDGES,), generator=generator, dtype=dtype)
    if kind == "block":
        return dgl.create_block((source, destination % 9), NODES, 9)
    if kind == "none":
        source, destination = source[:0], destination[:0]
    if kind == "csc, shuffled":  # which edge comes first in a row is not told by numbers
        destination = destination.sort().values
        indptr = torch.searchsorted(destination, torch.arange(NODES + 1))
        return dgl.graph((kind[:3], (indptr, source, torch.randperm(EDGES, generator=generator))), num_nodes=NODES)
    made = dgl.graph((source, destination), num_nodes=NODES)
    return made.formats([kind]) if kind in ("csr", "csc") else made


def results(function, *tensors) -> list:
    """What a function gives of tensors, and all gradients for one cotangent."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    out = function(*leaves)
    cotangent = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    return [out.detach(), *torch.autograd.grad(out, leaves, cotangent, allow_unused=True)]


def compare(function, *tensors) -> None:
    """Assert that results and their types are as without the backend, on two calls."""
    expected = results(function, *tensors)
    with gsb.enabled("dgl"):
        for _ in range(2):
            for one, other in zip(results(function, *tensors), expected, strict=True):
                if other is None:
                    assert one is None
                    continue
                assert type(one) is torch.Tensor
                torch.testing.assert_close(one, other)


def calls() -> dict[str, OperatorCounts]:
    """What has been counted, by operator."""
    return {row.operator: row for row in gsb.status().rows}


def random(*shape) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


KINDS = ["coo", "block"]


@pytest.mark.parametrize("op", ["u_mul_e", "u_add_e", "u_sub_e", "u_div_e"])
def test_extremes_of_two_operands_read_the_list(op):
    g = graph()
    with gsb.enabled("dgl"):
        getattr(dgl.ops, f"{op}_max")(g, random(NODES, 4), random(EDGES, 4) + 3)
        assert structures_of(g._graph)[0].of(0).graphs[0].listed is not None


@pytest.mark.parametrize("kind", [*KINDS, "csc, shuffled"])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("op", ["copy_u", "copy_e", "u_mul_e", "u_add_e", "u_sub_e", "u_div_e"])
def test_messages(op, reduce, kind):
    g = graph(kind)
    x, e = random(g.num_src_nodes(), 4), random(g.num_edges(), 4) + 3
    if reduce in ("max", "min"):
        x, e = x.mul(2).round(), e.mul(2).round() + 9  # of which many are equal
    function = getattr(dgl.ops, f"{op}_{reduce}")
    if op == "copy_u":
        compare(lambda x: function(g, x).nan_to_num(posinf=0, neginf=0), x)
    elif op == "copy_e":
        compare(lambda e: function(g, e).nan_to_num(posinf=0, neginf=0), e)
    else:
        compare(lambda x, e: function(g, x, e).nan_to_num(posinf=0, neginf=0), x, e)


@pytest.mark.parametrize("shapes", [((), ()), ((4,), (1,)), ((2, 3), (2, 1)), ((4,), ()), ((1,), (5,))], ids=str)
def test_features_broadcast(shapes):
    g = graph()
    compare(lambda x, e: dgl.ops.u_mul_e_sum(g, x, e), random(NODES, *shapes[0]), random(EDGES, *shapes[1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["u_add_v", "u_dot_v", "v_sub_u", "u_mul_e", "e_div_v", "v_dot_e"])
def test_edge_maps(op, kind):
    g = graph(kind)
    rows = {"u": g.num_src_nodes(), "v": g.num_dst_nodes(), "e": g.num_edges()}
    first, _, second = op.split("_")
    x, y = random(rows[first], 2, 3), random(rows[second], 2, 3) + 2
    compare(lambda x, y: getattr(dgl.ops, op)(g, x, y), x, y)


@pytest.mark.parametrize("norm_by", ["dst", "src"])
@pytest.mark.parametrize("kind", KINDS)
def test_softmaxes(kind, norm_by):
    g = graph(kind)
    compare(lambda s: dgl.ops.edge_softmax(g, s, norm_by=norm_by), random(g.num_edges(), 3, 1))


@pytest.mark.parametrize("kind", ["coo", "block", "none"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.GraphConv(6, 4, allow_zero_in_degree=True),
        lambda: layers.SAGEConv(6, 4, "mean"),
        lambda: layers.SAGEConv(6, 4, "pool"),
        lambda: layers.SAGEConv(6, 4, "lstm"),
        lambda: layers.GINConv(torch.nn.Linear(6, 4)),
        lambda: layers.GATConv(6, 2, 3, allow_zero_in_degree=True),
        lambda: layers.GATv2Conv(6, 2, 3, allow_zero_in_degree=True),
        lambda: layers.EdgeConv(6, 4, allow_zero_in_degree=True),
        lambda: layers.DotGatConv(6, 2, 3, allow_zero_in_degree=True),
    ],
    ids="GraphConv SAGE SAGEpool SAGElstm GIN GAT GATv2 EdgeConv DotGat".split(),
)
def test_layers(make, kind):
    torch.manual_seed(0)
    layer, g = make().double(), graph(kind)
    if kind == "none" and type(layer).__name__ in ("GATConv", "GATv2Conv", "DotGatConv", "SAGEConv"):
        pytest.skip("DGL itself fails, or has no numbers, on a graph without edges")

    def call(x, *weights):
        given = (x, x[: g.num_dst_nodes()]) if kind == "block" else x
        return torch.func.functional_call(layer, dict(zip(names, weights)), (g, given))

    names, weights = zip(*layer.named_parameters())
    compare(call, random(g.num_src_nodes(), 6), *weights)


@pytest.mark.parametrize("regularizer", [None, "basis", "bdd"])
def test_relational_layers(regularizer):
    torch.manual_seed(0)
    layer = layers.RelGraphConv(6, 6, 4, regularizer, 2 if regularizer else None).double()
    g, types, norm = graph(), torch.arange(EDGES) % 4, torch.rand(EDGES, 1, dtype=torch.float64)
    compare(lambda x: layer(g, x, types), random(NODES, 6))
    compare(lambda x, norm: layer(g, x, types, norm), random(NODES, 6), norm)


def test_readouts():
    g = dgl.batch([graph(), graph()])
    for op in ("sum", "mean", "max", "min"):

        def readout(x, op=op):
            with g.local_scope():
                g.ndata["x"] = x
                return dgl.readout_nodes(g, "x", op=op)

        compare(readout, random(2 * NODES, 3))
        assert not calls()["segment_reduce"].fallbacks


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("lengths", [[3, 1, 7], [3, 0, 1, 7, 0], [11], [0, 11]], ids=str)
@pytest.mark.parametrize("features", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_segments(op, features, lengths, dtype):
    lengths, x = torch.tensor(lengths, dtype=dtype), random(11, *features).round()
    compare(lambda x: dgl.ops.segment_reduce(lengths, x, op), x)
    x[4] = -torch.inf if op == "min" else torch.inf
    compare(lambda x: dgl.ops.segment_reduce(lengths, x, op).nan_to_num(), x)


def test_segments_of_other_lengths_are_dgls():
    x, lengths = random(9, 2), torch.tensor([3, 2])
    expected = dgl.ops.segment_reduce(lengths, x, "max")
    with gsb.enabled("dgl"):
        reset_status()
        assert torch.equal(dgl.ops.segment_reduce(lengths, x, "max"), expected)
        assert "segment_reduce" not in calls()


@pytest.mark.parametrize("make", [layers.GraphConv, lambda *widths, **more: layers.SAGEConv(*widths, "mean")])
def test_layers_over_edge_types(make):
    torch.manual_seed(0)
    parts = {name: make(6, 4, norm="right", allow_zero_in_degree=True) for name in ("follows", "likes", "liked")}
    conv = layers.HeteroGraphConv(parts, "mean").double()
    ends = {"follows": ("user", "user"), "likes": ("user", "item"), "liked": ("item", "user")}
    edges = {(source, name, target): graph().edges() for name, (source, target) in ends.items()}
    block = dgl.create_block(edges, {"user": NODES, "item": NODES}, {"user": NODES, "item": NODES})

    def call(users, items):
        found = conv(block, {"user": users, "item": items})
        return torch.cat([found["user"], found["item"]])

    compare(call, random(NODES, 6), random(NODES, 6))
    assert ("rgms" in calls()) == (make is layers.GraphConv)  # at the second sight


def test_functions_of_users_in_a_local_scope():
    g = graph()

    def program(x, w):
        with g.local_scope():
            g.ndata["x"] = x
            g.edata["w"] = w
            g.apply_edges(lambda edges: {"s": (edges.src["x"] * edges.dst["x"]).sum(-1, keepdim=True)})
            g.edata["a"] = dgl.ops.edge_softmax(g, g.edata["s"])
            g.update_all(lambda edges: {"m": edges.src["x"] * edges.data["a"] * edges.data["w"]}, fn.sum("m", "out"))
            return g.ndata["out"]

    compare(program, random(NODES, 4), random(EDGES, 1))


def test_second_gradients():
    g = graph()
    with gsb.enabled("dgl"):
        x, e = random(NODES, 3).requires_grad_(), random(EDGES, 3).requires_grad_()
        for function, given in (
            (lambda x, e: dgl.ops.u_mul_e_sum(g, x, e), (x, e)),
            (lambda x: dgl.ops.u_dot_v(g, x, x), (x,)),
            (lambda e: dgl.ops.edge_softmax(g, e), (e,)),
            (lambda x: dgl.ops.copy_u_max(g, x)[:3], (x,)),
        ):
            assert torch.autograd.gradcheck(function, given)
            assert torch.autograd.gradgradcheck(function, given, fast_mode=True)


def test_forces_of_a_sum_are_zeros_as_in_dgl():
    g = graph()

    def force(x, e):
        (found,) = torch.autograd.grad(dgl.ops.u_add_e_sum(g, x, e).square().sum(), x, create_graph=True)
        return found

    compare(force, random(NODES, 3), random(EDGES, 3))


def test_other_integers_and_types_go_the_long_way():
    for g, x in ((graph(dtype=torch.int32), random(NODES, 3)), (graph(), random(NODES, 3).bfloat16())):
        compare(lambda x, g=g: dgl.ops.copy_u_sum(g, x), x)


def test_a_graph_without_a_list_goes_the_long_way():
    function, x = lambda x: dgl.ops.copy_u_sum(graph("csc"), x), random(NODES, 3)
    with torch.no_grad():  # DGL itself has no gradient of it
        expected = function(x)
        with gsb.enabled("dgl"):
            torch.testing.assert_close(function(x), expected)


def test_the_list_belongs_to_the_structure_and_goes_with_it():
    with gsb.enabled("dgl"):
        g = graph()
        edges = edges_of(g._graph)
        assert torch.equal(edges.row, g.edges()[1]) and torch.equal(edges.col, g.edges()[0])
        assert edges_of(g._graph.get_relation_graph(0)) is edges
        reverse = edges_of(g._graph.reverse())
        assert (reverse.row.data_ptr(), reverse.shape) == (edges.col.data_ptr(), edges.shape[::-1])
        structures, _ = structures_of(g._graph)
        gone = weakref.ref(structures.of(0).listed.row)
        assert gone() is not None
        del g, edges, reverse, structures
        gc.collect()
        assert gone() is None


def test_what_ran_is_counted():
    g, x = graph(), random(NODES, 3)
    with gsb.enabled("dgl"):
        reset_status()
        g.ndata["x"] = x
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "y"))
        dgl.ops.edge_softmax(g, random(EDGES, 1))
        found = {name: row["ours"] for name, row in gsb.status().to_dict()["calls"]["dgl"].items()}
    assert found == {"gspmm": 1, "edge_softmax_forward": 1}


@pytest.mark.parametrize("op", ["add", "mul"])
def test_broadcasts_of_hundreds_of_features(op):
    """A kernel of these, which once took minutes to compile."""
    g = graph()
    x, y = torch.randn(NODES, 5, 3, 1, 7), torch.randn(NODES, 1, 3, 7, 7)
    compare(lambda x, y: dgl.ops.gsddmm(g, op, x, y, "u", "v"), x, y)
