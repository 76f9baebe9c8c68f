"""A graph of listed edges is the graph of these edges, made once somebody asks for its arrays."""

import gc
import pickle
import weakref

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.structures.csr import EdgeList

ROW, COL, SHAPE = torch.tensor([2, 0, 2, 1, 0, 2]), torch.tensor([1, 4, 0, 0, 4, 1]), (4, 5)


def listed(row=ROW, col=COL, shape=SHAPE) -> gsb.Graph:
    return gsb.Graph._of_list(EdgeList(row, col, shape))


def test_nothing_is_made_before_it_is_asked_for():
    graph = listed()
    assert (graph.shape, graph.num_edges, graph.device) == (SHAPE, 6, ROW.device)
    assert graph.listed.row is ROW and graph.some_index is ROW
    back = graph.transpose()
    assert (back.shape, back.listed.row, back.listed.col) == (SHAPE[::-1], COL, ROW)
    assert back.transpose() is graph
    assert graph.listed is not None


@pytest.mark.parametrize("first", ["graph", "transpose"])
def test_converted_it_is_the_graph_of_these_edges(first):
    expected, graph = gsb.Graph.from_coo(ROW, COL, SHAPE), listed()
    sides = [(graph, expected), (graph.transpose(), expected.transpose())]
    for ours, theirs in sides if first == "graph" else sides[::-1]:
        assert ours.same_structure(theirs)
        assert ours.listed is None
        assert torch.equal(ours.in_degrees, theirs.in_degrees)
        ours.validate()
    assert graph.transpose().transpose() is graph
    assert gsb.Graph._of_arrays(graph.indptr, graph.indices, graph.edge_ids, SHAPE[1]) is graph


def test_degrees_before_and_after():
    graph = listed()
    assert graph.in_degrees.tolist() == [2, 1, 3, 0]
    assert graph.listed is not None
    assert graph.indices.dtype is torch.int32
    assert graph.in_degrees.tolist() == [2, 1, 3, 0] and graph.in_degrees.dtype is torch.int32
    assert graph.inverse_in_degrees.tolist() == pytest.approx([0.5, 1, 1 / 3, 1])


@pytest.mark.parametrize(("row", "col", "message"), [([0, 4], [0, 0], "row"), ([0, 1], [0, -1], "col")])
def test_an_edge_out_of_range_is_quoted(row, col, message):
    with pytest.raises(ValueError, match=rf"{message}\[1\] = "):
        listed(torch.tensor(row), torch.tensor(col)).indptr  # noqa: B018


def test_a_write_in_between_is_an_error():
    row, col = ROW.clone(), COL.clone()
    graph = listed(row, col)
    row[0] = 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        graph.indptr  # noqa: B018


def test_it_can_be_pickled_released_and_told_of():
    graph = listed()
    assert "6 edges" in repr(pickle.loads(pickle.dumps(graph)))
    graph = listed()
    assert gsb.memory(graph) is not None
    graph.release()
    assert graph.same_structure(gsb.Graph.from_coo(ROW, COL, SHAPE))


def test_it_goes_with_its_last_holder():
    row = ROW.clone()
    graph = listed(row)
    graph.transpose()
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None


def test_other_attributes_are_missing():
    with pytest.raises(AttributeError, match="no attribute 'weights'"):
        listed().weights  # noqa: B018
