"""Graph: construction, refusals, order of edges, transpose, caches, identity."""

import copy
import gc
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy import sparse

import gnn_sparse_backend as gsb
from gnn_sparse_backend import Graph
from gnn_sparse_backend.structures import build
from tests.ops.oracle import graph_of, structures


def edges_of(graph):
    """(row, col) in the user's edge order."""
    row = np.repeat(np.arange(graph.shape[0]), graph.in_degrees.numpy())
    ids = np.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids.numpy()
    edges = np.full((2, graph.num_edges), -1)
    edges[:, ids] = row, graph.indices.numpy()
    return edges


def assert_is(graph, row, col, shape):
    graph.validate()
    assert graph.shape == tuple(shape) and graph.num_edges == len(row)
    np.testing.assert_array_equal(edges_of(graph), [row, col])
    np.testing.assert_array_equal(graph.in_degrees.numpy(), np.bincount(row, minlength=shape[0]))


def test_from_coo(structure):
    assert_is(graph_of(structure), *structure)
    row, col, shape = structure
    assert_is(Graph.from_coo(row.astype(np.int32), col.astype(np.uint8), shape), *structure)


@settings(max_examples=60, deadline=None)
@given(structures())
def test_any_structure_and_its_transpose(structure):
    row, col, shape = structure
    graph = graph_of(structure)
    assert_is(graph, *structure)
    assert_is(graph.transpose(), col, row, shape[::-1])
    expected = sparse.coo_array((np.ones(row.size), (row, col)), shape=shape).toarray()
    arrays = np.ones(row.size), graph.indices.numpy(), graph.indptr.numpy()
    np.testing.assert_array_equal(sparse.csr_array(arrays, shape=shape).toarray(), expected)


def test_edges_of_one_row_keep_their_order():
    graph = Graph.from_coo(torch.tensor([1, 0, 1, 1]), torch.tensor([2, 0, 0, 2]), (2, 3))
    assert graph.indices.tolist() == [0, 2, 0, 2] and graph.edge_ids.tolist() == [1, 0, 2, 3]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("edges", [2, 8192])
@pytest.mark.parametrize("rows", [7, 2**16 + 1])
def test_ordering_is_stable_and_keeps_duplicates(rows, edges, dtype):
    draw = np.random.default_rng(0)
    row, col = draw.integers(rows, size=edges), draw.integers(5, size=edges)
    row[:2] = rows - 1, 0  # the ends of the range, and out of order
    apart = (torch.from_numpy(a).to(dtype).repeat_interleave(2)[::2] for a in (row, col))
    indptr, indices, ids = build.coo_to_csr(*apart, rows, False, dtype)
    order = np.argsort(row, kind="stable")
    np.testing.assert_array_equal(indptr.numpy(), np.searchsorted(row[order], np.arange(rows + 1)))
    np.testing.assert_array_equal(indices.numpy(), col[order])
    np.testing.assert_array_equal(ids.numpy(), order)
    back = build.transpose_csr(indptr, indices, ids, 5)
    by_column = np.argsort(indices.numpy(), kind="stable")
    np.testing.assert_array_equal(back[0].numpy(), np.searchsorted(np.sort(col), np.arange(6)))
    np.testing.assert_array_equal(back[1].numpy(), row[order][by_column])
    np.testing.assert_array_equal(back[2].numpy(), order[by_column])
    assert {a.dtype for a in (indptr, indices, ids, *back)} == {dtype}


def test_sorted_edges_need_no_edge_ids():
    graph = Graph.from_coo(torch.tensor([0, 0, 2]), torch.tensor([2, 1, 0]), (3, 3))
    assert graph.edge_ids is None and graph.indices.tolist() == [2, 1, 0]
    assert Graph.from_csr(graph.indptr, graph.indices, (3, 3), torch.arange(3)).edge_ids is None


def test_from_csr_copies():
    indptr, indices = torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    graph = Graph.from_csr(indptr, indices, (2, 2), torch.tensor([1, 0]))
    indices.fill_(99)
    indptr.fill_(99)
    assert_is(graph, [1, 0], [1, 0], (2, 2))
    own = Graph.from_csr(graph.indptr, graph.indices, (2, 2), trusted=True)
    assert own.indices.data_ptr() == graph.indices.data_ptr()


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_from_scipy(form, kind):
    matrix = kind(sparse.random(14, 10, density=0.2, random_state=1))
    graph = Graph.from_scipy(matrix.asformat(form)).validate()
    x = torch.eye(10, dtype=torch.float64)
    values = torch.from_numpy(matrix.asformat(form).tocsr().data if form != "coo" else matrix.tocoo().data)
    np.testing.assert_allclose(gsb.spmm(graph, x, values).numpy(), matrix.toarray())


