"""Rows in the order of their lengths hold what they held before."""

import numpy as np
import pytest
import torch

from gnn_sparse_backend.structures.pieces import rows_by_length


def structure(lengths, cols=30, dtype=torch.int32, seed=0):
    rng = np.random.default_rng(seed)
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)).to(dtype)
    return indptr, torch.from_numpy(rng.integers(0, cols, int(indptr[-1]))).to(dtype), (len(lengths), cols)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("window", [1, 3, 4, 1000])
@pytest.mark.parametrize("lengths", [[3, 0, 5, 1, 1, 0, 7, 2, 4, 0, 1], [4], [0, 0, 0], []], ids=str)
def test_every_row_keeps_its_non_zeros_in_their_order(lengths, window, dtype):
    indptr, indices, shape = structure(lengths, dtype=dtype)
    piece, rows = rows_by_length(indptr, indices, shape, window)
    assert piece.shape == shape and {piece.indptr.dtype, piece.indices.dtype, piece.positions.dtype, rows.dtype} == {
        dtype
    }
    assert sorted(rows.tolist()) == list(range(len(lengths)))
    for at, row in enumerate(rows.tolist()):
        first, last = piece.indptr[at], piece.indptr[at + 1]
        assert piece.positions[first:last].tolist() == list(range(indptr[row], indptr[row + 1]))
    assert torch.equal(piece.indices, indices[piece.positions.long()])
    for start in range(0, len(lengths), window):
        own = rows[start : start + window].tolist()
        # in the order of their lengths, and of their numbers where these are equal
        assert own == sorted(range(start, min(start + window, len(lengths))), key=lambda row: (lengths[row], row))


def test_windows_of_no_rows_are_refused():
    with pytest.raises(ValueError, match="window"):
        rows_by_length(*structure([1, 2]), 0)
