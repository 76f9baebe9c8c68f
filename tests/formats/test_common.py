"""What holds for every format: the round trip, the layout as documented, the value maps, the index types."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnn_sparse_backend.formats import BsrFormat, CsrFormat, HybFormat
from gnn_sparse_backend.formats import structure as limits
from tests.formats.structures import BUILDERS, MERGING, Structure, dense_by_definition, few, index_arrays, structures

every_format = pytest.mark.parametrize("name", BUILDERS)


def pieces(padded):
    return padded if isinstance(padded, tuple) else (padded,)


def slot_maps(fmt):
    return [b.value_position for b in fmt.buckets] if isinstance(fmt, HybFormat) else [fmt.value_position]


@every_format
@few
@given(s=structures())
def test_round_trip_keeps_every_edge(name, s):
    fmt = BUILDERS[name](*s.csr)
    row, col, position = fmt.to_coo()
    assert sorted(zip(row.tolist(), col.tolist(), position.tolist())) == s.triples()
    assert {row.dtype, col.dtype, position.dtype} == {s.dtype}
    assert (fmt.shape, fmt.nnz, fmt.index_dtype) == (s.shape, s.nnz, s.dtype)
    assert all(array.dtype == s.dtype and array.is_contiguous() for array in index_arrays(fmt))
    assert type(fmt).__name__ in repr(fmt)


@every_format
@few
@given(s=structures())
def test_layout_is_the_documented_one(name, s):
    fmt = BUILDERS[name](*s.csr)
    values = torch.arange(1.0, s.nnz + 1, dtype=torch.float64)
    assert np.array_equal(dense_by_definition(fmt, fmt.pad_values(values)), s.dense(values))


@every_format
def test_layout_of_larger_structures(name, zoo):
    for row, col, (n_rows, n_cols) in zoo.values():
        rows = tuple(tuple(col[row == i].tolist()) for i in range(n_rows))
        s = Structure(rows, n_cols, torch.int64)
        if name == "ell-wide" and max(map(len, rows), default=0) > 12:
            continue
        values = torch.arange(1.0, s.nnz + 1, dtype=torch.float64)
        fmt = BUILDERS[name](*s.csr)
        assert np.array_equal(dense_by_definition(fmt, fmt.pad_values(values)), s.dense(values))


@every_format
@few
@given(s=structures())
def test_padding_counts_slots(name, s):
    fmt = BUILDERS[name](*s.csr)
    num_slots = sum(piece.numel() for piece in pieces(fmt.pad_values(torch.ones(s.nnz))))
    assert fmt.num_slots == num_slots
    assert fmt.padding == (num_slots / s.nnz - 1 if s.nnz else (float("inf") if num_slots else 0.0))
    arrays = index_arrays(fmt) + ([fmt.mask] if name in MERGING else [])
    assert fmt.nbytes == sum(array.numel() * array.element_size() for array in arrays)


@every_format
@few
@given(s=structures(unique=True))
def test_value_position_lays_out_the_values(name, s):
    fmt = BUILDERS[name](*s.csr)
    values = torch.arange(1.0, s.nnz + 1)
    seen = []
    for position, padded in zip(slot_maps(fmt), pieces(fmt.pad_values(values)), strict=True):
        expected = [values[p].item() if p >= 0 else 0.0 for p in position.flatten().tolist()]
        assert padded.flatten().tolist() == expected
        seen += [p for p in position.flatten().tolist() if p != -1]
    assert sorted(seen) == list(range(s.nnz))


@every_format
@few
@given(s=structures(), heads=st.sampled_from([(), (1,), (3,)]), seed=st.integers(0, 2**16))
def test_unpad_is_the_adjoint_of_pad(name, s, heads, seed):
    fmt = BUILDERS[name](*s.csr)
    if isinstance(fmt, HybFormat) and not fmt.buckets:
        with pytest.raises(ValueError, match="keep_empty=True"):
            fmt.unpad_values(())
        return
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(s.nnz, *heads, dtype=torch.float64, generator=generator, requires_grad=True)
    padded = fmt.pad_values(values)
    cotangents = tuple(torch.randn(piece.shape, dtype=torch.float64, generator=generator) for piece in pieces(padded))
    back = fmt.unpad_values(cotangents if isinstance(padded, tuple) else cotangents[0])
    assert back.shape == values.shape
    (gradient,) = torch.autograd.grad(pieces(padded), values, cotangents, allow_unused=True)
    assert torch.equal(gradient, back)
    inner = sum((a * b).sum() for a, b in zip(pieces(padded), cotangents))
    assert torch.allclose(inner, (values * back).sum(), rtol=1e-12, atol=1e-12)
    if name not in MERGING:
        assert torch.equal(fmt.unpad_values(padded), values)


@every_format
def test_value_maps_differentiate_twice(name):
    csr = torch.tensor([0, 3, 3, 5]), torch.tensor([2, 0, 2, 1, 3]), (3, 4)
    fmt = BUILDERS[name](*csr)
    values = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    there_and_back = lambda v: fmt.unpad_values(fmt.pad_values(v))
    assert torch.autograd.gradcheck(there_and_back, values)
    assert torch.autograd.gradgradcheck(there_and_back, values, fast_mode=True)


@every_format
@few
@given(s=structures(), bad=st.sampled_from([float("inf"), float("nan")]), data=st.data())
def test_an_infinite_value_stays_on_its_edge(name, s, bad, data):
    fmt = BUILDERS[name](*s.csr)
    values = torch.ones(s.nnz)
    if s.nnz:
        values[data.draw(st.integers(0, s.nnz - 1))] = bad
    padded = pieces(fmt.pad_values(values))
    assert sum(int((~piece.isfinite()).sum()) for piece in padded) == min(s.nnz, 1)


@every_format
@few
@given(s=structures(max_rows=5, max_cols=6, max_degree=4), limit=st.integers(0, 40))
def test_indices_widen_where_int32_would_overflow(name, s, limit):
    reference = BUILDERS[name](*s.csr)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "INT32_MAX", limit)
        fmt = BUILDERS[name](*s.csr)
    row, col, position = fmt.to_coo()
    assert sorted(zip(row.tolist(), col.tolist(), position.tolist())) == s.triples()
    values = torch.arange(1.0, s.nnz + 1, dtype=torch.float64)
    for ours, theirs in zip(pieces(fmt.pad_values(values)), pieces(reference.pad_values(values)), strict=True):
        assert torch.equal(ours, theirs)
    assert len({array.dtype for array in index_arrays(fmt)} | {fmt.index_dtype}) == 1
    # CSR is the user's own structure, which already fits its type.
    if name != "csr" and max(fmt.num_slots, s.nnz, *s.shape) > limit:
        assert fmt.index_dtype == torch.int64
    # Widening has a reason: twice the bound that any format computes with is safe.
    if max(fmt.num_slots, s.nnz + 12, sum(s.shape)) <= limit:
        assert fmt.index_dtype == s.dtype


# Each holds nothing above the threshold but its slots, or for the last the positions it computes before masking them.
@pytest.mark.parametrize(
    "threshold, name, rows, n_cols",
    [
        (10, "ell", ((0, 1), (), (), (), (), (2,)), 3),
        (10, "bsr-3x4", ((0,), (), (), (), (), (), (8,)), 9),
        (10, "sr-bcrs-2x3", ((0, 8), (), (4,), ()), 9),
        (10, "dia", ((0, 1), (), (), (0,)), 3),
        (20, "hyb-1-2", ((0, 1, 2),) * 5 + ((3,),), 4),
        (10, "hyb-1-2", ((0, 1, 2), (0, 1, 2), (1, 2)), 4),
    ],
)
def test_slots_beyond_the_threshold_widen_the_indices(monkeypatch, threshold, name, rows, n_cols):
    csr = Structure(rows, n_cols, torch.int32).csr
    assert BUILDERS[name](*csr).index_dtype == torch.int32
    monkeypatch.setattr(limits, "INT32_MAX", threshold)
    assert BUILDERS[name](*csr).index_dtype == torch.int64


@every_format
def test_non_contiguous_and_offset_input(name):
    indptr = torch.tensor([0, 9, 2, 9, 2, 9, 5], dtype=torch.int32)[::2]
    indices = torch.tensor([7, 3, 0, 1, 1, 2], dtype=torch.int32)[1:]
    expected = BUILDERS[name](indptr.clone(), indices.clone(), (3, 4))
    fmt = BUILDERS[name](indptr, indices, (3, 4))
    for ours, theirs in zip(index_arrays(fmt), index_arrays(expected), strict=True):
        assert ours.is_contiguous() and torch.equal(ours, theirs)


@every_format
def test_values_of_the_wrong_size_are_refused(name):
    fmt = BUILDERS[name](torch.tensor([0, 1, 2]), torch.tensor([1, 0]), (2, 2))
    with pytest.raises(ValueError, match=r"nnz = 2, got \(3,\)"):
        fmt.pad_values(torch.ones(3))
    with pytest.raises(ValueError, match=r"got \(\)"):
        fmt.pad_values(torch.tensor(1.0))
    with pytest.raises(TypeError, match="got list"):
        fmt.pad_values([1.0, 2.0])
    with pytest.raises(ValueError):
        fmt.unpad_values((torch.ones(1, 77),) * 9 if isinstance(fmt, HybFormat) else torch.ones(1, 77))


GOOD = dict(indptr=torch.tensor([0, 2, 3]), indices=torch.tensor([1, 0, 2]), shape=(2, 3))


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(indptr=[0, 2, 3]), TypeError, "indptr must be a torch tensor, got list"),
        (dict(indices=np.array([1, 0, 2])), TypeError, "indices must be a torch tensor, got ndarray"),
        (dict(indptr=torch.tensor([0.0, 2.0, 3.0])), TypeError, "indptr must be int32 or int64, got torch.float32"),
        (dict(indices=torch.tensor([1, 0, 2], dtype=torch.int32)), TypeError, "int64 but indices are torch.int32"),
        (dict(indices=torch.tensor([[1, 0, 2]])), ValueError, r"indices must have one dimension, got shape \(1, 3\)"),
        (dict(indptr=torch.tensor([0, 3])), ValueError, r"n_rows \+ 1 = 3 entries"),
        (dict(indptr=torch.tensor([1, 2, 3])), ValueError, r"indptr\[0\] = 1"),
        (dict(indptr=torch.tensor([0, 2, 4])), ValueError, r"number of indices 3, got indptr\[-1\] = 4"),
        (dict(indptr=torch.tensor([0, 4, 3])), ValueError, r"indptr\[1\] = 4 and indptr\[2\] = 3"),
        (dict(indices=torch.tensor([1, 3, 2])), ValueError, r"\[0, 3\), got indices\[1\] = 3"),
        (dict(indices=torch.tensor([1, 0, -1])), ValueError, r"got indices\[2\] = -1"),
        (dict(indices=torch.tensor([1, 0, 2], device="meta")), ValueError, "indptr is on cpu but indices are on meta"),
        (dict(shape=(2, -3)), ValueError, r"must not be negative, got \(2, -3\)"),
        (dict(shape=(2, 3, 1)), TypeError, r"two integers \(n_rows, n_cols\), got \(2, 3, 1\)"),
        (dict(shape=(2, 2.5)), TypeError, "two integers"),
        (dict(shape=7), TypeError, "two integers .* got 7"),
    ],
)
@every_format
def test_bad_structures_are_refused_in_words(name, change, error, words):
    arguments = {**GOOD, **change}
    with pytest.raises(error, match=words):
        BUILDERS[name](arguments["indptr"], arguments["indices"], arguments["shape"])


def test_formats_are_immutable_and_take_csr_without_a_copy():
    fmt = CsrFormat.from_csr(GOOD["indptr"], GOOD["indices"], GOOD["shape"])
    assert fmt.indptr.data_ptr() == GOOD["indptr"].data_ptr() and fmt.indices.data_ptr() == GOOD["indices"].data_ptr()
    with pytest.raises(AttributeError):
        fmt.indices = GOOD["indices"]


def test_half_precision_duplicates_are_summed_in_float32():
    n = 4096
    fmt = BsrFormat.from_csr(torch.tensor([0, n]), torch.zeros(n, dtype=torch.int64), (1, 1), 1)
    # In float16 the sum of ones stops at 2048.
    assert fmt.pad_values(torch.ones(n, dtype=torch.float16)).tolist() == [[[4096.0]]]