def test_from_scipy_keeps_explicit_zeros_and_duplicates():
    matrix = sparse.coo_matrix((np.zeros(3), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert Graph.from_scipy(matrix).num_edges == 3


def test_from_edge_index_has_sources_first():
    edge_index = torch.tensor([[4, 0, 4], [1, 2, 0]])
    assert_is(Graph.from_edge_index(edge_index, size=(5, 3)), [1, 2, 0], [4, 0, 4], (3, 5))
    assert Graph.from_edge_index(edge_index).shape == (5, 5)
    assert Graph.from_edge_index(edge_index, size=(None, 3)).shape == (3, 5)
    assert Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long)).shape == (0, 0)


def test_from_edge_index_of_pyg():
    geometric = pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed")
    edge_index = torch.tensor([[4, 0, 4], [1, 2, 0]])
    graph = Graph.from_edge_index(geometric.EdgeIndex(edge_index, sparse_size=(5, 3)), size=(5, 3))
    assert type(graph.indices) is torch.Tensor
    assert_is(graph, [1, 2, 0], [4, 0, 4], (3, 5))


def test_from_dgl():
    dgl = pytest.importorskip("dgl", reason="DGL is not installed")
    source, destination = torch.tensor([4, 0, 4, 1]), torch.tensor([1, 2, 0, 1])
    for index_type in (torch.int32, torch.int64):
        homogeneous = dgl.graph((source.to(index_type), destination.to(index_type)), num_nodes=6)
        assert_is(Graph.from_dgl(homogeneous), destination, source, (6, 6))
    block = dgl.create_block((source, destination), num_src_nodes=7, num_dst_nodes=3)
    assert_is(Graph.from_dgl(block), destination, source, (3, 7))
    hetero = dgl.heterograph({("a", "x", "b"): (source, destination), ("b", "y", "a"): (destination, source)})
    assert_is(Graph.from_dgl(hetero["x"]), destination, source, (3, 5))
    assert_is(Graph.from_dgl(hetero, etype="y"), source, destination, (5, 3))
    with pytest.raises(ValueError, match="2 edge types"):
        Graph.from_dgl(hetero)
    assert Graph.from_dgl(dgl.graph(([], []), num_nodes=3)).shape == (3, 3)
    with pytest.raises(TypeError, match="expected a DGL graph"):
        Graph.from_dgl(source)


