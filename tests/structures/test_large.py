"""Structures of many edges, with the number lowered from which on they are: sorted by kernels, one side for both
directions where they are symmetric, and with little memory besides.
"""

from __future__ import annotations

import gc
import os
import sys

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from benchmarks.support import memory
from gnn_sparse_backend.ops.message.executables import several_passes
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan
from gnn_sparse_backend.structures import build
from gnn_sparse_backend.structures.large import sorting
from tests.ops.oracle import graph_of
from tests.structures.test_graph import assert_is


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(sorting, "LARGE", 1)


def shares(graph: gsb.Graph) -> bool:
    """Whether both directions have the same arrays."""
    other = graph.transpose()
    return other.indices.data_ptr() == graph.indices.data_ptr() and other.indptr.data_ptr() == graph.indptr.data_ptr()


def undirected(nodes=40, edges=300, seed=0):
    """(row, col) of edges in both directions, in no order; some are loops, some repeat."""
    draw = np.random.default_rng(seed)
    ends = draw.integers(nodes, size=(2, edges))
    row, col = np.concatenate((ends, ends[::-1]), 1)
    order = draw.permutation(row.size)
    return torch.from_numpy(row[order]), torch.from_numpy(col[order])


def by_columns(row, col):
    order = np.lexsort((row.numpy(), col.numpy()))
    return row[order], col[order]


@pytest.mark.parametrize("threads", [1, 3])
def test_both_directions_of_every_structure(structure, threads, set_threads):
    set_threads(threads)
    graph = graph_of(structure)
    assert_is(graph, *structure)
    row, col, shape = structure
    assert_is(graph.transpose(), col, row, shape[::-1])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("rows", "bits"), [(1, 11), (7, 1), (5000, 11), (2**17 + 3, 0)])
def test_sorting_is_stable_in_either_index_type(rows, bits, dtype, monkeypatch, set_threads):
    """Buckets of one row and of 2**16, of few edges and of most."""
    set_threads(3)
    monkeypatch.setattr(sorting, "BUCKETS", bits)
    draw = np.random.default_rng(0)
    row, col = draw.integers(rows, size=6001), draw.integers(9, size=6001)
    row[::2] = rows - 1
    order = np.argsort(row, kind="stable")
    indptr, indices, ids = build.coo_to_csr(torch.from_numpy(row), torch.from_numpy(col).to(dtype), rows, False, dtype)
    np.testing.assert_array_equal(indptr.numpy(), np.searchsorted(row[order], np.arange(rows + 1)))
    np.testing.assert_array_equal(indices.numpy(), col[order])
    np.testing.assert_array_equal(ids.numpy(), order)
    back = build.transpose_csr(indptr, indices, ids, 9)
    by_column = np.argsort(col[order], kind="stable")
    np.testing.assert_array_equal(back[0].numpy(), np.searchsorted(np.sort(col), np.arange(10)))
    np.testing.assert_array_equal(back[1].numpy(), row[order][by_column])
    np.testing.assert_array_equal(back[2].numpy(), order[by_column])
    assert {a.dtype for a in (indptr, indices, ids, *back)} == {dtype}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("limit", [build.INT32_LIMIT, 10])
def test_a_symmetric_graph_is_its_own_transpose(threads, limit, monkeypatch, set_threads):
    set_threads(threads)
    monkeypatch.setattr(build, "INT32_LIMIT", limit)
    row, col = by_columns(*undirected())
    graph = gsb.Graph.from_coo(row, col, (40, 40))
    assert shares(graph) and graph.indices.dtype is (torch.int32 if limit > 10 else torch.int64)
    assert_is(graph, row, col, (40, 40))
    assert_is(graph.transpose(), col, row, (40, 40))
    again = gsb.Graph.from_csr(graph.indptr, graph.indices, (40, 40))
    assert shares(again)
    own = edge_order(again)
    assert_is(again.transpose(), own[1], own[0], (40, 40))
    assert again.transpose().transpose() is again


def test_as_many_edges_out_as_in_are_not_yet_symmetric():
    """A cycle, whose nodes have one edge of each direction."""
    row = torch.arange(40)
    col = (row + 1) % 40
    graph = gsb.Graph.from_coo(row, col, (40, 40))
    assert not shares(graph)
    assert_is(graph.transpose(), col, row, (40, 40))


def edge_order(graph):
    """(row, col) of a graph whose edges are in the order of its rows."""
    return np.repeat(np.arange(graph.shape[0]), graph.in_degrees.numpy()), graph.indices.numpy()


