"""``Reorder`` moves all that belongs to nodes and edges of DGL's graphs along."""

import dgl
import dgl.function as fn
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.dgl.transform import Reorder


def edges(sizes, count=40, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(n, (count,), generator=rng) for n in sizes)


def graph_of(idtype=torch.int64):
    g = dgl.graph(edges((10, 10)), num_nodes=12, idtype=idtype)
    g.ndata["h"], g.ndata["mask"] = torch.randn(12, 3), torch.arange(12) % 2 == 0
    g.edata["w"] = torch.rand(40)
    return g


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("method", ["rcm", "degree"])
def test_all_that_belongs_to_nodes_and_edges_goes_along(method, idtype):
    g = graph_of(idtype)
    new = Reorder(method)(g)
    nodes, at = new.ndata[dgl.NID].long(), new.edata[dgl.EID].long()
    assert torch.equal(nodes, gsb.reorder(gsb.Graph.from_dgl(g), method).nodes.order)
    assert new.idtype == idtype and dgl.NID not in g.ndata and dgl.EID not in g.edata
    for found, wanted in zip(new.edges(order="eid"), g.edges(order="eid")):
        assert torch.equal(nodes[found.long()], wanted.long()[at])
    source, destination = new.edges(order="eid")
    assert ((destination.long() * 12 + source).diff() >= 0).all()
    assert torch.equal(new.ndata["h"], g.ndata["h"][nodes]) and torch.equal(new.ndata["mask"], g.ndata["mask"][nodes])
    assert torch.equal(new.edata["w"], g.edata["w"][at])


@pytest.mark.parametrize("formats", [["csr"], ["csc"], ["coo"], ["csr", "csc"]])
def test_graphs_of_few_formats(formats):
    g = graph_of()
    few, whole = Reorder()(g.formats(formats)), Reorder()(g)
    assert sorted(each for some in few.formats().values() for each in some) == sorted(formats)
    for found, wanted in zip(few.formats("coo").edges(order="eid"), whole.edges(order="eid")):
        assert torch.equal(found, wanted)
    assert torch.equal(few.ndata["h"], whole.ndata["h"]) and torch.equal(few.edata["w"], whole.edata["w"])


def test_messages_are_the_same():
    g = graph_of()
    new = Reorder()(g)
    for graph in (g, new):
        with gsb.enabled("dgl"):
            graph.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "y"))
    torch.testing.assert_close(new.ndata["y"], g.ndata["y"][new.ndata[dgl.NID]])


def test_several_types_twice():
    ab, ba, aa = edges((5, 7)), edges((7, 5), seed=1), edges((5, 5), seed=2)
    g = dgl.heterograph({("a", "r", "b"): ab, ("b", "r", "a"): ba, ("a", "t", "a"): aa}, {"a": 5, "b": 8})
    g.nodes["a"].data["h"] = torch.arange(5)
    new = Reorder("degree")(Reorder("rcm")(g))
    assert torch.equal(new.nodes["a"].data["h"], new.nodes["a"].data[dgl.NID])
    for kind in g.canonical_etypes:
        at = new.edges[kind].data[dgl.EID]
        for end, found, wanted in zip((0, 2), new.edges(etype=kind, order="eid"), g.edges(etype=kind, order="eid")):
            assert torch.equal(new.nodes[kind[end]].data[dgl.NID][found], wanted[at])


@pytest.mark.parametrize("nodes", [1, 6])
def test_without_edges(nodes):
    none = torch.empty(0, dtype=torch.int64)
    new = Reorder()(dgl.graph((none, none), num_nodes=nodes))
    assert new.num_nodes() == nodes and new.num_edges() == 0


def test_what_it_refuses():
    with pytest.raises(TypeError, match="got a block"):
        Reorder()(dgl.to_block(graph_of()))
    with pytest.raises(TypeError, match="got a batch of 2 graphs"):
        Reorder()(dgl.batch([graph_of(), graph_of()]))
    with pytest.raises(ValueError, match="got 'amd'"):
        Reorder("amd")
