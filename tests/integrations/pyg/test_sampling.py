"""PyG's loaders of sampled batches without pyg-lib and torch-sparse."""

import contextlib
import warnings
from collections import Counter

import pytest
import torch
import torch_geometric.typing
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import HGTLoader, LinkNeighborLoader, NeighborLoader
from torch_geometric.sampler import hgt_sampler
from torch_geometric.sampler.neighbor_sampler import NeighborSampler

import gnn_sparse_backend as gsb
from tests.integrations.pyg.features import EdgeIndex, edge_times

from ...sampling.statistics import assert_distributed

pytestmark = pytest.mark.skipif(
    torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE, reason="PyG has its own sampler"
)


@pytest.fixture(autouse=True)
def enabled():
    with gsb.enabled("pyg"):
        yield


def graph_data(nodes=200, edges=1500, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.arange(nodes).float()[:, None],
        edge_index=torch.randint(nodes, (2, edges), generator=generator),
        time=torch.randint(50, (nodes,), generator=generator),
        weight=torch.rand(edges, generator=generator),
        edge_time=torch.randint(50, (edges,), generator=generator),
    )


def hetero_data():
    data, generator = HeteroData(), torch.Generator().manual_seed(1)
    for kind, nodes in (("paper", 120), ("author", 80)):
        data[kind].x = torch.arange(nodes).float()[:, None]
    for source, name, destination in (("paper", "to", "author"), ("author", "to", "paper"), ("paper", "to", "paper")):
        ends = [torch.randint(data[kind].num_nodes, (700,), generator=generator) for kind in (source, destination)]
        data[source, name, destination].edge_index = torch.stack(ends)
    return data


def check_batch(data, batch):
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def check_hetero_batch(data, batch):
    for kind in data.edge_types:
        row, column = batch[kind].edge_index
        found = torch.stack([batch[kind[0]].n_id[row], batch[kind[2]].n_id[column]])
        assert torch.equal(found, data[kind].edge_index[:, batch[kind].e_id])


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"replace": True},
        {"disjoint": True},
        {"subgraph_type": "induced"},
        {"weight_attr": "weight"},
        {"time_attr": "time", "temporal_strategy": "last"},
        {"num_workers": 2},
    ],
)
def test_neighbor_loader(given):
    data = graph_data()
    loader = NeighborLoader(data, [4, 3], batch_size=32, **given)
    seen = []
    for batch in loader:
        check_batch(data, batch)
        seen.append(batch.n_id[: batch.batch_size])
        degrees = torch.bincount(data.edge_index[1], minlength=200)[batch.n_id[: batch.batch_size]]
        counts = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))[: batch.batch_size]
        if not given or "num_workers" in given or "disjoint" in given or "weight_attr" in given:
            assert torch.equal(counts, degrees.clamp(max=4))
        if "time_attr" in given:
            assert (data.time[batch.n_id] <= data.time[seen[-1]][batch.batch]).all()
    assert torch.equal(torch.cat(seen), torch.arange(200))


@edge_times
def test_edge_times():
    data = graph_data()
    until = torch.full((200,), 25)
    for batch in NeighborLoader(
        data, [4, 3], batch_size=50, time_attr="edge_time", input_nodes=torch.arange(200), input_time=until
    ):
        check_batch(data, batch)
        assert len(batch.e_id) and (data.edge_time[batch.e_id] <= 25).all()


def test_hetero_loaders():
    data = hetero_data()
    for disjoint in (False, True):
        for batch in NeighborLoader(data, [3, 2], input_nodes="paper", batch_size=40, disjoint=disjoint):
            check_hetero_batch(data, batch)
            degrees = torch.bincount(data["author", "paper"].edge_index[1], minlength=120)[batch["paper"].n_id[:40]]
            counts = torch.bincount(batch["author", "paper"].edge_index[1], minlength=len(batch["paper"].n_id))
            assert torch.equal(counts[: len(degrees[:40])], degrees.clamp(max=3))
    for batch in HGTLoader(data, [10, 15], input_nodes="paper", batch_size=40):
        check_hetero_batch(data, batch)
        assert len(batch["paper"].n_id) == 40 + 10 + 15 and len(batch["author"].n_id) == 10 + 15
        for kind in data.edge_types:  # fewer than 50 neighbours: all edges between them
            met = [torch.isin(ends, batch[of].n_id) for ends, of in zip(data[kind].edge_index, (kind[0], kind[2]))]
            assert torch.equal(batch[kind].e_id.sort().values, (met[0] & met[1]).nonzero().view(-1))


@pytest.mark.parametrize("negative", ["binary", "triplet"])
@pytest.mark.parametrize("disjoint", [False, True])
def test_link_neighbor_loader(negative, disjoint):
    data = graph_data()
    edges = data.edge_index[:, :100]
    loader = LinkNeighborLoader(
        data, [4, 3], batch_size=25, edge_label_index=edges, neg_sampling=negative, disjoint=disjoint
    )
    for at, batch in enumerate(loader):
        check_batch(data, batch)
        expected = edges[:, 25 * at : 25 * at + 25]
        if negative == "binary":
            assert torch.equal(batch.n_id[batch.edge_label_index[:, :25]], expected)
        else:
            assert torch.equal(batch.n_id[batch.src_index], expected[0])
            assert torch.equal(batch.n_id[batch.dst_pos_index], expected[1])


