"""Files of arrays: read back as they were written, by SciPy too, and those that are none."""

from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import CUBE_FORMATS, MATRIX_FORMATS, sparse

FORMATS = [
    *((shape, form) for shape in ((4, 6), (5, 7), (0, 3), (3, 0)) for form in ("dense", *MATRIX_FORMATS)),
    *((shape, form) for shape in ((3, 4, 5), (0, 4, 5)) for form in ("dense", *CUBE_FORMATS)),
    ((4, 6), st.Format(("compressed", "dense"), (1, 0))),
    ((7,), "coo"),
    ((), "dense"),
]
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8")


def array_of(shape, format, dtype, index_dtype="int32"):
    """An array with a zero that is stored, and infinity where there are floats."""
    x = torch.tensor(sparse(*shape) * 10).to(getattr(torch, dtype))
    x = x if dtype == "bfloat16" else x.numpy()
    a = st.array(x, format, index_dtype=index_dtype)
    if not a.format.masked and len(a.values) > 1:
        a.values[0] = 0
        a.values[1] = np.inf if dtype[0] != "i" else 7
    return a


def assert_identical(found, want):
    assert (found.format, found.shape, found.dtype) == (want.format, want.shape, want.dtype)
    for level, other in zip(found.structure.levels, want.structure.levels):
        assert (level.kind, level.extent, level.positions, level.width) == (
            *(other.kind, other.extent, other.positions),
            other.width,
        )
        for own, given in ((level.offsets, other.offsets), (level.indices, other.indices)):
            assert (own is None) == (given is None)
            if own is not None:
                np.testing.assert_array_equal(own, given, strict=True)
    if want.structure.mask is not None:
        np.testing.assert_array_equal(found.structure.mask, want.structure.mask)
    assert torch.equal(torch.as_tensor(found.coordinates()[1]), torch.as_tensor(want.coordinates()[1]))


@pytest.mark.short(40)
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, format", FORMATS, ids=str)
def test_npz_is_read_back(shape, format, dtype, index_dtype):
    a = array_of(shape, format, dtype, index_dtype)
    file = io.BytesIO()
    st.save_npz(file, a)
    file.seek(0)
    assert_identical(st.load_npz(file), a)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr(2)", "bsr(2, 3)", "dia"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int8"])
def test_scipy_reads_matrices(format, dtype, tmp_path):
    a = array_of((4, 6), format, dtype)
    st.save_npz(tmp_path / "a.npz", a)
    found = scipy.sparse.load_npz(tmp_path / "a.npz")
    assert found.format == format[:3] and found.dtype == dtype
    np.testing.assert_array_equal(found.toarray(), a.to_dense())


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "csc_array", "coo_array", "bsr_array", "dia_array"])
@pytest.mark.parametrize("compressed", [False, True])
def test_what_scipy_wrote_is_read(kind, compressed, tmp_path):
    x = sparse(4, 6).astype("float32")
    scipy.sparse.save_npz(tmp_path / "a", getattr(scipy.sparse, kind)(x), compressed)
    found = st.load_npz(str(tmp_path / "a.npz"))
    assert str(found.format)[:3] == kind[:3] and found.dtype == "float32"
    np.testing.assert_array_equal(found.to_dense(), x)


def test_npz_of_scipy_with_duplicates_and_of_more_modes(tmp_path):
    at = np.array([[0, 0, 1], [1, 1, 0], [2, 2, 2]])
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.coo_array((np.ones(3), tuple(at)), shape=(2, 2, 3)))
    found = st.load_npz(tmp_path / "a.npz")
    assert found.shape == (2, 2, 3) and found.nnz == 2 and float(found[0, 1, 2]) == 2


def test_a_result_and_a_gradient_are_written(tmp_path):
    a = st.array(torch.tensor(sparse(4, 4), requires_grad=True), "csr")
    st.save_npz(tmp_path / "a", a @ a)
    found = st.load_npz(tmp_path / "a.npz")
    assert isinstance(found.values, np.ndarray)
    np.testing.assert_allclose(found.to_dense(), sparse(4, 4) @ sparse(4, 4))
    np.testing.assert_allclose((found @ found).to_dense(), np.linalg.matrix_power(sparse(4, 4), 4))


def changed(**changes):
    """The arrays of a file of levels, some of them changed or, by None, left out."""
    file = io.BytesIO()
    st.save_npz(file, st.array(sparse(3, 4, 5), "csf"))
    file.seek(0)
    arrays = {**np.load(file), **changes}
    found = io.BytesIO()
    np.savez(found, **{name: array for name, array in arrays.items() if array is not None})
    found.seek(0)
    return found