def test_messages_that_read_no_edge_make_no_numbers():
    row, col = by_columns(*undirected())
    graph = gsb.Graph.from_coo(row, col, (40, 40))
    x = torch.randn(40, 5, requires_grad=True, dtype=torch.float64)
    for reduce in ("sum", "mean"):
        gsb.spmm(graph, x, reduce=reduce).sum().backward()
    arrays = gsb.memory(graph).rows
    assert sum(each.nbytes for each in arrays if each.what == "index arrays") == 41 * 4 + row.numel() * 4


def test_column_partitions_are_those_of_both_directions(set_plan):
    row, col = by_columns(*undirected())
    graph = gsb.Graph.from_coo(row, col, (40, 40))
    ours, theirs = (several_passes.column_partitions(each, 3) for each in (graph, graph.transpose()))
    assert ours is theirs
    numbers = [torch.cat(several_passes.partition_numbers(each, 3)) for each in (graph, graph.transpose())]
    assert not torch.equal(*numbers)
    x, weight = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in ((40, 3), row.numel()))
    set_plan(PartitionPlan(1, partitions=3))
    (gradient,) = torch.autograd.grad(gsb.spmm(graph, x, weight).square().sum(), x)
    dense = torch.zeros(40, 40, dtype=torch.float64).index_put((row, col), weight.detach(), accumulate=True)
    torch.testing.assert_close(gradient, 2 * dense.t() @ (dense @ x.detach()))
    assert [row.what for row in gsb.memory(graph).rows].count("ColumnPartitions(partitions=3)") == 1


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_products_and_their_gradients(reduce):
    row, col = by_columns(*undirected())
    graph = gsb.Graph.from_coo(row, col, (40, 40))
    x, weight = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in ((40, 3), row.numel()))
    y, g = gsb.spmm(graph, x, weight, reduce=reduce), torch.randn(40, 3, dtype=torch.float64)
    dense = torch.zeros(40, 40, dtype=torch.float64).index_put((row, col), weight, accumulate=True)
    if reduce == "mean":
        dense = dense / torch.bincount(row, minlength=40).clamp(min=1)[:, None]
    expected = dense @ x
    torch.testing.assert_close(y, expected)
    ours, theirs = (torch.autograd.grad(each, (x, weight), g, retain_graph=True) for each in (y, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("change", ["one edge more", "one edge turned", "rows that do not ascend", "a row more"])
def test_what_is_not_symmetric_is_sorted(change):
    row, col = by_columns(*undirected())
    shape = (40, 40)
    if change == "one edge more":
        row, col = torch.cat([row, torch.tensor([3])]), torch.cat([col, torch.tensor([39])])
    elif change == "one edge turned":
        at = int((row != col).nonzero()[-1])
        row, col = row.clone(), col.clone()
        row[at], col[at] = col[at].clone(), row[at].clone()
    elif change == "rows that do not ascend":
        row, col = undirected()
    else:
        shape = (41, 40)
    graph = gsb.Graph.from_coo(row, col, shape)
    assert not shares(graph)
    assert_is(graph, row, col, shape)
    assert_is(graph.transpose(), col, row, shape[::-1])


def test_a_shared_side_is_found_and_freed():
    row, col = by_columns(*undirected())
    graph = gsb.Graph.from_coo(row, col, (40, 40))
    back = graph.transpose()
    for each in (graph, back):
        assert gsb.Graph._of_arrays(each.indptr, each.indices, each.edge_ids, 40) is each
    del back, each
    gc.collect()
    graph.release()
    assert gsb.Graph._of_arrays(graph.indptr, graph.indices, graph.edge_ids, 40) is graph
    assert shares(graph)
    assert_is(graph.transpose(), col, row, (40, 40))


def test_no_edges_and_loops_alone():
    none = torch.zeros(0, dtype=torch.long)
    assert sorting.is_mirrored(torch.zeros(4, dtype=torch.int32), none.int())
    for graph in (gsb.Graph.from_coo(none, none, (3, 3)), gsb.Graph.from_coo(*[torch.arange(3)] * 2, (3, 3))):
        assert_is(graph.transpose(), *edge_order(graph)[::-1], (3, 3))


def test_an_edge_index_is_let_go():
    row, col = undirected()
    edge_index = torch.stack((col, row))
    graph = gsb.Graph.from_edge_index(edge_index, release=True)
    assert edge_index.shape == (0,) and edge_index.untyped_storage().nbytes() == 0
    assert_is(graph, row, col, (40, 40))
    with pytest.raises(ValueError, match=r"row\[1\] = -1"):
        gsb.Graph.from_edge_index(kept := torch.tensor([[0, 0], [1, -1]]), release=True)
    assert kept.shape == (2, 2)
    with pytest.raises(TypeError, match="plain tensor, got Parameter"):
        gsb.Graph.from_edge_index(torch.nn.Parameter(kept, requires_grad=False), release=True)


def test_arrays_of_a_file_stay_there(tmp_path):
    row, col = by_columns(*undirected())
    made = gsb.Graph.from_coo(col, row, (40, 40))
    for name in ("indptr", "indices"):
        np.save(tmp_path / f"{name}.npy", getattr(made, name).numpy())
    indptr, indices = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices"))
    graph = gsb.Graph.from_csr(indptr, indices, (40, 40))
    assert graph.indices.data_ptr() == indices.ctypes.data and graph.indptr.data_ptr() == indptr.ctypes.data
    assert shares(graph) and graph.same_structure(gsb.Graph.from_csr(made.indptr, made.indices, (40, 40)))
    beside = gsb.Graph.from_csr(made.indptr, indices, (40, 40))
    assert beside.indices.data_ptr() == indices.ctypes.data and beside.indptr.data_ptr() != made.indptr.data_ptr()
    writable = np.load(tmp_path / "indices.npy", mmap_mode="c")
    graph = gsb.Graph.from_csr(indptr, writable, (40, 40))
    writable[:] = 99
    graph.validate()
    with pytest.raises(ValueError, match=r"indices\[0\] = 99 is out of range"):
        gsb.Graph.from_csr(indptr, writable, (40, 40))


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured on Linux alone")
def test_building_takes_half_of_the_result_besides():
    edges, nodes = 4_000_000, 100_000
    row, col = torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,))

    def build_both():
        graph = gsb.Graph.from_coo(row, col, (nodes, nodes))
        return graph, graph.transpose()

    build_both()  # makes the kernels
    memory.release()
    before = memory.resident()
    memory.reset_peak()
    graph = build_both()[0]
    result = gsb.memory(graph).nbytes
    assert result == 16 * edges + 8 * (nodes + 1)
    assert memory.peak() - before < 1.5 * result + (8 << 20)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_products_where_indices_are_long(reduce, monkeypatch):
    """The package is told that a structure has more edges than int32 counts: products, forward and backward."""
    monkeypatch.setattr(build, "INT32_LIMIT", 100)
    row, col = by_columns(*undirected())
    graph = gsb.Graph.from_coo(row, col, (40, 40))
    assert graph.indices.dtype is graph.indptr.dtype is torch.int64
    x = torch.randn(40, 5, dtype=torch.float64, requires_grad=True)
    y, g = gsb.spmm(graph, x, reduce=reduce), torch.randn(40, 5, dtype=torch.float64)
    dense = torch.zeros(40, 40, dtype=torch.float64).index_put((row, col), torch.ones(()).double(), accumulate=True)
    if reduce == "mean":
        dense = dense / dense.sum(1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(y, dense @ x)
    torch.testing.assert_close(torch.autograd.grad(y, x, g)[0], dense.t() @ g)
    scores = torch.randn(2, 40, 2, dtype=torch.float64)
    value = torch.randn(40, 2, 3, dtype=torch.float64)
    ours = gsb.gat_attention(graph, scores[0], scores[1], value)
    assert graph.indices.dtype is torch.int64
    monkeypatch.undo()
    torch.testing.assert_close(ours, gsb.gat_attention(gsb.Graph.from_coo(row, col, (40, 40)), *scores, value))


@pytest.mark.skipif(not os.environ.get("GSB_TEST_BILLIONS"), reason="GSB_TEST_BILLIONS=1 reads a file of 16 GiB")
def test_more_edges_than_int32_counts(tmp_path):
    """2**31 + 8 edges from a file with holes, which takes a few blocks of the disk: all come from node 0 but the last
    eight.
    """
    rows, edges = 1 << 16, (1 << 31) + 8
    path = tmp_path / "indices.npy"
    indices = np.lib.format.open_memmap(path, "w+", np.int64, (edges,))
    indices[-8:] = np.arange(1, 9)
    indices.flush()
    del indices
    indptr = np.arange(rows + 1) * (edges // rows)
    indptr[-1] = edges
    graph = gsb.Graph.from_csr(indptr, np.load(path, mmap_mode="r"), (rows, 16))
    assert graph.num_edges == edges and graph.indices.dtype is torch.int64
    x = torch.randint(1, 9, (16, 2)).double()
    y = gsb.spmm(graph, x)
    degrees = torch.from_numpy(np.diff(indptr)).double()
    expected = degrees[:, None] * x[0]
    expected[-1] += (x[1:9] - x[0]).sum(0)
    assert torch.equal(y, expected)
