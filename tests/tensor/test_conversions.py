"""Any format to any other and back, from NumPy, SciPy, PyTorch and coordinates, and to them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs
from hypothesis.extra import numpy as hnp

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.tensor.storage import making, structure
from gnn_sparse_backend.tensor.storage.values import DTYPES, FLOATS
from tests.tensor.random_tensors import CUBE_FORMATS, MATRIX_FORMATS, sparse

SHAPES = ((4, 5), (1, 7), (0, 3), (3, 0), (6, 6), (1, 1))
values = hs.sampled_from([0.0, 0.0, 0.0, 1.0, -2.5])


@pytest.mark.short(2)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("source", ("dense", *MATRIX_FORMATS), ids=str)
def test_matrices_go_to_every_format_and_back(source, shape):
    x = sparse(*shape)
    a = st.array(x, source)
    for target in ("dense", *MATRIX_FORMATS):
        b = a.to(target)
        np.testing.assert_array_equal(b.to_dense(), x)
        np.testing.assert_array_equal(b.T.to_dense(), x.T)
        np.testing.assert_array_equal(b.to(source).to_dense(), x)
        if b.format.exact and a.format.exact:
            assert b.nnz == np.count_nonzero(x)


@settings(max_examples=60, deadline=None)
@given(
    x=hnp.arrays("float64", hnp.array_shapes(min_dims=3, max_dims=3, min_side=0, max_side=4), elements=values),
    source=hs.sampled_from(CUBE_FORMATS),
    target=hs.sampled_from(CUBE_FORMATS),
    order=hs.permutations(range(3)),
    index_dtype=hs.sampled_from(["int32", "int64"]),
)
def test_cubes_go_to_every_format_and_back(x, source, target, order, index_dtype):
    levels = st.array(x, target).format.levels
    a = st.array(x, source, index_dtype=index_dtype)
    b = a.to(st.Format(levels, tuple(order)))
    assert a.index_dtype == index_dtype
    np.testing.assert_array_equal(b.to_dense(), x)
    np.testing.assert_array_equal(b.to(source).to_dense(), x)
    np.testing.assert_array_equal(b.permute(*order).to_dense(), x.transpose(order))


@settings(max_examples=60, deadline=None)
@given(
    at=hnp.arrays("int64", hs.tuples(hs.just(2), hs.integers(0, 12)), elements=hs.integers(0, 3)),
    format=hs.sampled_from(MATRIX_FORMATS),
)
def test_duplicates_are_summed_or_refused(at, format):
    v = np.arange(1.0, at.shape[1] + 1)
    want = np.zeros((4, 4))
    np.add.at(want, tuple(at), v)
    np.testing.assert_array_equal(st.array((at, v), format, shape=(4, 4)).to_dense(), want)
    if len({tuple(column) for column in at.T}) < at.shape[1]:
        with pytest.raises(ValueError, match=r"the coordinate \(\d, \d\) occurs more than once; duplicates='sum'"):
            st.array((at, v), format, shape=(4, 4), duplicates="refuse")
    else:
        found = st.array((at, v), format, shape=(4, 4), duplicates="refuse")
        assert found.nnz == at.shape[1] or not found.format.exact


def test_the_arrays_of_named_formats_are_the_known_ones():
    x = np.array([[5.0, 0, 0, 1], [0, 0, 0, 0], [0, 2, 3, 0]])
    csr, csc = st.array(x, "csr").structure, st.array(x, "csc").structure
    assert csr.levels[1].offsets.tolist() == [0, 2, 2, 4] and csr.levels[1].indices.tolist() == [0, 3, 1, 2]
    assert csc.levels[1].offsets.tolist() == [0, 1, 2, 3, 4] and csc.levels[1].indices.tolist() == [0, 2, 2, 0]
    coo, dcsr = st.array(x, "coo").structure, st.array(x, "dcsr").structure
    assert coo.levels[0].indices.tolist() == [0, 0, 2, 2] and coo.levels[0].offsets.tolist() == [0, 4]
    assert coo.levels[1].indices.tolist() == [0, 3, 1, 2] and coo.levels[1].offsets is None
    assert dcsr.levels[0].indices.tolist() == [0, 2] and dcsr.levels[1].offsets.tolist() == [0, 2, 4]
    ell = st.array(x, "ell")
    assert ell.structure.levels[1].indices.tolist() == [0, 3, -1, -1, 1, 2] and ell.structure.levels[1].width == 2
    assert ell.values.tolist() == [5, 1, 0, 0, 2, 3]
    dia = st.array(x, "dia")
    assert dia.structure.levels[0].indices.tolist() == [1, 2, 5]  # diagonals j - i of -1, 0 and 3
    assert dia.structure.mask.tolist() == [0, 0, 1, 1, 0, 1, 1, 0, 0]
    bsr = st.array(x, "bsr(2)")
    assert bsr.structure.levels[1].indices.tolist() == [0, 1, 0, 1]
    assert bsr.values.tolist() == [5, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 3, 0, 0, 0]


def test_blocks_are_those_of_scipy_where_they_fill_the_shape():
    x = np.eye(6)
    back = st.array(x, "bsr(2, 3)").to_scipy()
    assert back.blocksize == (2, 3)
    np.testing.assert_array_equal(back.toarray(), x)
    np.testing.assert_array_equal(st.array(x, "bsr(4)").to_scipy().toarray(), x)


def test_an_array_has_its_shape_already():
    a = st.array(np.eye(3), "csr")
    assert st.array(a, shape=(3, 3), duplicates="refuse").shape == (3, 3)
    with pytest.raises(ValueError, match=r"shape \(4, 4\) is not that of x, \(3, 3\)"):
        st.array(a, shape=(4, 4))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_scipy_there_and_back(kind):
    matrix = scipy.sparse.coo_array(sparse(6, 4)).asformat(kind)
    a = st.array(matrix)
    np.testing.assert_array_equal(a.to_dense(), matrix.toarray())
    assert str(a.format).partition("(")[0] == (kind if kind in ("csr", "csc", "bsr") else "coo")
    for wanted in ("csr", "csc", "coo", "bsr", "dia"):
        back = a.to_scipy(wanted)
        assert back.format == wanted
        np.testing.assert_array_equal(back.toarray(), matrix.toarray())
    assert a.to_scipy().format == str(a.format).partition("(")[0]


def test_zeros_that_are_stored_stay():
    matrix = scipy.sparse.csr_array((np.array([0.0, 2.0]), np.array([1, 0]), np.array([0, 1, 2])), shape=(2, 2))
    for format in MATRIX_FORMATS[:-2]:
        assert st.array(matrix, format).nnz == 2 and st.array(matrix, format).to("csr").nnz == 2


@pytest.mark.parametrize("layout", ["strided", "coo", "csr", "csc"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_torch_there_and_back(layout):
    x = torch.tensor(sparse(6, 4))
    given = {"strided": x, "coo": x.to_sparse(), "csr": x.to_sparse_csr(), "csc": x.to_sparse_csc()}[layout]
    for format in (None, *MATRIX_FORMATS):
        a = st.array(given, format)
        for wanted in ("strided", "coo", "csr", "csc"):
            assert torch.equal(a.to_torch(wanted).to_dense(), x)


def test_values_of_torch_keep_their_history():
    x = torch.tensor(sparse(5, 4), requires_grad=True)
    for format in MATRIX_FORMATS:
        (gradient,) = torch.autograd.grad((st.array(x, format).to("csc").to_torch() * 3).sum(), x)
        assert torch.equal(gradient, 3.0 * (x != 0))  # of zeros nothing is stored


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8"])
def test_types_are_kept_and_changed(dtype):
    x = np.array([[0, 3], [1, 0]], dtype)
    a = st.array(x, "csr")
    assert a.dtype == dtype and a.to_dense().dtype == dtype and a.to(dtype="float32").dtype == "float32"
    assert st.array(x, "coo", dtype="float64").to_dense().dtype == "float64"
    half = st.array(torch.tensor([[0.0, 1.5]]).bfloat16(), "csr")
    assert half.dtype == "bfloat16" and half.to_torch().dtype == torch.bfloat16
    for back in (half.to_dense, half.to_scipy, lambda: a.to(dtype="bfloat16")):
        with pytest.raises(TypeError, match="NumPy has no bfloat16"):
            back()


@pytest.mark.parametrize(
    "make, error, words",
    [
        (
            lambda: st.array(([[0, 5], [1, 1]], [1.0, 2.0]), shape=(3, 3)),
            ValueError,
            "coordinate 5 of mode 0 is out",
        ),
        (lambda: st.array(([[0, -1], [1, 1]], [1.0, 2.0])), ValueError, "coordinate -1 of mode 0"),
        (lambda: st.array(([[0], [1, 1]], [1.0])), ValueError, r"equally long, not of \[1, 2\]"),
        (
            lambda: st.array(([[0], [1]], [1.0, 2.0])),
            ValueError,
            r"there are 1 coordinates, and values of .*\(2,\)",
        ),
        (lambda: st.array(([[0.5], [1]], [1.0])), TypeError, "coordinates are integers in one dimension, not float64"),
        (lambda: st.array(np.ones(3), "csr"), st.FormatError, "csr is of tensors with 2 modes, and this one has 1"),
        (lambda: st.array(np.ones((2, 2)), index_dtype="int8"), st.FormatError, "index_dtype 'int8'"),
        (
            lambda: st.array(np.ones((2, 2)), duplicates="keep"),
            ValueError,
            "duplicates 'keep' is not 'sum' or",
        ),
        (lambda: st.array(np.ones(2, complex)), TypeError, "x is of type complex128; values are float16"),
        (lambda: st.array(np.ones((2, 2)), shape=(2, 3)), ValueError, r"shape \(2, 3\) is not that of x, \(2, 2\)"),
        (lambda: st.array(torch.ones(2, device="meta")), TypeError, r"x is on meta.*give x.cpu\(\)"),
        (lambda: st.array(([[0], [1]], [1.0]), shape=(3.9, 2)), TypeError, r"shape \(3.9, 2\) is not several integers"),
        (lambda: st.array(([[], []], []), shape=(-1, 2)), ValueError, r"shape \(-1, 2\) has a mode of less than no"),
        (lambda: st.array(np.ones((2, 2)), dtype="uint8"), TypeError, "dtype 'uint8' is not one of 'float16'"),
        (lambda: st.array(torch.ones(2, 2), "csr").to(dtype="f4"), TypeError, "dtype 'f4' is not one of"),
        (lambda: st.array((1, 2, 3)), TypeError, "a tuple is .coordinates, values., and this one has 3 parts"),
        (lambda: st.array(np.ones((2, 2, 2)), "csf").to_scipy(), st.FormatError, r"has the shape \(2, 2, 2\)"),
        (lambda: st.array(np.ones((2, 2)), "csr").to_scipy("lil"), ValueError, "format 'lil' is not one of"),
        (lambda: st.array(np.ones((2, 2)), "csr").to_torch("bsr"), ValueError, "layout 'bsr' is not one of"),
        (lambda: st.array(np.ones((2, 2)), "csr").permute(0, 0), ValueError, r"permute\(0, 0\) of 2 modes"),
        (
            lambda: st.array(np.ones((2, 2)), "csr").with_values(np.ones(3)),
            st.FormatError,
            "4 positions",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_words(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_truth_values_are_counted():
    """A matrix of 200 edges into one node, as NumPy, PyTorch and SciPy have it."""
    ones = np.ones((200, 3), bool)
    for matrix in (ones, torch.from_numpy(ones), scipy.sparse.csr_matrix(ones)):
        array = st.array(matrix, "csr")
        assert st.array(ones.astype(np.int8), "csr").sum(0).to_dense().tolist() == [200, 200, 200]
        assert array.dtype == "bool" and (np.asarray((array.permute(1, 0) @ array).to_dense()) == 200).all()


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_matrices_of_scipy_in_order_are_taken_as_they_are(kind, index, monkeypatch):
    x = scipy.sparse.random(30, 20, 0.2, format=kind, random_state=0)
    x.indices, x.indptr = x.indices.astype(index), x.indptr.astype(index)
    with monkeypatch.context() as patch:
        patch.setattr(making, "pack", None)  # nothing is sorted
        a = st.array(x)
    assert a.format == {"csr": st.csr, "csc": st.csc}[kind] and a.nnz == x.nnz
    assert np.shares_memory(a.values, x.data)
    assert np.shares_memory(a.structure.levels[1].indices, x.indices) == (index is np.int32)
    np.testing.assert_array_equal(a.to_dense(), x.toarray())
    assert st.array(x, index_dtype="int64").index_dtype == "int64"
    np.testing.assert_array_equal(st.array(x, "dcsr", dtype="float32").to_dense(), x.toarray().astype("float32"))


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_matrices_of_scipy_that_are_not_in_order_are_brought_into_order(kind):
    x = scipy.sparse.random(30, 20, 0.2, format=kind, random_state=0)
    expected, swapped = x.toarray(), x.copy()
    first = int(np.nonzero(np.diff(x.indptr) > 1)[0][0])
    at = slice(x.indptr[first], x.indptr[first] + 2)
    swapped.indices[at], swapped.data[at] = x.indices[at][::-1], x.data[at][::-1]
    swapped.has_sorted_indices = False
    swapped.has_canonical_format = False
    np.testing.assert_array_equal(st.array(swapped).to_dense(), expected)
    twice = x.copy()
    twice.indices[at] = twice.indices[at][0]
    twice.has_canonical_format = False
    np.testing.assert_allclose(st.array(twice).to_dense(), twice.toarray())
    wrong = x.copy()
    wrong.indices[0] = 77
    with pytest.raises(ValueError, match="77"):
        st.array(wrong)


@pytest.mark.parametrize("torch_values", [False, True])
@pytest.mark.parametrize("shape", [(6, 9), (9, 1), (1, 4), (0, 3), (3, 0)])
def test_rows_from_columns_and_back(shape, torch_values):
    x = np.random.default_rng(0).random(shape) * (np.random.default_rng(1).random(shape) < 0.4)
    x[:1, :1] = 0
    at = np.nonzero(x)
    values = torch.from_numpy(x[at]).requires_grad_() if torch_values else x[at]
    rows = st.array((np.stack(at), values), "csr", shape=shape)
    columns = rows.to("csc")
    assert columns.format == st.csc
    for found in (columns, columns.to("csr"), rows.T.to("csr").T, rows.with_all(st.csc)):
        np.testing.assert_array_equal(found.to_torch().detach(), x)
        coordinates, _ = found.coordinates()
        assert coordinates.shape == (2, len(at[0]))
    if torch_values and len(at[0]):
        (gradient,) = torch.autograd.grad(columns.values.square().sum(), values)
        torch.testing.assert_close(gradient, 2 * values.detach())


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_from_columns_keep_every_bit(dtype, index_dtype):
    """Values keep their bits: NaN, infinities and zeros of both signs, in arrays that are strided or read-only."""
    at = np.array([[0, 0, 1, 3, 3, 3], [1, 4, 0, 0, 1, 4]])
    x = torch.tensor([0.0, -0.0, 1.0, -3.0, torch.inf, torch.nan] if dtype in FLOATS else [0, 5, 1, -3, 127, -128])
    x = x.to(getattr(torch, dtype)).repeat_interleave(2)[::2]
    given = [x] if dtype == "bfloat16" else [x, x.numpy()]
    for values in given:
        if isinstance(values, np.ndarray):
            values.flags.writeable = False
        rows = st.array((at, values), "csr", shape=(4, 5), index_dtype=index_dtype).with_values(values)
        columns = rows.to("csc")
        assert type(columns.values) is type(values) and columns.values.dtype == values.dtype
        assert columns.index_dtype == index_dtype
        order = np.lexsort(at)
        np.testing.assert_array_equal(columns.coordinates()[0], at[:, order])
        for found, want in ((columns, x[order]), (columns.to("csr"), x)):
            assert bytes(torch.as_tensor(found.values).view(torch.uint8).numpy()) == bytes(
                want.contiguous().view(torch.uint8).numpy()
            )


@pytest.mark.parametrize("format", ["dense", "csr", "coo", "dcsr", "bsr(2)", "dia"])
def test_counting_makes_no_coordinates(format, monkeypatch):
    a = st.array(np.eye(6), format)
    expected = a.coordinates()[0].shape[1]
    monkeypatch.setattr(structure.Structure, "coordinates", None)
    assert a.nnz == expected and f"nnz={expected}" in repr(a)
