"""Matrices in several formats: each non-zero in one of them, by the rule, and put together again."""

import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnn_sparse_backend.formats import DbsrFormat, decompose
from gnn_sparse_backend.formats.composed.decompose import decompose_csr, repacking, transposed
from gnn_sparse_backend.formats.composed.fills import stored_values
from gnn_sparse_backend.formats.composed.spec import parse_formats
from tests.formats.structures import few, structures

WORDS = ["bsr(2)", "bsr(3, 2)", "dbsr(2)", "sr_bcrs(2, 2)", "dia", "ell(2)", "hyb(2, 1)", "coo", "csr"]
LISTS = st.lists(st.sampled_from(WORDS), min_size=0, max_size=3)
LAST = st.sampled_from(["csr", "dia", "bsr(2)", "hyb(1, 2)", "coo"])


@few
@given(
    s=structures(),
    first=LISTS,
    fill=st.sampled_from([0, 0.5, 1]),
    last=st.sampled_from(["csr", "dia", "bsr(2)", "hyb(1, 2)", "coo"]),
)
def test_every_value_comes_back(s, first, fill, last):
    indptr, indices, shape = s.csr
    values = torch.arange(1.0, s.nnz + 1, dtype=torch.float64)
    graph = torch.zeros(shape, dtype=torch.float64)
    rows = torch.repeat_interleave(torch.arange(shape[0]), indptr.diff().long())
    graph.index_put_((rows, indices.long()), values, accumulate=True)
    csr = torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False)
    parts = decompose(csr, [*first, last], fill=fill)
    assert torch.equal(parts.to_dense(values), graph)
    assert sum(piece.nnz for piece in parts.pieces) == len(set(zip(rows.tolist(), indices.tolist())))
    assert parts.num_slots == sum(piece.nnz + piece.padding for piece in parts.pieces)
    if s.nnz == parts.indices.numel():
        assert torch.equal(parts.unpack(parts.pack(values)), values)
    for padded, piece in zip(parts.pad_values(values), parts.pieces):
        assert padded.shape == piece.stored
    other = transposed(parts)
    assert torch.equal(other.to_dense(values), graph.T) and transposed(other) is parts
    for one, its in ((parts, other), (other, parts)):
        packed = torch.cat([one.pack(values), values.new_zeros(1)])
        assert torch.equal(packed[repacking(one)], its.pack(values))


CANDIDATES = ["csr", "bsr(2)", "bsr(3)", "bsr(4)", "bsr(2) + csr", "bsr(3) + csr", "bsr(4) + csr"]


@few
@given(s=structures(), fill=st.sampled_from([0.3, 0.5, 1]))
def test_what_would_be_stored_is_known_before(s, fill):
    indptr, indices, shape = s.csr
    candidates = [parse_formats(words.split(" + ")) for words in CANDIDATES]
    count, stored = stored_values(indptr, indices, shape, candidates, fill)
    for specs, found in zip(candidates, stored):
        parts = decompose_csr(indptr, indices, None, shape, specs, fill)
        assert count == parts.indices.numel()
        assert [(p.side, p.slots) for p in found] == [(p.spec.block[0], p.num_slots) for p in parts.pieces]


def test_blocks_go_to_the_first_that_they_fill():
    dense = torch.zeros(12, 12)
    dense[:4, :4] = 1  # a full block of 4
    dense[4:6, 4:6] = 2  # a full block of 2 in an empty one of 4
    dense[8, 0] = 3
    dense[11, 8:12] = 4  # a quarter of a block of 4, half of two of 2
    parts = decompose(dense, ["bsr(4)", "bsr(2)", "csr"], fill=0.6)
    assert [(str(piece.spec), piece.nnz, piece.padding) for piece in parts.pieces] == [
        ("bsr(4)", 16, 0),
        ("bsr(2)", 4, 0),
        ("csr", 5, 0),
    ]
    parts = decompose(dense, ["bsr(4)", "bsr(2)", "csr"], fill=0.5)
    assert [(piece.nnz, piece.padding) for piece in parts.pieces] == [(16, 0), (8, 4), (1, 0)]
    assert parts.report().splitlines()[2] == "  bsr(2): 8 non-zeros in 12 values, 4 of them padding (33.3%)"
    parts = decompose(dense, ["dia", "ell(4)", "csr"])
    assert [str(piece.spec) for piece in parts.pieces] == ["dia", "ell(4)", "csr"]


