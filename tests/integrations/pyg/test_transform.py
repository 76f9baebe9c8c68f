"""``Reorder`` moves all that belongs to nodes and edges of PyG's data along, and a layer's results with them."""

import warnings

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.nn import GraphConv
from torch_geometric.transforms import ToSparseTensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.pyg.transform import Reorder

NODES, EDGES = 12, 40


def data_of(edges=EDGES, nodes=NODES):
    rng = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(nodes, 3, generator=rng),
        y=torch.arange(nodes),
        train_mask=torch.arange(nodes) % 3 == 0,
        names=[f"node {n}" for n in range(nodes)],
        as_numpy=np.arange(nodes),
        edge_index=torch.randint(nodes - 2, (2, edges), generator=rng),
        edge_weight=torch.rand(edges, generator=rng),
        edge_label_index=torch.tensor([[0, 5], [3, 2], [1, 1]]).T,
        train_index=torch.tensor([4, 1]),
        face=torch.tensor([[0], [1], [2]]),
        name="of the graph",
    )


@pytest.mark.parametrize("method", ["rcm", "degree"])
@pytest.mark.parametrize("edges", [EDGES, 0, NODES])
def test_all_that_belongs_to_nodes_and_edges_goes_along(method, edges):
    data = data_of(edges)
    new = Reorder(method)(data)
    nodes, at = new.n_id, new.e_id
    order = gsb.reorder(gsb.Graph.from_edge_index(data.edge_index, (NODES, NODES)), method).nodes.order
    assert torch.equal(nodes, order) and torch.equal(at.sort().values, torch.arange(edges))
    assert torch.equal(nodes[new.edge_index], data.edge_index[:, at])
    key = new.edge_index[1] * NODES + new.edge_index[0]
    assert (key.diff() >= 0).all()
    for name in ("x", "y", "train_mask"):
        assert torch.equal(new[name], data[name][nodes])
    assert torch.equal(new.edge_weight, data.edge_weight[at])
    assert new.names == [data.names[n] for n in nodes] and new.as_numpy.tolist() == nodes.tolist()
    for name in ("edge_label_index", "train_index", "face"):
        assert torch.equal(nodes[new[name]], data[name])
    assert new.name == "of the graph" and new.num_nodes == NODES
    assert "n_id" not in data and torch.equal(data.y, torch.arange(NODES)), "the data are left as they were"


def test_numbers_of_a_larger_graph_go_along():
    once = Reorder("rcm")(data_of())
    twice = Reorder("degree")(once)
    before = data_of()
    assert torch.equal(twice.n_id, twice.y)
    assert torch.equal(twice.n_id[twice.edge_index], before.edge_index[:, twice.e_id])


def test_a_layer_gives_the_same():
    data, layer = data_of(), GraphConv(3, 4)
    new = Reorder()(data)
    wanted = layer(data.x, data.edge_index, data.edge_weight)
    with gsb.enabled("pyg"):
        found = layer(new.x, new.edge_index, new.edge_weight)
    torch.testing.assert_close(found, wanted[new.n_id])


def test_nodes_of_several_types():
    rng = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["a"].x, data["b"].num_nodes = torch.randn(5, 2, generator=rng), 7
    for kind, sizes in {("a", "r", "b"): (5, 7), ("b", "s", "a"): (7, 5), ("a", "t", "a"): (5, 5)}.items():
        data[kind].edge_index = torch.stack([torch.randint(n, (20,), generator=rng) for n in sizes])
        data[kind].edge_attr = torch.arange(20)
    data["a", "r", "b"].edge_label_index = torch.tensor([[4, 1], [6, 0]])
    new = Reorder()(data)
    assert torch.equal(new["a"].x, data["a"].x[new["a"].n_id])
    for kind in data.edge_types:
        store, before = new[kind], data[kind]
        ids = [new[kind[0]].n_id[store.edge_index[0]], new[kind[2]].n_id[store.edge_index[1]]]
        assert torch.equal(torch.stack(ids), before.edge_index[:, store.e_id])
        assert torch.equal(store.edge_attr, store.e_id)
    store = new["a", "r", "b"]
    ids = [new["a"].n_id[store.edge_label_index[0]], new["b"].n_id[store.edge_label_index[1]]]
    assert torch.equal(torch.stack(ids), data["a", "r", "b"].edge_label_index)


def test_what_it_refuses():
    with pytest.raises(ValueError, match="put it before ToSparseTensor"):
        Reorder()(ToSparseTensor(layout=torch.sparse_csr)(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)))
    with pytest.raises(TypeError, match="got DataBatch; reorder graphs before batching"):
        Reorder()(Batch.from_data_list([data_of(), data_of()]))
    with pytest.raises(TypeError, match="expected a Data or HeteroData, got dict"):
        Reorder().forward({})
    with pytest.raises(ValueError, match="got 'amd'"):
        Reorder("amd")


class Kept(InMemoryDataset):
    processed_file_names = ("data.pt",)

    def process(self):
        self.save([self.pre_transform(data_of())], self.processed_paths[0])


def test_another_order_is_not_taken_for_one_on_the_disk(tmp_path):
    Kept(str(tmp_path), pre_transform=Reorder("rcm"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Kept(str(tmp_path), pre_transform=Reorder("rcm"))
    with pytest.warns(UserWarning, match="pre_transform"):
        Kept(str(tmp_path), pre_transform=Reorder("degree"))
