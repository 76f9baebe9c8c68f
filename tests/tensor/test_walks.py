"""Expressions of several sparse operands: against NumPy, in every pair of formats, with results of every kind."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st_

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.compiler.language.program import walk_iterations
from gnn_sparse_backend.compiler.lowering.lattice import merge_lattices
from gnn_sparse_backend.tensor.expressions.execution import Counted, Once
from tests.covering import covering
from tests.tensor.random_tensors import dense, sparse

WALKED = ("csr", "csc", "dcsr", "coo", "bsr(2)", "ell")
A, B, C, K = sparse(7, 9), sparse(7, 9, seed=1), sparse(7, 9, seed=2), sparse(9, 5)
V, W, T, U = sparse(9), sparse(7), sparse(4, 5, 6), sparse(4, 5, 6, seed=1)
X = dense(9, 3)


def agree(found, wanted) -> None:
    np.testing.assert_allclose(found.to_dense(), wanted, rtol=1e-12, atol=1e-12)
    level = found.structure.levels[-1] if found.structure.levels else None
    if level is not None and level.kind == "compressed":  # each row ascends
        for first, end in itertools.pairwise(level.offsets):
            assert (np.diff(level.indices[first:end]) > 0).all()


@pytest.mark.parametrize("one, other", covering({"one": list(WALKED), "other": list(WALKED)}))
def test_every_pair_of_formats(one, other):
    a, b, k = st.array(A, one), st.array(B, other), st.array(K, other)
    agree(st.evaluate("R[i,j] = A[i,j] * B[i,j]", A=a, B=b), A * B)
    agree(st.evaluate("R[i,j] = A[i,j] + B[i,j]", A=a, B=b), A + B)
    agree(st.evaluate("R[i,k] = A[i,j] * K[j,k]", A=a, K=k), A @ K)


EXPRESSIONS = {
    "R[i,j] = A[i,j] - B[i,j] * C[i,j]": (A - B * C, "csr"),
    "R[i,j] = A[i,j] + B[i,j] + 2 * C[i,j]": (A + B + 2 * C, "csr"),
    "R[i,j] = relu(A[i,j] - B[i,j])": (np.maximum(A - B, 0), "csr"),
    "R[i,k] = A[i,j] * K[j,k] + A[i,j] * B[i,j] * K[j,k]": (A @ K + (A * B) @ K, "csr"),
    "R[j] = A[i,j] * w[i]": (A.T @ W, None),
    "R[i] = A[i,j] * v[j]": (A @ V, None),
    "r = A[i,j] * B[i,j]": ((A * B).sum(), None),
    "R[i,f] = A[i,j] * B[i,j] * X[j,f]": ((A * B) @ X, None),
    "R[i,f] = A[i,j] * B[i,j] * X[j,f] ": ((A * B) @ X, "csr"),
    "R[i,j] = A[i,k] * A[j,k]": (A @ A.T, "csr"),
    "R[i,j] = A[k,i] * A[k,j]": (A.T @ A, "csr"),
    "R[i,j] = A[i,j] + w[i]": (A + W[:, None], "csr"),
    "R[i,j,k] = T[i,j,k] * U[i,j,k]": (T * U, None),
    "R[i,j,k] = T[i,j,k] + U[i,j,k]": (T + U, "csf"),
    "R[i,j] = T[i,j,k] * U[i,j,k]": ((T * U).sum(2), "csr"),
    "R[k,i] = T[i,j,k] * U[i,j,k]": ((T * U).sum(1).T, "csc"),
    "r = T[i,j,k] * U[i,j,k]": ((T * U).sum(), None),
}


@pytest.mark.short(2 * len(EXPRESSIONS))
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("format", [None, "own"])
def test_expressions(expression, format):
    wanted, sparse_format = EXPRESSIONS[expression]
    if format and sparse_format is None:
        pytest.skip("its result has no sparse format but its own")
    held = dict(A=A, B=B, C=C, K=K, v=V, w=W, T=T, U=U)
    names = [name for name in held if f"{name}[" in expression]
    operands = {name: st.array(held[name], "csf" if held[name].ndim != 2 else "csr") for name in names}
    operands |= {"X": X} if "X[" in expression else {}
    found = st.evaluate(expression, format=sparse_format if format else None, **operands)
    agree(found, wanted)
    if format:
        assert str(found.format) == sparse_format


@pytest.mark.parametrize("shape, format", [((7, 9), "csr"), ((4, 5, 3), "csf")])
@pytest.mark.parametrize(
    "right, scheduled", [("{0}", False), ("{0}", True), ("relu({0})", False), ("B[{1}] * abs({0})", False)]
)
@pytest.mark.slow
def test_sums_of_many_are_programs_of_linear_size(right, scheduled, shape, format):
    """Wherever the sum stands: no set of addends has code of its own."""

    def sum_of(count: int) -> int:
        addends = {f"A{n}": sparse(*shape, seed=n, density=0.2) for n in range(count)}
        operands = {name: st.array(addend, format) for name, addend in addends.items()}
        index = ",".join("ijk"[: len(shape)])
        expression = f"R[{index}] = " + right.format(" + ".join(f"{name}[{index}]" for name in addends), index)
        wanted = sum(addends.values())
        if "relu" in right:
            wanted = np.maximum(wanted, 0)
        if "B" in right:
            factor = sparse(*shape, seed=99)
            operands["B"], wanted = st.array(factor, format), factor * abs(wanted)
        kernel = st.compile(st.statement(expression, **operands)) if scheduled else st.compile(expression, **operands)
        agree(kernel(**operands), wanted)
        program = merge_lattices(kernel.program)
        return sum(len(it.body) + len(it.points) for it in walk_iterations(program.iterations))

    four, twelve = sum_of(4), sum_of(12)
    assert twelve <= 3 * four


def test_a_sum_of_many_has_gradients():
    addends = [torch.tensor(sparse(6, 5, seed=n), requires_grad=True) for n in range(6)]
    arrays = [st.array(addend, "csr") for addend in addends]
    weights = dense(6, 5)
    expression = "R[i,j] = " + " + ".join(f"A{n}[i,j] * A{n}[i,j]" for n in range(6))
    found = st.evaluate(expression, **{f"A{n}": each for n, each in enumerate(arrays)})
    (found.to_torch() * torch.from_numpy(weights)).sum().backward()
    for addend in addends:
        np.testing.assert_allclose(addend.grad, 2 * addend.detach().numpy() * weights, rtol=1e-12)


def test_three_sparse_factors_and_a_mask():
    c, d = sparse(5, 3), sparse(6, 3)
    found = st.einsum("ikl,kj,lj->ij", st.array(T, "csf"), st.array(c, "csr"), st.array(d, "csr"))
    agree(found, np.einsum("ikl,kj,lj->ij", T, c, d))
    x, y = sparse(7, 4), sparse(4, 9)
    operands = {"A": st.array(A, "csr"), "X": st.array(x, "csr"), "Y": st.array(y, "csr")}
    agree(st.evaluate("R[i,j] = A[i,j] * X[i,k] * Y[k,j]", **operands), A * (x @ y))


@pytest.mark.parametrize(
    "dtype, index_dtype",
    covering({"dtype": ["float32", "float64", "float16", "int64", "int32", "int8"], "index_dtype": ["int32", "int64"]}),
)
def test_types(dtype, index_dtype):
    a, b, k = (np.rint(4 * x).astype(dtype) for x in (A, B, K))
    first, second, third = (st.array(x, "csr", index_dtype=index_dtype) for x in (a, b, k))
    for found, wanted in ((first + second, a + b), (first * second, a * b), (first @ third, a @ k)):
        assert found.dtype == dtype and found.index_dtype == index_dtype
        np.testing.assert_array_equal(found.to_dense(), wanted)


@pytest.mark.parametrize("shape", [(0, 9), (7, 0), (0, 0), (1, 1)])
def test_empty_shapes_and_operands(shape):
    nothing = np.zeros(shape)
    a = st.array(nothing, "csr")
    agree(a + a.to("dcsr"), nothing)
    agree(a * st.array(np.ones(shape), "csr"), nothing)
    agree(a @ st.array(np.ones(shape[::-1]), "csr"), nothing @ np.ones(shape[::-1]))


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("shared_part", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_results_that_are_written_in_one_walk(threads, kind, shared_part, rows):
    """Threads fill rooms of their own from the beginning, and what they leave free is closed: in place or not."""
    rng = np.random.default_rng([rows, int(10 * shared_part)])
    a = np.rint(9 * rng.standard_normal((rows, 30))) * (rng.random((rows, 30)) < 0.3)
    b = np.where(rng.random(a.shape) < shared_part, 2 * a, (a == 0) * (rng.random(a.shape) < 0.2))
    a[rows // 2 :: 3] = 0
    wanted = {"A[i,j] + B[i,j]": a + b, "A[i,j] * B[i,j]": a * b, "A[i,j] + A[i,j] * B[i,j]": a + a * b}
    operands = {
        name: st.array(x if kind == "numpy" else torch.from_numpy(x).to_sparse_csr(), "csr")
        for name, x in (("A", a), ("B", b))
    }
    for expression, want in wanted.items():
        kernel = st.compile(f"R[i,j] = {expression}", **operands, format="csr")
        assert isinstance(kernel.plan.own, Once)
        found = kernel(**operands)
        assert isinstance(found.values, torch.Tensor if kind == "torch" else np.ndarray)
        as_scipy = found.to_scipy()
        as_scipy.check_format(full_check=True)
        assert as_scipy.has_sorted_indices and as_scipy.nnz == len(found.values)
        np.testing.assert_array_equal(found.to_dense(), want)


def test_rows_are_counted_first_where_no_operand_says_how_long_they_are():
    a, b, k = st.array(A, "csr"), st.array(B, "dcsr"), st.array(K, "csr")
    assert isinstance(st.compile("R[i,k] = A[i,j] * K[j,k]", A=a, K=k).plan.own, Counted)
    assert isinstance(st.compile("R[i,j] = A[i,j] + B[i,j]", A=a, B=b, format="csr").plan.own, Counted)


def test_long_rows_and_short_ones():
    """Rows of a product on both sides of the length up to which elements are ranked."""
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (40, 30)) * (rng.random((40, 30)) < np.linspace(0, 1, 40)[:, None])
    b = rng.integers(-3, 4, (30, 40_000)) * (rng.random((30, 40_000)) < 0.0005)
    found = st.array(a, "csr") @ st.array(b, "csr")
    lengths = np.diff(found.structure.levels[1].offsets)
    assert lengths.min() == 0 and (lengths > 300).any() and ((0 < lengths) & (lengths < 20)).any()
    agree(found, a @ b)


def test_infinities_meet_only_what_is_stored():
    a, b = A.copy(), B.copy()
    a[0, :], b[0, 4] = 0, np.inf
    a[1, 2], b[1, 2] = np.nan, 1.0
    found = (st.array(a, "csr") * st.array(b, "csr")).to_dense()
    assert found[0].tolist() == [0] * 9 and np.isnan(found[1, 2]) and np.isfinite(np.delete(found, 11)).all()


def test_a_kernel_is_kept_and_shows_its_program():
    kernel = st.compile("R[i,k] = A[i,j] * K[j,k]", A=st.array(A, "csr"), K=st.array(K, "csr"))
    assert "merged=" in kernel.stages("program") and kernel.format == st.csr
    count, fill = kernel.stages("program").split("# Stage I,")[1:]
    assert "ProgramBuilder('count')" in count and "ProgramBuilder('fill')" in fill
    assert kernel.stages().count("# Stage III") == 2
    for seed in range(3):
        a, k = sparse(11, 8, seed=seed), sparse(8, 6, seed=seed)
        agree(kernel(A=st.array(a, "csr"), K=st.array(k, "csr")), a @ k)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    shape=st_.tuples(st_.integers(0, 9), st_.integers(0, 9), st_.integers(0, 9)),
    density=st_.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st_.integers(0, 100),
)
def test_drawn_matrices(shape, density, seed):
    m, n, k = shape
    a, b, c = (sparse(*s, seed=seed + at, density=density) for at, s in enumerate([(m, n), (m, n), (n, k)]))
    first, second, third = (st.array(x, "csr") for x in (a, b, c))
    for found, wanted in ((first + second, a + b), (first * second, a * b), (first @ third, a @ c)):
        agree(found, wanted)


@pytest.mark.slow
def test_deep_nests_are_no_longer_than_they_have_levels():
    """Offsets follow from where a walk is, and listed rows are searched once: levels add as much text each."""
    extents = (2, 3, 2, 3, 2, 4)
    x, y = sparse(*extents, density=0.6), sparse(*extents, seed=1, density=0.6)
    a, b = st.array(x, "csf"), st.array(y, "csf")
    found = st.einsum("abcdef,abcdef->af", a, b)
    np.testing.assert_allclose(found.to_dense(), np.einsum("abcdef,abcdef->af", x, y), atol=1e-12)
    sizes = []
    for count in (4, 5, 6):
        modes = ",".join("abcdef"[:count])
        given = [st.array(each.reshape(*extents[: count - 1], -1), "csf") for each in (x, y)]
        kernel = st.compile(f"R[a,{modes[-1]}] = A[{modes}] * B[{modes}]", A=given[0], B=given[1])
        text = kernel.stages("stage3")
        assert text.count('T.sblock("find_W0_0') == 5  # of the five walks
        sizes.append(len(text))
    assert sizes[2] - sizes[1] < 1.5 * (sizes[1] - sizes[0]), sizes