def test_hgt_draws_by_the_squares_of_budgets():
    """Node 0 has two neighbours, node 1 one of these: their budgets are 1/2 and 3/2, their chances 1/10 and 9/10."""
    data = HeteroData()
    data["a"].x, data["b"].x = torch.zeros(2, 1), torch.zeros(2, 1)
    data["b", "to", "a"].edge_index = torch.tensor([[0, 1, 1], [0, 0, 1]])
    loader = HGTLoader(data, {"a": [0], "b": [1]}, input_nodes=("a", torch.tensor([0, 1])), batch_size=2)
    torch.manual_seed(0)
    counts = Counter(int(batch["b"].n_id) for _ in range(250) for batch in loader)
    assert_distributed([counts[0], counts[1]], [0.1, 0.9])


@pytest.mark.parametrize("order", [None, "row", "col"])
@pytest.mark.parametrize(
    "given", [{}, {"replace": True}, {"disjoint": True}, {"subgraph_type": "induced"}, {"num_workers": 1}], ids=str
)
def test_loaders_of_an_edge_index_of_pyg(order, given):
    data = graph_data()
    data.edge_index = EdgeIndex(data.edge_index, sparse_size=(200, 200))
    if order is not None:
        data.edge_index, _ = data.edge_index.sort_by(order)
    for batch in NeighborLoader(data, [3, 2], input_nodes=torch.arange(40), batch_size=20, **given):
        assert type(batch.edge_index) in (torch.Tensor, EdgeIndex)  # the latter with PyG 2.5
        check_batch(data, batch)
    for batch in LinkNeighborLoader(data, [3, 2], edge_label_index=data.edge_index[:, :40], batch_size=20):
        check_batch(data, batch)


def test_hetero_loaders_of_an_edge_index_of_pyg():
    data = hetero_data()
    for source, name, destination in data.edge_types:
        edges = data[source, name, destination]
        size = data[source].num_nodes, data[destination].num_nodes
        edges.edge_index = EdgeIndex(edges.edge_index, sparse_size=size)
    for loader in (
        NeighborLoader(data, [3, 2], input_nodes="paper", batch_size=40),
        HGTLoader(data, [4, 4], input_nodes="paper", batch_size=40),
    ):
        for batch in loader:
            check_hetero_batch(data, batch)


def test_workers_draw_apart_and_manual_seed_repeats():
    data = graph_data(edges=6000)

    def epoch():
        torch.manual_seed(3)
        return [batch.e_id for batch in NeighborLoader(data, [2], batch_size=100, num_workers=2, input_nodes=twice)]

    twice = torch.arange(100).repeat(2)
    first, second = epoch(), epoch()
    assert all(torch.equal(one, other) for one, other in zip(first, second))
    assert not torch.equal(first[0], first[1])


def test_what_is_out_of_range_is_refused():
    data = graph_data()
    with pytest.raises(IndexError, match="200 nodes, but input from 3 to 200"):
        next(iter(NeighborLoader(data, [2], input_nodes=torch.tensor([3, 200]), batch_size=2)))
    data.edge_index[0, 5] = 333
    with pytest.raises(IndexError, match="largest index 333"):
        next(iter(NeighborLoader(data, [2], batch_size=2)))
    data = graph_data()
    data.time = data.time.float()
    with pytest.raises(ValueError, match="float32"):
        next(iter(NeighborLoader(data, [2], batch_size=2, time_attr="time")))


@pytest.mark.parametrize("asked", [False, True])
def test_what_torch_sparse_samples_stays_with_it(monkeypatch, asked):
    """What it cannot is sampled here, and all of it where somebody asks."""
    gsb.disable("pyg")
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", True)
    monkeypatch.setenv("GSB_SAMPLER", str(int(asked)))

    class Sampled(Exception):
        pass

    def by_torch_sparse(self, *args, **kwargs):
        raise Sampled

    monkeypatch.setattr(NeighborSampler, "_sample", by_torch_sparse)
    data = graph_data()
    with gsb.enabled("pyg"):
        for given in ({}, {"replace": True}, {"subgraph_type": "induced"}):
            with contextlib.nullcontext() if asked else pytest.raises(Sampled):
                next(iter(NeighborLoader(data, [3, 2], batch_size=20, **given)))
        for given in ({"disjoint": True}, {"weight_attr": "weight"}, {"time_attr": "time"}):
            check_batch(data, next(iter(NeighborLoader(data, [3, 2], batch_size=20, **given))))


@edge_times
def test_switching_puts_everything_back():
    data = graph_data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = NeighborLoader(data, [2], batch_size=10)
    next(iter(loader))
    assert gsb.status().to_dict()["calls"]["pyg"]["sample_neighbors"]["ours"] > 0
    ours = NeighborSampler._sample
    gsb.disable("pyg")
    assert NeighborSampler._sample is not ours
    assert not torch_geometric.typing.WITH_EDGE_TIME_NEIGHBOR_SAMPLE and not hgt_sampler.WITH_TORCH_SPARSE
    with pytest.raises(ImportError, match="pyg-lib"):
        next(iter(loader))
    with pytest.raises(ImportError, match="torch-sparse"):
        HGTLoader(hetero_data(), [2], input_nodes="paper")
    gsb.enable("pyg")
    assert len(next(iter(loader)).n_id) >= 10
