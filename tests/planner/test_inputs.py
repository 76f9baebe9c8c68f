"""Graphs of any library are recognised, and mean the same structure."""

import numpy as np
import pytest
import scipy.sparse
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core.foreign import graphs_of

SOURCE, DESTINATION = np.array([0, 2, 1, 1, 3]), np.array([1, 1, 0, 2, 2])
DENSE = np.zeros((4, 4), int)
np.add.at(DENSE, (DESTINATION, SOURCE), 1)
EDGES = torch.from_numpy(np.stack((SOURCE, DESTINATION)))
MATRIX = scipy.sparse.coo_matrix((np.ones(5), (DESTINATION, SOURCE)), shape=(4, 4))


def dense(graph):
    """Number of edges, by destination and source."""
    result = np.zeros(graph.shape, int)
    np.add.at(result, (np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr)), graph.indices.numpy()), 1)
    return result


def one(data):
    ((name, graph),) = graphs_of(data)
    assert name
    return dense(graph)


MATRICES = {
    "graph": lambda: gsb.Graph.from_edge_index(EDGES, (4, 4)),
    "coo": lambda: MATRIX,
    "csr": MATRIX.tocsr,
    "csc": MATRIX.tocsc,
    "csr array": lambda: scipy.sparse.csr_array(MATRIX),
    "dok": MATRIX.todok,
    "edge_index": lambda: EDGES,
    **{f"torch {kind}": getattr(torch.from_numpy(DENSE), f"to_sparse_{kind}") for kind in ("coo", "csr", "csc")},
}


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_matrices_and_tensors(kind):
    np.testing.assert_array_equal(one(MATRICES[kind]()), DENSE)


def test_dgl():
    dgl = pytest.importorskip("dgl")
    graph = dgl.graph((EDGES[0], EDGES[1]), num_nodes=4)
    np.testing.assert_array_equal(one(graph), DENSE)
    np.testing.assert_array_equal(one(dgl.to_block(graph, torch.arange(4))).sum(1), DENSE.sum(1))
    hetero = dgl.heterograph(
        {
            ("a", "x", "b"): (torch.tensor([0, 1]), torch.tensor([2, 2])),
            ("b", "y", "a"): (torch.tensor([2]), torch.tensor([0])),
        }
    )
    found = dict(graphs_of(hetero))
    assert [graph.shape for graph in found.values()] == [(3, 2), (2, 3)]
    assert [name.split()[1] for name in found] == ["a/x/b", "b/y/a"]


@pytest.mark.filterwarnings("ignore")
def test_pyg():
    pytest.importorskip("torch_geometric")
    from torch_geometric import EdgeIndex
    from torch_geometric.data import Batch, Data, HeteroData

    data = Data(edge_index=EDGES, num_nodes=4)
    np.testing.assert_array_equal(one(data), DENSE)
    np.testing.assert_array_equal(one(EdgeIndex(EDGES, sparse_size=(4, 4))), DENSE)
    np.testing.assert_array_equal(one(Data(adj_t=torch.from_numpy(DENSE).to_sparse_csr(), num_nodes=4)), DENSE)
    np.testing.assert_array_equal(one(Batch.from_data_list([data, data]))[4:, 4:], DENSE)
    hetero = HeteroData()
    hetero["a"].num_nodes, hetero["b"].num_nodes = 3, 2
    hetero["a", "x", "b"].edge_index = torch.tensor([[0, 2], [1, 1]])
    ((name, graph),) = graphs_of(hetero)
    assert "a/x/b" in name
    np.testing.assert_array_equal(dense(graph), [[0, 0, 0], [1, 0, 1]])
    with pytest.raises(ValueError, match="neither edge_index nor adj_t"):
        list(graphs_of(Data(x=torch.zeros(3, 2))))


def test_collections_and_datasets():
    class Dataset:
        def __len__(self):
            return 3

        def __getitem__(self, number):
            return [MATRIX, EDGES][number % 2], torch.from_numpy(DENSE).to_sparse_coo()

    found = list(graphs_of(Dataset()))
    assert [name.split()[:2] for name, _ in found[:2]] == [["[0]", "[0]"], ["[0]", "[1]"]] and len(found) == 6
    for _, graph in found:
        np.testing.assert_array_equal(dense(graph), DENSE)
    assert len(list(graphs_of(Dataset(), limit=1))) == 1
    assert len(list(graphs_of(matrix for matrix in (MATRIX, MATRIX)))) == 2


@pytest.mark.parametrize("data", [3, None, "graph.npz", {"edge_index": EDGES}, object(), [object()]])
def test_what_holds_no_graph(data):
    with pytest.raises(TypeError, match="no graph in an object of type.*SciPy"):
        list(graphs_of(data))


def test_bad_indices_are_refused():
    with pytest.raises(ValueError):
        list(graphs_of(torch.zeros(3, 4, dtype=torch.int64)))
    with pytest.raises((TypeError, ValueError)):
        list(graphs_of(torch.zeros(2, 4)))


@pytest.mark.filterwarnings("ignore")
def test_dataset_transforms(plans, two_threads):
    pytest.importorskip("dgl")
    pytest.importorskip("torch_geometric")
    import dgl
    from torch_geometric.data import Data

    from gnn_sparse_backend.integrations.dgl import transform as dgl_transform
    from gnn_sparse_backend.integrations.pyg import transform as pyg_transform

    rng = torch.Generator().manual_seed(0)
    edges = torch.randint(300, (2, 3000), generator=rng)
    data, graph = Data(edge_index=edges, num_nodes=300), dgl.graph((edges[0], edges[1]), num_nodes=300)
    ours = pyg_transform.Precompile(16, "mean", "5s", backward=False)
    assert ours(data).edge_index is data.edge_index
    (report,) = ours.reports
    assert report.rows[0].state == "measured" and len(plans.records()) == 1
    theirs = dgl_transform.Precompile(features=16, ops="mean", budget="5s", backward=False)
    assert theirs(graph) is graph
    assert theirs.reports[0].rows[0].state == "known", "the same structure, from another library"
    spent = dgl_transform.Precompile(budget=0)
    assert spent(graph) is graph and spent.reports == []
