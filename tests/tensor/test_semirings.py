"""Sums and products of other semirings against NumPy's reductions of every combination, and SciPy's shortest paths."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse import csgraph

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import MATRIX_FORMATS, dense, sparse

OPERATIONS = {
    "plus": np.add,
    "times": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "or": np.logical_or,
    "and": np.logical_and,
}
SEMIRINGS = ("min_plus", "max_plus", "min_times", "max_times", "min_max", "max_min", "or_and")
SIZES = {"i": 7, "j": 6, "k": 5, "l": 4}


def zero_of(semiring: str, dtype: np.dtype):
    if dtype.kind == "b":
        return False
    ends = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return ends[semiring.startswith("min")]


def computed(expression: str, semiring: str, operands: dict[str, tuple[np.ndarray, np.ndarray]]):
    """(values, whether there is one) of a statement; operands: (values, whether each is stored)."""
    result, terms = expression.replace(" ", "").split("=")
    wanted = re.findall(r"\w", result[1:])
    add, multiply = (OPERATIONS[name] for name in semiring.split("_"))
    total = None
    for term in terms.split("+"):
        indices = list(dict.fromkeys([*wanted, *re.findall(r"(?<=[\[,])\w", term)]))
        values = there = None
        for name, own in re.findall(r"(\w+)\[([\w,]*)\]", term):
            own = own.split(",")
            shape = [operands[name][0].shape[own.index(i)] if i in own else 1 for i in indices]
            order = [own.index(i) for i in indices if i in own]
            x, stored = (each.transpose(order).reshape(shape) for each in operands[name])
            x = x.astype(bool) if semiring == "or_and" else x
            values, there = (x, stored) if values is None else (multiply(values, x), there & stored)
        there = np.broadcast_to(there, values.shape)
        zero = zero_of(semiring, values.dtype)
        summed = tuple(range(len(wanted), len(indices)))
        part = add.reduce(values, summed, initial=zero, where=there) if summed else np.where(there, values, zero)
        some = there.any(summed)
        total = (part, some) if total is None else (add(total[0], part), total[1] | some)
    return total


def operand(*shape: int, seed: int, dtype: str = "float64", density: float = 0.4):
    """(coordinates of what is stored, values, whether each is stored), stored zeros among them."""
    rng = np.random.default_rng([seed, *shape])
    there = rng.random(shape) < density
    there[0] = False
    values = np.where(there & (rng.random(shape) < 0.9), (rng.standard_normal(shape) * 5).round(1), 0).astype(dtype)
    return values, there


def array(x, format) -> st.Array:
    values, there = x
    if format == "dense":
        return st.array(values)
    return st.array((np.stack(np.nonzero(there)), values[there]), format, shape=values.shape)


def assert_computed(expression: str, semiring: str, given: dict, formats: dict, format=None) -> st.Array:
    stored = {n: (x, np.ones(x.shape, bool) if formats[n] == "dense" else t) for n, (x, t) in given.items()}
    want, there = computed(expression, semiring, stored)
    found = st.evaluate(
        expression, format=format, semiring=semiring, **{n: array(x, formats[n]) for n, x in given.items()}
    )
    assert found.dtype == str(want.dtype) and found.shape == want.shape
    if found.format.is_dense:
        np.testing.assert_allclose(found.to_dense(), want, rtol=1e-6 if want.dtype == "float32" else 1e-12)
        return found
    at, values = found.coordinates()
    stored_at = np.zeros(want.shape, bool)
    stored_at[tuple(at)] = True
    np.testing.assert_array_equal(stored_at, there)
    np.testing.assert_allclose(values, want[tuple(at)], rtol=1e-6 if want.dtype == "float32" else 1e-12)
    return found


A, B = operand(7, 6, seed=1), operand(6, 5, seed=2)


PAIRS = [(semiring, formats) for semiring in SEMIRINGS for formats in (("csr", "csr"), ("csr", "dense"))]
PAIRS += [("min_plus", formats) for formats in (("dcsr", "csc"), ("coo", "dense"), ("dense", "dense"), ("csc", "csc"))]


@pytest.mark.parametrize("semiring, formats", PAIRS)
def test_products_of_matrices(semiring, formats):
    given, formats = {"A": A, "B": B}, dict(zip("AB", formats))
    found = assert_computed("C[i,k] = A[i,j] * B[j,k]", semiring, given, formats)
    assert found.format.is_dense == ("dense" in formats.values())
    for format in ("dense", "csc"):
        if format == "dense" or "dense" not in formats.values():
            assert_computed("C[i,k] = A[i,j] * B[j,k]", semiring, given, formats, format)


@pytest.mark.exhaustive
@pytest.mark.parametrize("semiring", SEMIRINGS)
@pytest.mark.parametrize("first", [*MATRIX_FORMATS[:9], "dense"], ids=str)
@pytest.mark.parametrize("second", [*MATRIX_FORMATS[:9], "dense"], ids=str)
def test_products_of_matrices_in_every_format(semiring, first, second):
    for format in (None, "dense"):
        assert_computed("C[i,k] = A[i,j] * B[j,k]", semiring, {"A": A, "B": B}, {"A": first, "B": second}, format)


EXPRESSIONS = (
    ("y[i] = A[i,j]", "csr"),
    ("y[j] = A[i,j]", "csr"),
    ("y[i] = A[i,j] * x[j]", "csr"),
    ("y[i] = A[i,j] * x[j]", "bsr(2)"),
    ("y[i,j] = A[i,j] * x[j]", "dia"),
    ("y[i,j] = A[i,j] * x[j]", "ell"),
    ("y[i,j] = A[i,j] + D[i,j]", "csr"),
    ("y[i,j] = A[i,j] * D[i,j]", "dcsr"),
    ("y[i,j] = A[i,j] + D[i,j] * x[j]", "csr"),
    ("y[i] = A[i,j] * x[j] + D[i,j]", "csr"),
    ("y[i,j] = A[i,j] * U[i,l] * V[j,l]", "csr"),
    ("y[i,l] = A[i,j] * V[j,l] * U[i,l]", "csr"),
    ("y[i,k] = A[i,j] * D[i,j] * B[j,k]", "csr"),
    ("y[i,k] = A[i,j] * B[j,k] + A[i,j] * E[j,k]", "csr"),
    ("y[i,l] = T[i,j,k] * V[j,l] * W[k,l]", "csr"),
    ("y[i,j,l] = T[i,j,k] * S[k,l]", "csr"),
    ("y[i,j] = T[i,j,k]", "csr"),
    ("y[k] = T[i,j,k] * A[i,j]", "csr"),
)


CASES = [
    *(("min_plus", *case) for case in EXPRESSIONS),
    ("max_times", "y[i,l] = T[i,j,k] * V[j,l] * W[k,l]", "csr"),
    ("or_and", "y[i,k] = A[i,j] * B[j,k] + A[i,j] * E[j,k]", "csr"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("semiring", SEMIRINGS)
@pytest.mark.parametrize("expression, format", EXPRESSIONS)
def test_expressions_of_every_semiring(semiring, expression, format):
    test_expressions(semiring, expression, format)


@pytest.mark.short(2)
@pytest.mark.parametrize("semiring, expression, format", CASES)
def test_expressions(semiring, expression, format):
    shapes = {"A": (7, 6), "D": (7, 6), "B": (6, 5), "E": (6, 5), "S": (5, 4), "T": (7, 6, 5)}
    dense_shapes = {"x": (6,), "U": (7, 4), "V": (6, 4), "W": (5, 4)}
    names = set(re.findall(r"\b([A-Zx])\[", expression))
    given = {n: operand(*s, seed=ord(n)) for n, s in (shapes | dense_shapes).items() if n in names}
    formats = {n: "dense" if n in dense_shapes else "csf" if n == "T" else format for n in names}
    formats |= dict.fromkeys(names & {"B", "E", "S"}, "csr")
    assert_computed(expression, semiring, given, formats)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "int8", "bool"])
@pytest.mark.parametrize("semiring", ["min_plus", "max_min", "or_and"])
def test_types(dtype, semiring):
    given = {"A": operand(7, 6, seed=1, dtype=dtype), "B": operand(6, 5, seed=2, dtype=dtype)}
    if dtype == "bool" and semiring != "or_and":
        given = {n: (x.astype("int64"), t) for n, (x, t) in given.items()}
    for formats in (("csr", "csr"), ("csr", "dense")):
        for format in (None, "dense"):
            assert_computed("C[i,k] = A[i,j] * B[j,k]", semiring, given, dict(zip("AB", formats)), format)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats_of_pytorch(dtype):
    x, y = (torch.tensor(each).to(getattr(torch, dtype)) for each in (dense(4, 3), dense(3, 5)))
    want = (x.float()[:, :, None] + y.float()[None]).amin(1).to(x.dtype)
    assert torch.equal(st.einsum("ij,jk->ik", st.array(x, "csr"), y, semiring="min_plus").to_torch(), want)


@pytest.mark.parametrize("columns", [40, 300_000])
def test_long_and_short_rows_of_a_workspace(columns):
    """Rows that are ranked, hashed and looked up in sets, against a loop over dictionaries."""
    rng = np.random.default_rng(0)
    a = scipy.sparse.random_array((30, 60), density=0.3, rng=rng, format="csr")
    b = scipy.sparse.random_array((60, columns), density=min(0.3, 12000 / columns / 60), rng=rng, format="csr")
    b.data -= 0.5
    found = st.einsum("ij,jk->ik", st.array(a), st.array(b), semiring="min_plus").to_scipy()
    for row in range(30):
        want: dict[int, float] = {}
        for j, x in zip(*(each[a.indptr[row] : a.indptr[row + 1]] for each in (a.indices, a.data))):
            for k, y in zip(*(each[b.indptr[j] : b.indptr[j + 1]] for each in (b.indices, b.data))):
                want[k] = min(want.get(k, np.inf), x + y)
        mine = slice(found.indptr[row], found.indptr[row + 1])
        assert found.indices[mine].tolist() == sorted(want)
        np.testing.assert_array_equal(found.data[mine], [want[k] for k in sorted(want)])


def test_shortest_paths():
    graph = scipy.sparse.random_array((20, 20), density=0.15, rng=np.random.default_rng(1), format="csr")
    step = st.evaluate("D[i,j] = A[i,j] + I[i,j]", A=graph, I=zero_diagonal(20), semiring="min_plus")
    for _ in range(5):
        step = st.einsum("ij,jk->ik", step, step, semiring="min_plus")
    found = st.einsum("ij,jk->ik", step, step, semiring="min_plus", format="dense").to_dense()
    np.testing.assert_allclose(found, csgraph.shortest_path(graph))


def zero_diagonal(n: int) -> st.Array:
    return st.array((np.stack([np.arange(n)] * 2), np.zeros(n)), "csr", shape=(n, n))


def test_reachability_stays_bool():
    graph = st.array(sparse(9, 9, density=0.2) != 0, "csr")
    found = st.einsum("ij,jk->ik", graph, graph, semiring="or_and")
    assert found.dtype == "bool" and found.format == st.csr and found.values.all()
    x = graph.to_dense()
    np.testing.assert_array_equal(found.to_dense(), x @ x)
    counted = st.einsum("ij,jk->ik", graph.to(dtype="float32"), graph, semiring="or_and")
    np.testing.assert_array_equal(counted.to_dense(), x @ x)


def test_infinities_and_nan():
    x = np.array([[np.inf, 1.0, 0.0], [-np.inf, np.nan, 0.0], [0.0, 0.0, 0.0], [np.nan, 2.0, np.inf]])
    y = np.array([[1.0, 0.0], [np.nan, 2.0], [-np.inf, 0.0]])
    for semiring in SEMIRINGS[:-1]:
        for formats in (("csr", "csr"), ("csr", "dense")):
            given = {"A": (x, x != 0), "B": (y, y != 0)}
            with np.errstate(invalid="ignore"):
                assert_computed("C[i,k] = A[i,j] * B[j,k]", semiring, given, dict(zip("AB", formats)))


@pytest.mark.parametrize("shapes", [((0, 3), (3, 4)), ((3, 0), (0, 4)), ((3, 4), (4, 0)), ((1, 1), (1, 1))])
@pytest.mark.parametrize("formats", [("csr", "csr"), ("csr", "dense"), ("dcsr", "coo")])
def test_extents_of_none_and_of_one(shapes, formats):
    given = {n: (np.ones(shape), np.ones(shape, bool)) for n, shape in zip("AB", shapes)}
    for format in (None, "dense"):
        assert_computed("C[i,k] = A[i,j] * B[j,k]", "max_plus", given, dict(zip("AB", formats)), format)


def test_results_keep_zeros_and_drop_what_is_absent():
    """Also where the result is computed as an ordinary array first, and out of formats that end in a dense level."""
    given = {"A": operand(7, 6, seed=4), "x": operand(5, 4, seed=5)}
    a = array(given["A"], "dcsr")
    found = st.evaluate("y[i,k] = A[i,j] * B[j,k]", A=a, B=np.zeros((6, 5)), semiring="min_plus", format="dcsr")
    rows = given["A"][1].any(1)
    assert found.nnz == rows.sum() * 5
    dense_level = st.array(([[0, 2], [1, 1]], [3.0, 4.0]), ("compressed", "dense"), shape=(3, 2))
    found = st.einsum("ij,jk->ik", dense_level, np.zeros((2, 1)), semiring="max_plus")
    assert found.to_dense().tolist() == [[3.0], [-np.inf], [4.0]]


def test_kernels():
    a, b = array(A, "csr"), array(B, "csr")
    for semiring in ("min_plus", "or_and", "plus_times"):
        kernel = st.compile("C[i,k] = A[i,j] * B[j,k]", A=a, B=b, semiring=semiring)
        want = st.evaluate("C[i,k] = A[i,j] * B[j,k]", A=a, B=b, semiring=semiring)
        np.testing.assert_array_equal(kernel(A=a, B=b).to_dense(), want.to_dense())
        assert (f"({semiring})" in repr(kernel)) == (semiring != "plus_times")


@pytest.mark.parametrize(
    "make, error, words",
    [
        (
            lambda a: st.einsum("ij,jk->ik", a, a, semiring="min_plus_"),
            ValueError,
            "'min_plus_' is not one of 'plus_times'",
        ),
        (lambda a: st.evaluate("y[i,j] = A[i,j]", A=a, semiring=None), ValueError, "semiring None is not one of"),
        (lambda a: st.evaluate("y[i] = 2 * A[i,j]", A=a, semiring="min_plus"), st.NotationError, "not the number 2"),
        (lambda a: st.evaluate("y[i] = exp(A[i,j])", A=a, semiring="or_and"), st.NotationError, "not exp; compute it"),
        (lambda a: st.evaluate("y[i] = A[i,j] - A[i,j]", A=a, semiring="max_min"), st.NotationError, "alone, not '-'"),
        (lambda a: st.evaluate("y[i] = A[i,j] * semiring", A=a), TypeError, "the name 'semiring', which is that of an"),
    ],
)
def test_what_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make(array(A, "csr"))


def test_gradients_are_refused():
    values = torch.ones(2, requires_grad=True)
    a = st.array(([[0, 1], [1, 0]], values), "csr")
    with pytest.raises(
        NotImplementedError, match="no gradients under the semiring min_plus; give operands whose values"
    ):
        st.einsum("ij,jk->ik", a, a, semiring="min_plus")
    with torch.no_grad():
        assert st.einsum("ij,jk->ik", a, a, semiring="min_plus").nnz == 2
