"""ELL, BSR, SR-BCRS and DIA: their own parameters, layouts and refusals."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnn_sparse_backend.formats import BsrFormat, CscFormat, DiaFormat, EllFormat, SrBcrsFormat
from tests.formats.structures import many, structures


@many
@given(s=structures(), extra=st.integers(0, 4))
def test_ell_puts_real_entries_first_in_order(s, extra):
    longest = max(map(len, s.rows), default=0)
    fmt = EllFormat.from_csr(*s.csr, width=longest + extra)
    expected = [list(row) + [-1] * (longest + extra - len(row)) for row in s.rows]
    assert fmt.indices.shape == (len(s.rows), longest + extra) and fmt.indices.tolist() == expected
    assert torch.equal(fmt.value_position < 0, fmt.indices < 0)
    assert EllFormat.from_csr(*s.csr).width == longest


@many
@given(s=structures())
def test_ell_unchecked_gives_the_same(s):
    width = max(map(len, s.rows), default=0) + 1
    checked, unchecked = (EllFormat.from_csr(*s.csr, width=width, check=check) for check in (True, False))
    assert torch.equal(checked.indices, unchecked.indices) and torch.equal(
        checked.value_position, unchecked.value_position
    )


def test_ell_refuses_a_row_that_does_not_fit():
    csr = torch.tensor([0, 1, 4, 5]), torch.tensor([0, 0, 1, 2, 1]), (3, 3)
    with pytest.raises(ValueError, match="row 1 has 3 edges, more than width = 2"):
        EllFormat.from_csr(*csr, width=2)
    for width, error in ((-1, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="width must be"):
            EllFormat.from_csr(*csr, width=width)


def test_ell_of_a_skewed_graph_is_refused_before_it_is_allocated():
    n_rows, hub = 2**20, 2**20
    indptr = torch.full((n_rows + 1,), hub, dtype=torch.int32)
    indptr[0] = 0
    indices = torch.zeros(hub, dtype=torch.int32)
    with pytest.raises(
        ValueError, match=f"would store {2**40} slots for {hub} non-zeros, more than the limit of {2**28}"
    ):
        EllFormat.from_csr(indptr, indices, (n_rows, 1))
    with pytest.raises(
        ValueError, match="ELL of width 2 on 3 rows would store 6 slots for 2 non-zeros, more than the limit of 5"
    ):
        EllFormat.from_csr(torch.tensor([0, 2, 2, 2]), torch.tensor([0, 0]), (3, 1), max_slots=5)


@many
@given(s=structures(), br=st.integers(1, 5), bc=st.integers(1, 5))
def test_bsr_stores_the_touched_blocks_in_order(s, br, bc):
    fmt = BsrFormat.from_csr(*s.csr, (br, bc))
    blocks = sorted({(row // br, col // bc) for row, col, _ in s.triples()})
    starts = fmt.indptr.tolist()
    assert len(starts) == math.ceil(s.shape[0] / br) + 1
    stored = [(i, col) for i in range(len(starts) - 1) for col in fmt.indices.tolist()[starts[i] : starts[i + 1]]]
    assert stored == blocks and fmt.mask.shape == (len(blocks), br, bc) and fmt.num_blocks == len(blocks)
    cells = {(row, col) for row, col, _ in s.triples()}
    assert int(fmt.mask.sum()) == len(cells) and fmt.num_duplicates == s.nnz - len(cells)
    if s.nnz:
        assert fmt.padding == len(blocks) * br * bc / s.nnz - 1


@many
@given(s=structures(), height=st.integers(1, 5), group=st.integers(1, 4))
def test_sr_bcrs_stores_the_touched_columns_of_each_tile_in_order(s, height, group):
    fmt = SrBcrsFormat.from_csr(*s.csr, (height, group))
    tiles = math.ceil(s.shape[0] / height)
    touched = [sorted({col for row, col, _ in s.triples() if row // height == tile}) for tile in range(tiles)]
    expected = [cols + [-1] * (-len(cols) % group) for cols in touched]
    starts = fmt.indptr.tolist()
    assert len(starts) == tiles + 1
    assert [fmt.indices[starts[i] : starts[i + 1]].flatten().tolist() for i in range(tiles)] == expected
    assert fmt.mask.shape == (fmt.num_groups, height, group) and fmt.num_groups == sum(map(len, expected)) // group
    # a vector has an edge unless it fills a group up, which has none
    assert torch.equal(fmt.mask.any(1), fmt.indices >= 0)
    cells = {(row, col) for row, col, _ in s.triples()}
    assert int(fmt.mask.sum()) == len(cells) and fmt.num_duplicates == s.nnz - len(cells)
    assert fmt.num_groups <= BsrFormat.from_csr(*s.csr, (height, group)).num_blocks


@many
@given(s=structures())
def test_dia_stores_the_touched_diagonals_in_order(s):
    fmt = DiaFormat.from_csr(*s.csr)
    diagonals = sorted({col - row for row, col, _ in s.triples()})
    assert fmt.offsets.tolist() == diagonals and fmt.num_diagonals == len(diagonals)
    assert fmt.mask.shape == (len(diagonals), s.shape[0])
    if s.nnz:
        assert fmt.padding == len(diagonals) * s.shape[0] / s.nnz - 1


@pytest.mark.parametrize(
    "build",
    [lambda *csr: BsrFormat.from_csr(*csr, 2), lambda *csr: SrBcrsFormat.from_csr(*csr, 2), DiaFormat.from_csr],
    ids=["bsr", "sr-bcrs", "dia"],
)
def test_repeated_coordinates_share_a_slot(build):
    fmt = build(torch.tensor([0, 3, 4]), torch.tensor([1, 0, 1, 0]), (2, 2))
    assert fmt.num_duplicates == 1
    assert fmt.pad_values(torch.ones(4)).sum() == 4 and fmt.pad_values(torch.ones(4)).max() == 2
    assert fmt.slots[0] == fmt.slots[2]
    with pytest.raises(ValueError, match="1 of 4 edges repeat a coordinate"):
        _ = fmt.value_position


@pytest.mark.parametrize(
    "block, error, words",
    [
        (0, ValueError, "block rows must be at least 1, got 0"),
        ((2, -1), ValueError, "block columns must be at least 1, got -1"),
        ((1, 2, 3), ValueError, r"got \(1, 2, 3\)"),
        (2.5, TypeError, "must be an integer, got 2.5"),
        (2**20, ValueError, f"1 blocks of {2**20} x {2**20} would store {2**40} slots"),
    ],
)
def test_bsr_refuses_bad_blocks(block, error, words):
    with pytest.raises(error, match=words):
        BsrFormat.from_csr(torch.tensor([0, 1]), torch.tensor([0]), (1, 1), block)


@pytest.mark.parametrize("build", [BsrFormat.from_csr, SrBcrsFormat.from_csr], ids=["bsr", "sr-bcrs"])
def test_a_grid_that_64_bits_cannot_number_is_refused(build):
    with pytest.raises(ValueError, match="cannot be numbered in 64 bits"):
        build(torch.tensor([0, 0, 1]), torch.tensor([0]), (2, 2**62), 1)


def test_sr_bcrs_refuses_more_slots_than_it_may_store():
    csr = torch.tensor([0, 1, 1, 3]), torch.tensor([4, 0, 2]), (3, 5)
    with pytest.raises(
        ValueError,
        match="SR-BCRS with 2 groups of 2 x 4 would store 16 slots for 3 non-zeros, more than the limit of 15",
    ):
        SrBcrsFormat.from_csr(*csr, (2, 4), max_slots=15)
    assert SrBcrsFormat.from_csr(*csr, (2, 4), max_slots=16).indices.tolist() == [[4, -1, -1, -1], [0, 2, -1, -1]]


def test_bsr_on_a_grid_of_more_than_2_to_the_31_blocks():
    n = 2**17
    indptr = torch.zeros(n + 1, dtype=torch.int32)
    indptr[-1] = 1
    fmt = BsrFormat.from_csr(indptr, torch.tensor([n - 1], dtype=torch.int32), (n, n), 1)
    assert fmt.index_dtype == torch.int32 and [t.tolist() for t in fmt.to_coo()] == [[n - 1], [n - 1], [0]]
    assert torch.equal(fmt.indptr, indptr)


def test_dia_refuses_too_many_diagonals():
    indices = torch.tensor([0, 2, 4, 6])
    with pytest.raises(ValueError, match="the 4 edges lie on 4 diagonals, more than max_diagonals = 3"):
        DiaFormat.from_csr(torch.tensor([0, 4]), indices, (1, 7), max_diagonals=3)
    assert DiaFormat.from_csr(torch.tensor([0, 4]), indices, (1, 7), max_diagonals=4).num_diagonals == 4
    with pytest.raises(ValueError, match="more than the limit of 3"):
        DiaFormat.from_csr(torch.tensor([0, 4]), indices, (1, 7), max_slots=3)


@many
@given(s=structures())
def test_csc_is_sorted_and_stable(s):
    fmt = CscFormat.from_csr(*s.csr)
    by_column = sorted(s.triples(), key=lambda t: (t[1], t[2]))
    assert fmt.value_position.tolist() == [position for _, _, position in by_column]
    assert fmt.indices.tolist() == [row for row, _, _ in by_column]
    assert fmt.indptr.tolist() == [sum(t[1] < j for t in by_column) for j in range(s.n_cols + 1)]
