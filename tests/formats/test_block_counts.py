"""What a matrix has in blocks, against sets of Python and the formats themselves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnn_sparse_backend.formats import BsrFormat, SrBcrsFormat
from gnn_sparse_backend.formats.block_counts import count_blocks
from gnn_sparse_backend.formats.counts import distinct
from tests.formats.structures import many, structures
from tests.ops.waits import without_waiting


@given(structures(), st.sampled_from([(1, 1), (2, 3), (16, 8), (3, 2)]))
@many
def test_counts(structure, block):
    indptr, indices, shape = structure.csr
    found = count_blocks(indptr, indices, shape, block)
    edges = [(i, j) for i, j, _ in structure.triples()]
    vectors = {(i // block[0], j) for i, j in edges}
    of_tile = {tile: sum(other == tile for other, _ in vectors) for tile, _ in vectors}
    assert found.vectors == len(vectors) and found.groups == sum(-(-n // block[1]) for n in of_tile.values())
    assert found.blocks == len({(i // block[0], j // block[1]) for i, j in edges})
    assert found.coordinates == len(set(edges)) and found.most == max(map(edges.count, edges), default=0)
    for make in (BsrFormat, SrBcrsFormat):
        known, counted = (make.from_csr(indptr, indices, shape, block, counts=counts) for counts in (found, None))
        for name in ("indptr", "indices", "mask", "slots"):
            assert torch.equal(getattr(known, name), getattr(counted, name)), name


def test_a_gpu_is_waited_for_once(monkeypatch):
    """For all counts, and the formats of known counts wait for none."""
    indptr, indices = torch.tensor([0, 3, 3, 5]), torch.tensor([4, 0, 4, 1, 2])
    found = without_waiting(lambda: count_blocks(indptr, indices, (3, 5), (2, 2)), monkeypatch, sizes=1)
    for make in (BsrFormat, SrBcrsFormat):
        stored = without_waiting(
            lambda make=make: make.from_csr(indptr, indices, (3, 5), (2, 2), check=False, counts=found), monkeypatch
        )
        assert stored.num_duplicates == 1


def test_what_cannot_be_numbered():
    none = torch.zeros(0, dtype=torch.int64)
    assert count_blocks(torch.zeros(2**20 + 1, dtype=torch.int64), none, (2**20, 2**43), (16, 16)) is None
    assert count_blocks(torch.zeros(2**20 + 1, dtype=torch.int64), none, (2**20, 2**42), (16, 16)).blocks == 0


@pytest.mark.parametrize("keys", [[], [7], [3, 1, 3, 3, 2, 1]], ids=str)
def test_distinct(keys):
    keys = torch.tensor(keys, dtype=torch.int64)
    for count in (None, len(set(keys.tolist()))):
        values, which = distinct(keys, count)
        assert values.tolist() == sorted(set(keys.tolist())) and torch.equal(values[which], keys)