def test_hyb_is_a_piece_for_each_of_its_buckets():
    dense = torch.zeros(3, 8)
    dense[0, :7] = 1  # a part of 4, and three of another
    dense[2, 5] = 2
    parts = decompose(dense, "hyb(1, 2)")
    assert [str(piece).split(" of")[0] for piece in parts.pieces] == [
        "bucket(1): 1 non-zeros in 1 values, 0",
        "bucket(4): 7 non-zeros in 8 values, 1",
    ]
    assert [str(piece.spec) for piece in decompose(dense, "hyb(2, 2)").pieces] == [
        "bucket(4)",
        "bucket(1)",
        "bucket(4)",
    ]
    assert [piece.num_slots for piece in decompose(dense, "coo").pieces] == [8]


def test_any_matrix():
    dense = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    for matrix in (
        dense,
        dense.to_sparse_csr(),
        dense.to_sparse_csc(),
        dense.to_sparse_coo(),
        scipy.sparse.coo_matrix(dense.numpy()),
        scipy.sparse.csr_array(dense.numpy()),
    ):
        parts = decompose(matrix, "bsr(2)")
        assert torch.equal(parts.to_dense(torch.tensor([2.0, 1.0, 3.0])), dense)
        assert torch.equal(parts.to_csr(parts.values_of(dense)).to_dense(), dense)


def test_dbsr_has_the_rows_of_blocks_that_have_any():
    indptr, indices = torch.tensor([0, 0, 0, 1, 1, 3]), torch.tensor([1, 0, 3])
    found = DbsrFormat.from_csr(indptr, indices, (5, 4), 2)
    assert found.rows.tolist() == [1, 2] and found.indptr.tolist() == [0, 1, 3] and found.indices.tolist() == [0, 0, 1]
    row, column, _ = found.to_coo()
    assert row.tolist() == [2, 4, 4] and column.tolist() == [1, 0, 3]


@pytest.mark.parametrize(
    "formats, error, words",
    [
        ("bsr", ValueError, r"format 'bsr': bsr takes 1 or 2 whole numbers"),
        ("bsr(0)", ValueError, r"format 'bsr\(0\)': sides and widths lie between 1 and 256"),
        ("bsr(2, 3, 4)", ValueError, "bsr takes 1 or 2"),
        ("csr(2)", ValueError, "csr takes 0 whole numbers"),
        ("hyb", ValueError, "hyb takes 2 whole numbers"),
        ("hyb(0, 1)", ValueError, r"format 'hyb\(0, 1\)': hyb\(c, k\) cuts columns into c >= 1"),
        ("hyb(1, 9)", ValueError, r"buckets of 1 to 2 \*\* k, k <= 8"),
        ("hyb(11, 2)", ValueError, "of these at most 32 in all, got 11 times 3"),
        ("bucket(2)", ValueError, "unknown format"),
        ("coo(1)", ValueError, "coo takes 0 whole numbers"),
        ("blocks(2)", ValueError, r"unknown format 'blocks\(2\)'; formats are bsr\(32\)"),
        ([], TypeError, r"got \[\]"),
        ([3], TypeError, "got 3"),
    ],
)
def test_words_that_are_no_formats(formats, error, words):
    with pytest.raises(error, match=words):
        decompose(torch.eye(3), formats)


def test_other_refusals():
    with pytest.raises(ValueError, match="fill must be a number between 0 and 1, got 2"):
        decompose(torch.eye(3), "csr", fill=2)
    with pytest.raises(TypeError, match="got list"):
        decompose([[1]], "csr")
    with pytest.raises(ValueError, match=r"values must be a tensor \(..., 3\), got \(2,\)"):
        decompose(torch.eye(3), "csr").pack(torch.ones(2))
    assert [str(spec) for spec in parse_formats(["bsr( 8,8 )", "dbsr(4, 2)", "dia"])] == ["bsr(8)", "dbsr(4, 2)", "dia"]
