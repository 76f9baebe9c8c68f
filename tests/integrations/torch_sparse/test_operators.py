"""``torch.ops.torch_sparse``: operators that torch-sparse has in C++ alone, against plain Python and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnn_sparse_backend.integrations.torch_sparse import SparseTensor, operators

ops = torch.ops.torch_sparse


def sparse(rows: int, columns: int, seed: int = 0) -> SparseTensor:
    generator = torch.Generator().manual_seed(seed)
    dense = torch.rand(rows, columns, generator=generator)
    return SparseTensor.from_dense(dense * (dense < 0.4))


@pytest.mark.parametrize("k", [-6, -2, 0, 1, 5])
@pytest.mark.parametrize("rows, columns", [(7, 7), (3, 9), (9, 3)])
def test_places_beside_a_diagonal_that_is_filled(rows, columns, k):
    if not -rows < k < columns:
        pytest.skip("no such diagonal")
    row, col, _ = sparse(rows, columns).remove_diag(k).coo()
    mask = ops.non_diag_mask(row, col, rows, columns, k)
    dense = np.zeros((rows, columns), dtype=int)
    dense[row, col] = 1
    dense[np.arange(rows)[:, None] + k == np.arange(columns)] = 2
    assert mask.tolist() == (dense[dense > 0] == 1).tolist()


def test_columns_are_numbered_as_they_are_met():
    col, idx = torch.tensor([5, 2, 9, 2, 7, 0]), torch.tensor([2, 0])
    found, keys = ops.relabel(col, idx)
    assert keys.tolist() == [2, 0, 5, 9, 7] and torch.equal(keys[found], col)
    assert ops.relabel(col[:0], idx)[1].tolist() == [2, 0]


@pytest.mark.parametrize("bipartite", [True, False])
def test_rows_with_all_their_columns(bipartite):
    matrix, idx = sparse(8, 8), torch.tensor([6, 0, 3])
    rowptr, col, value = matrix.csr()
    pointers, found, values, keys = ops.relabel_one_hop(rowptr, col, value, idx, bipartite)
    assert keys[:3].tolist() == idx.tolist() and len(set(keys.tolist())) == len(keys)
    assert pointers.numel() == (4 if bipartite else len(keys) + 1)
    rows = torch.arange(pointers.numel() - 1).repeat_interleave(pointers.diff())
    dense = torch.zeros(8, 8)
    dense[keys[rows], keys[found]] = values
    expected = torch.zeros(8, 8)
    expected[idx] = matrix.to_dense()[idx]
    assert torch.equal(dense, expected)
    assert ops.relabel_one_hop(rowptr, col, None, idx, bipartite)[2] is None


def test_samples_by_time_have_a_tree_for_each_seed():
    generator = torch.Generator().manual_seed(1)
    times = {"a": torch.randint(0, 9, (30,), generator=generator), "b": torch.randint(0, 9, (20,), generator=generator)}
    kinds, types = ["a", "b"], [("b", "to", "a"), ("a", "to", "b"), ("a", "of", "a")]
    colptr, row = {}, {}
    for source, how, destination in types:
        count, name = len(times[destination]), f"{source}__{how}__{destination}"
        degrees = torch.randint(0, 6, (count,), generator=generator)
        colptr[name] = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
        row[name] = torch.randint(0, len(times[source]), (int(degrees.sum()),), generator=generator)
    seeds, fanouts = {"a": torch.tensor([3, 7, 3])}, {name: [4, -1] for name in row}
    nodes, rows, cols, entries = ops.hetero_temporal_neighbor_sample(
        kinds, types, colptr, row, seeds, fanouts, times, 2, False, True
    )
    assert nodes["a"][:3].tolist() == [3, 7, 3]
    latest = {kind: torch.full((len(nodes[kind]),), -1) for kind in kinds}
    latest["a"][:3] = times["a"][seeds["a"]]
    for _ in range(2):  # a node is in the tree of what it is drawn for
        for (source, _, destination), name in zip(types, row):
            reached = latest[destination][cols[name]] >= 0
            latest[source][rows[name][reached]] = latest[destination][cols[name][reached]]
    for (source, _, destination), name in zip(types, row):
        assert torch.equal(nodes[source][rows[name]], row[name][entries[name]])
        to = nodes[destination][cols[name]]
        assert bool(((colptr[name][to] <= entries[name]) & (entries[name] < colptr[name][to + 1])).all())
        assert bool((times[source][nodes[source][rows[name]]] <= latest[destination][cols[name]]).all())
    assert all(bool((times[kind][nodes[kind]] <= latest[kind]).all()) and len(nodes[kind]) for kind in kinds)
    with pytest.raises(ValueError, match="no time"):
        ops.hetero_temporal_neighbor_sample(
            kinds, types, colptr, row, seeds, fanouts, {"b": times["b"]}, 2, False, True
        )


def test_parts_by_several_threads():
    pytest.importorskip("pymetis")
    rowptr, col, _ = sparse(20, 20).csr()
    parts = ops.mt_partition(rowptr, col, None, None, 3, False, 2)
    assert torch.equal(parts, ops.partition(rowptr, col, None, 3, False)) and set(parts.tolist()) == {0, 1, 2}


def test_all_operators_of_the_library_are_there():
    """Names as torch-sparse 0.6.18 registers them."""
    names = {schema.split("(")[0] for schema in operators._OPERATORS}
    assert names == {
        *("cuda_version", "ego_k_hop_sample_adj", "hetero_neighbor_sample", "hetero_temporal_neighbor_sample"),
        *("hgt_sample", "ind2ptr", "mt_partition", "neighbor_sample", "non_diag_mask", "partition", "partition2"),
        *("ptr2ind", "random_walk", "relabel", "relabel_one_hop", "saint_subgraph", "sample_adj", "spmm_max"),
        *("spmm_mean", "spmm_min", "spmm_sum"),
    }