INDICES = np.load(changed())["indices_2"]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"format": None}, "and no format"),
        ({"format": b"lil", "data": np.ones(1)}, "the format 'lil' is not one of csr"),
        ({"version": 2}, "it has the version 2"),
        ({"levels": None}, "lacks the array 'levels'"),
        ({"levels": np.array(["dense", "squashed", "dense"])}, "'squashed' is not one of"),
        ({"order": np.array([0, 1, 1])}, "must have each of 0 to 2 once"),
        ({"shape": np.array([3, 4])}, r"shape \(3, 4\) is not that of a tensor"),
        ({"shape": np.array([3, 4, -5])}, "is not that of a tensor"),
        ({"shape": np.array([3, 4, 3])}, "level 2, compressed, are not those of 3 coordinates"),
        ({"values": np.ones(3)}, "positions are stored"),
        ({"values": np.ones(len(INDICES), complex)}, "values is of type complex128"),
        ({"indices_2": INDICES.astype("int64")}, "of one type"),
        ({"indices_2": INDICES.astype(float)}, "of one type"),
        ({"indices_2": INDICES[::-1].copy()}, "not in the order of the levels"),
        ({"indices_2": -INDICES - 1}, "level 2"),
        ({"indices_2": None}, "level 2"),
        ({"offsets_1": np.zeros(4, "int32")}, "level 1"),
        ({"offsets_1": np.array([0, 9, 2, 12], "int32")}, "level 1"),
        ({"offsets_0": None}, "level 0"),
        ({"mask": np.ones(3)}, "there is a mask"),
    ],
    ids=str,
)
def test_arrays_that_are_no_tensor(changes, words):
    with pytest.raises(ValueError, match=words):
        st.load_npz(changed(**changes))


@pytest.mark.parametrize("kind", [("dense", "slots"), ("compressed-nonunique", "singleton")], ids=str)
def test_slots_and_singletons_are_looked_at(kind):
    a = st.array(np.array([[0, 1.0, 2.0], [3.0, 0, 0]]), kind)
    indices = a.structure.levels[1].indices
    for wrong in (indices[:-1], indices + 7, np.append(indices[1::-1], indices[2:])):
        found = io.BytesIO()
        arrays = {"format": b"levels", "version": 1, "dtype": "float64", "shape": (2, 3), "order": (0, 1)}
        arrays |= {"levels": np.array(kind), "values": a.values, "indices_1": wrong}
        if kind[0] != "dense":
            arrays |= {"offsets_0": a.structure.levels[0].offsets, "indices_0": a.structure.levels[0].indices}
        np.savez(found, **arrays)
        found.seek(0)
        with pytest.raises(ValueError, match="is no file of a tensor"):
            st.load_npz(found)


@pytest.mark.parametrize(
    "body", [b"", b"nothing", b"PK\x03\x04 and more", b"%%MatrixMarket matrix coordinate real general\n2 2 9\n"]
)
def test_files_that_are_none(body, tmp_path):
    (tmp_path / "a").write_bytes(body)
    with pytest.raises(ValueError, match="a' is no npz file of arrays"):
        st.load_npz(str(tmp_path / "a"))
    with pytest.raises(ValueError, match="a' is no file of MatrixMarket"):
        st.load_mtx(str(tmp_path / "a"))


def test_paths_that_are_none(tmp_path):
    for load in (st.load_npz, st.load_mtx):
        with pytest.raises(FileNotFoundError, match=r"none\.x"):
            load(tmp_path / "none.x")
        with pytest.raises(TypeError, match="3 is not the path of a file"):
            load(3)
    for save in (st.save_npz, st.save_mtx):
        with pytest.raises(TypeError, match="None is not the path of a file"):
            save(None, np.ones((2, 2)))
    with pytest.raises(st.FormatError, match=r"the shape \(2, 2, 2\); use save_npz"):
        st.save_mtx(tmp_path / "a.mtx", np.ones((2, 2, 2)))


@pytest.mark.short(16)
@pytest.mark.parametrize("format", ("dense", *MATRIX_FORMATS), ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_market_is_read_back(format, dtype, tmp_path):
    a = array_of((4, 6), format, dtype)
    st.save_mtx(tmp_path / "a.mtx", a)
    found = st.load_mtx(tmp_path / "a.mtx")
    assert str(found.format) == ("dense" if format == "dense" else "coo")
    assert found.dtype == ("int64" if dtype[0] == "i" else "float64")
    if a.format.exact:
        assert found.nnz == a.nnz
    again = torch.as_tensor(found.to_dense()).to(getattr(torch, dtype))
    assert torch.equal(again, a.to_torch())
    theirs = scipy.io.mmread(tmp_path / "a.mtx")
    np.testing.assert_array_equal(theirs if format == "dense" else theirs.toarray(), found.to_dense())


@pytest.mark.parametrize(
    "text, want",
    [
        ("coordinate pattern symmetric\n3 3 2\n2 1\n3 3", [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
        ("coordinate real skew-symmetric\n2 2 1\n2 1 0.5", [[0, -0.5], [0.5, 0]]),
        ("coordinate integer general\n2 2 2\n1 1 3\n1 1 4", [[7, 0], [0, 0]]),
        ("array real general\n2 1\n1\n2", [[1], [2]]),
    ],
)
def test_other_files_of_matrix_market(text, want, tmp_path):
    (tmp_path / "a.mtx").write_text(f"%%MatrixMarket matrix {text}\n")
    assert st.load_mtx(tmp_path / "a.mtx").to_dense().tolist() == want
    (tmp_path / "b.mtx").write_text("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 2 3\n")
    with pytest.raises(TypeError, match=r"the matrix of .*b.mtx'\)?: x is of type complex128"):
        st.load_mtx(tmp_path / "b.mtx")
