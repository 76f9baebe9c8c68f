"""Pieces of a structure against lists in plain Python."""

import numpy as np
import pytest
import torch

from gnn_sparse_backend.formats import equal_row_groups
from gnn_sparse_backend.structures.pieces import column_partitions, positions_in_partitions, row_parts


def drawn(seed, rows, columns, most, dtype):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most + 1, rows) * (rng.random(rows) < 0.7)
    indptr = torch.tensor(np.concatenate([[0], np.cumsum(counts)]), dtype=dtype)
    return indptr, torch.tensor(rng.integers(0, max(columns, 1), int(counts.sum())), dtype=dtype)


def rows_of(indptr, values):
    return [values[a:b].tolist() for a, b in zip(indptr[:-1].tolist(), indptr[1:].tolist())]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("parts", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("seed", range(3))
def test_column_partitions(seed, parts, dtype):
    indptr, indices = drawn(seed, 12, 10, 9, dtype)
    width = -(-10 // parts)
    pieces = column_partitions(indptr, indices, (12, 10), parts)
    assert len(pieces) == parts
    positions = list(positions_in_partitions(indices, (12, 10), parts))
    for number, (piece, at) in enumerate(zip(pieces, positions, strict=True)):
        assert piece.shape == (12, 10) and {piece.indptr.dtype, piece.indices.dtype} == {dtype}
        own = range(number * width, (number + 1) * width)
        assert rows_of(piece.indptr, piece.indices) == [
            [c for c in row if c in own] for row in rows_of(indptr, indices)
        ]
        assert torch.equal(indices[at], piece.indices)
    assert torch.equal(torch.cat(positions).sort().values, torch.arange(indices.numel()))


def test_more_partitions_than_a_byte_can_number():
    pieces = column_partitions(torch.tensor([0, 400]), torch.arange(400), (1, 400), 400)
    assert [piece.indices.tolist() for piece in pieces] == [[column] for column in range(400)]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("longest", [1, 3, 9, 100])
@pytest.mark.parametrize("seed", range(3))
def test_row_parts(seed, longest, dtype):
    indptr, indices = drawn(seed, 12, 10, 9, dtype)
    lists = rows_of(indptr, indices)
    done = 0
    for rows in row_parts(indptr, indices, (12, 10), longest):
        assert rows.first == done < rows.last
        done = rows.last
        own = lists[rows.first : rows.last]
        assert rows.edges == sum(map(len, own)) and rows.piece.indices is indices and rows.piece.indptr.dtype == dtype
        found = rows_of(rows.piece.indptr, rows.piece.indices)
        if rows.sums is None:
            assert found == own and max(map(len, own)) <= longest
        else:
            assert found == [own[0][at : at + longest] for at in range(0, len(own[0]), longest)] and len(found) > 1
            assert rows_of(rows.sums.indptr, rows.sums.indices) == [list(range(len(found)))]
            assert rows.sums.indptr.dtype == rows.sums.indices.dtype == dtype
        assert rows.piece.shape == (len(found), 10)
    assert done == 12


@pytest.mark.parametrize("rows", [0, 1, 7, 12])
def test_equal_rows(rows):
    cuts = equal_row_groups(torch.zeros(rows + 1, dtype=torch.int32), 5)
    assert cuts.dtype == torch.int32 and cuts[0] == 0 and cuts[-1] == rows
    assert set(cuts.diff().tolist()) <= {rows // 5, -(-rows // 5)}