def index(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    "arrays, shape, error, words",
    [
        ((index(0, 1), index(0)), (2, 2), ValueError, r"destinations \+ 1 = 3 entries, got 2"),
        ((index(1, 1, 1), index(0)), (2, 2), ValueError, r"indptr\[0\] must be 0, got 1"),
        ((index(0, 2, 1), index(0)), (2, 2), ValueError, r"indptr\[1\] = 2 but indptr\[2\] = 1"),
        ((index(0, 1, 3), index(0, 0)), (2, 2), ValueError, r"number of edges 2, got 3"),
        ((index(0, 1, 3), index(0, 2, -1)), (2, 2), ValueError, r"indices\[1\] = 2 is out of range.*2 sources"),
        ((index(0, 1, 2), index(0, -1)), (2, 2), ValueError, r"indices\[1\] = -1"),
        ((index(0, 1, 2), index(0, 2**32)), (2, 2), ValueError, r"indices\[1\] = 4294967296"),
        ((index(0, 1, 2), index(0, 1), index(0)), (2, 2), ValueError, r"edge_ids must have one entry per edge \(2\)"),
        ((index(0, 1, 2), index(0, 1), index(0, 2)), (2, 2), ValueError, r"edge_ids\[1\] = 2"),
        ((index(0, 1), torch.zeros(1)), (1, 1), TypeError, r"indices must hold integers, got torch.float32"),
        ((index(0, 1), torch.zeros(1, dtype=torch.bool)), (1, 1), TypeError, "torch.bool"),
        ((index(0, 1), np.zeros(1)), (1, 1), TypeError, "float64"),
        ((index(0, 1), [0]), (1, 1), TypeError, r"got list; wrap it in torch.as_tensor"),
        ((index(0, 1), index(0).reshape(1, 1)), (1, 1), ValueError, r"1-D, got shape \(1, 1\)"),
        ((index(0, 1), index(0).to_sparse()), (1, 1), TypeError, "layout torch.sparse_coo"),
        ((index(0, 1), index(0).to("meta")), (1, 1), ValueError, "meta device"),
        ((index(0, 1), index(0)), (1, 1, 1), TypeError, "shape must be a pair"),
        ((index(0, 1), index(0)), 1, TypeError, "shape must be a pair"),
        ((index(0, 1), index(0)), (1, -1), ValueError, "sources must not be negative, got -1"),
        ((index(0, 1), index(0)), (1.0, 1), TypeError, "destinations must be an int, got 1.0"),
        ((index(0, 1), index(0)), (True, 1), TypeError, "destinations must be an int, got True"),
    ],
)
def test_from_csr_refuses(arrays, shape, error, words):
    with pytest.raises(error, match=words):
        Graph.from_csr(arrays[0], arrays[1], shape, *arrays[2:])


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: Graph.from_coo(index(0, 2), index(0, 0), (2, 1)), ValueError, r"row\[1\] = 2 .*2 destinations"),
        (lambda: Graph.from_coo(index(0, 1), index(0, 1), (2, 1)), ValueError, r"col\[1\] = 1 .*1 sources"),
        (lambda: Graph.from_coo(index(0, 1), index(0), (2, 1)), ValueError, "same length, got 2 and 1"),
        (lambda: Graph.from_coo(index(0), index(0), (0, 0)), ValueError, r"row\[0\] = 0 .*0 destinations"),
        (lambda: Graph.from_scipy(np.eye(2)), TypeError, "SciPy sparse matrix or array, got ndarray"),
        (lambda: Graph.from_edge_index(index(0, 1)), ValueError, r"\(2, edges\), got \(2,\)"),
        (lambda: Graph.from_edge_index(torch.zeros(3, 2, dtype=torch.long)), ValueError, r"got \(3, 2\)"),
        (lambda: Graph.from_edge_index(torch.zeros(2, 2)), TypeError, "must hold integers"),
        (lambda: Graph.from_edge_index([[0], [1]]), TypeError, "torch tensor of shape"),
        (lambda: Graph.from_edge_index(torch.eye(2).to_sparse_csr()), TypeError, "crow_indices"),
        (lambda: Graph.from_edge_index(torch.tensor([[0], [-1]])), ValueError, r"row\[0\] = -1"),
        (lambda: Graph.from_edge_index(torch.tensor([[0], [1]]), size=3), TypeError, "size must be"),
        (lambda: Graph.from_edge_index(torch.tensor([[0], [1]]), size=(1, 1)), ValueError, r"row\[0\] = 1"),
        (lambda: Graph(1, 2), TypeError, "Graph.from_csr"),
    ],
)
def test_other_constructors_refuse(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_validate_quotes_the_first_bad_entry_of_trusted_arrays():
    good = index(0, 1, 2, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"indices\[1\] = 7"):
        Graph.from_csr(good, index(0, 7), (2, 2), trusted=True).validate()
    with pytest.raises(ValueError, match="edge 0 appears 0 times"):
        Graph.from_csr(good, index(0, 1), (2, 2), index(1, 1)).validate()


def test_transpose_is_cached_and_its_own_inverse(structure):
    graph = graph_of(structure)
    transpose = graph.transpose()
    assert transpose is graph.transpose() and transpose.transpose() is graph
    del graph
    gc.collect()
    row, col, shape = structure
    assert_is(transpose, col, row, shape[::-1])
    assert_is(transpose.transpose(), row, col, shape)


def test_threads_share_one_transpose(zoo):
    for _ in range(20):
        graph = graph_of(zoo["skewed"])
        barrier, found = threading.Barrier(4), []

        def work(graph=graph, barrier=barrier, found=found):
            barrier.wait()
            found.append((graph.transpose(), graph.fingerprint, graph.in_degrees))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for values in zip(*found):
            assert all(value is values[0] for value in values)


def test_index_type(monkeypatch):
    monkeypatch.setattr(build, "INT32_LIMIT", 10)
    few, many = torch.zeros(10, dtype=torch.long), torch.zeros(11, dtype=torch.int32)
    for edges, shape, expected in [
        (few, (10, 10), torch.int32),
        (many, (10, 10), torch.int64),
        (few, (11, 10), torch.int64),
        (few, (10, 11), torch.int64),
    ]:
        graph = Graph.from_coo(edges, edges, shape)
        indptr = torch.full((shape[0] + 1,), edges.numel())
        indptr[0] = 0
        for made in (graph, graph.transpose(), Graph.from_csr(indptr, edges, shape)):
            assert {a.dtype for a in (made.indptr, made.indices) if a is not None} == {expected}
            made.validate()
        assert graph.transpose().in_degrees.dtype == expected


def test_statistics(structure):
    row, _, shape = structure
    graph = graph_of(structure)
    measured, degrees = graph.statistics, np.bincount(row, minlength=shape[0])
    assert (measured.num_rows, measured.num_cols, measured.num_edges) == (*shape, row.size)
    assert measured is graph.statistics
    assert measured.empty_rows == (degrees == 0).sum()
    if shape[0]:
        assert (measured.min_degree, measured.max_degree) == (degrees.min(), degrees.max())
        np.testing.assert_allclose([measured.mean_degree, measured.std_degree], [degrees.mean(), degrees.std()])
        expected = [np.percentile(degrees, q, method="inverted_cdf") for q in (50, 90, 99)]
        assert list(measured.degree_quantiles) == expected
        if row.size:
            differences = np.abs(degrees[:, None] - degrees[None]).sum()
            np.testing.assert_allclose(measured.gini, differences / (2 * shape[0] * row.size), atol=1e-12)
            np.testing.assert_allclose(measured.density, row.size / (shape[0] * shape[1]))


def test_inverse_in_degrees(zoo):
    inverse = graph_of(zoo["duplicates"]).inverse_in_degrees
    assert inverse.dtype == torch.float32 and inverse.tolist() == [0.5, 1.0, 0.25, 1.0]


def test_fingerprint_identifies_content(zoo):
    prints = {name: graph_of(structure).fingerprint for name, structure in zoo.items()}
    assert len(set(prints.values())) == len(prints)
    row, col, shape = zoo["random"]
    graph = graph_of(zoo["random"])
    again = Graph.from_coo(row.astype(np.int32), col, shape)
    assert again.fingerprint == graph.fingerprint and graph.same_structure(again)
    assert graph != again and len({graph, again, graph}) == 2
    for other in [
        (row[::-1].copy(), col[::-1].copy(), shape),
        (row, col, (shape[0] + 1, shape[1])),
        (row, col, (shape[0], shape[1] + 1)),
        (row[:-1], col[:-1], shape),
    ]:
        assert not graph.same_structure(graph_of(other))
    assert not graph.same_structure(graph.transpose())
    with pytest.raises(TypeError, match="expected a Graph, got int"):
        graph.same_structure(3)


def test_a_graph_is_immutable_and_copies_are_itself(zoo):
    graph = graph_of(zoo["random"])
    for name in ("shape", "indices", "anything"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(graph, name, None)
    with pytest.raises(AttributeError, match="immutable"):
        del graph.shape
    assert copy.copy(graph) is graph and copy.deepcopy([graph])[0] is graph
    restored = pickle.loads(pickle.dumps(graph))
    assert restored is not graph and restored.same_structure(graph)


def test_moving(zoo):
    graph = graph_of(zoo["random"])
    assert graph.to("cpu") is graph
    with pytest.raises(ValueError, match="x is on cpu but the graph is on meta"):
        gsb.spmm(graph.to("meta"), torch.zeros(29, 2))


def test_repr(zoo):
    assert (
        repr(graph_of(zoo["duplicates"]))
        == "Graph(4 destinations, 5 sources, 6 edges, int32 indices, own edge order, cpu)"
    )


@pytest.mark.parametrize("name", ["debian", "wordnet"])
def test_real_graphs(gsb_data, name):
    with np.load(gsb_data / f"{name}.npz") as arrays:
        source, destination, nodes = arrays["src"], arrays["dst"], arrays["label"].size
    graph = Graph.from_coo(destination, source, (nodes, nodes))
    assert_is(graph, destination, source, (nodes, nodes))
    assert_is(graph.transpose(), source, destination, (nodes, nodes))
    x = torch.rand(nodes, 3)
    expected = (
        sparse.csr_array((np.ones(source.size), (destination, source)), shape=(nodes, nodes)) @ x.double().numpy()
    )
    np.testing.assert_allclose(gsb.spmm(graph, x).numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_package_imports_nothing_before_it_is_used():
    code = (
        "import sys, gnn_sparse_backend as gsb; assert 'torch' not in sys.modules; assert 'spmm' in dir(gsb); "
        "gsb.Graph; assert not {'dgl', 'torch_geometric'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'spmmm'"):
        _ = gsb.spmmm
