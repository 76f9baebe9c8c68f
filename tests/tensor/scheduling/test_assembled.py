"""Statements whose result is put together: loops over parts of rows, of columns and of what is summed."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse

from gnn_sparse_backend import tensor as st
from tests.tensor.scheduling.checks import ascends, interpreted

L, R = (np.where(np.random.default_rng(n).random((9, 9)) < 0.4, n + 1.0, 0) for n in range(2))
PRODUCT = "C[i,j] = A[i,k] * B[k,j]"
SUM = "C[i,j] = A[i,j] + 2 * B[i,j]"
BOTH = "C[i,j] = A[i,j] * B[i,j]"
EXPECTED = {
    PRODUCT: (scipy.sparse.csr_array(L) @ scipy.sparse.csr_array(R)).toarray(),
    SUM: (scipy.sparse.csr_array(L) + 2 * scipy.sparse.csr_array(R)).toarray(),
    BOTH: scipy.sparse.csr_array(L).multiply(scipy.sparse.csr_array(R)).toarray(),
}


def sparse_result(expression: str, format: str = "csr") -> tuple[st.Statement, dict[str, st.Array]]:
    given = {"A": st.array(L, format), "B": st.array(R, format)}
    return st.statement(expression, format="csr", **given), given


def agree(made, given, expression, *, compiled=False):
    """The values are those of SciPy, in order, and what is stored is what it stores."""
    kernel = made.kernel() if compiled else interpreted(made)
    np.testing.assert_array_equal(kernel.run(given).to_dense(), EXPECTED[expression])
    found = kernel.computed(given)
    assert ascends(found)
    assert found.structure.positions == (EXPECTED[expression] != 0).sum()


def test_a_sparse_product_row_by_row():
    made, given = sparse_result(PRODUCT)
    made = made.precompute("A[i,k] * B[k,j]", "j", "jp", "row").parallelize("i", "threads")
    assert "\n".join(str(made).splitlines()[2:8]) == (
        "for i  # threads\n    row[...] = 0\n    for k\n"
        "        for jp\n            row[jp] += A[i,k] * B[k,j]\n    for j"
    )
    kernel = st.compile(made)
    np.testing.assert_array_equal(kernel(**given).to_dense(), L @ R)
    assert kernel.format == st.csr and "parallel" in kernel.stages("stage3")


@pytest.mark.parametrize("workspace", [False, True])
def test_a_sparse_sum(workspace):
    """Of the union of the coordinates of both, walked together or added in a workspace."""
    made, given = sparse_result(SUM)
    if workspace:
        made = made.precompute("2 * B[i,j] + A[i,j]", "j", "jp", "w")
    assert ("w[jp] += A[i,j] + 2 * B[i,j]" in str(made)) == workspace
    agree(made, given, SUM)


ALL = "A[i,k] * B[k,j]"
SCHEDULES = {
    "parts of the rows": (SUM, lambda s: s.split("i", "a", "b", 4).parallelize("a", "threads")),
    "parts of the columns": (SUM, lambda s: s.split("j", "a", "b", 4)),
    "parts of parts": (SUM, lambda s: s.divide("j", "a", "b", 2).split("b", "c", "d", 2)),
    "columns out of order": (SUM, lambda s: s.split("j", "a", "b", 4).reorder("b", "a")),
    "rows out of order": (SUM, lambda s: s.split("i", "a", "b", 4).reorder("b", "a")),
    "an extent": (SUM, lambda s: s.bound("j", "b", 9).split("b", "c", "d", 4)),
    "positions": (BOTH, lambda s: s.pos("j", "p", "A[i,j]").split("p", "a", "b", 2)),
    "positions and back": (BOTH, lambda s: s.pos("j", "p", "B[i,j]").coord("p", "c").split("c", "a", "b", 4)),
    "rows of a product": (PRODUCT, lambda s: s.split("i", "a", "b", 4).parallelize("a", "threads")),
    "its sum in parts": (PRODUCT, lambda s: s.split("k", "a", "b", 4)),
    "its sum by positions": (PRODUCT, lambda s: s.pos("k", "p", "A[i,k]").split("p", "a", "b", 2)),
    "parts of both in any order": (
        PRODUCT,
        lambda s: s.pos("k", "p", "A[i,k]").split("p", "a", "b", 2).reorder("b", "a").split("j", "c", "d", 4),
    ),
    "one loop for the sum and columns": (PRODUCT, lambda s: s.fuse("k", "j", "f")),
    "parts of that one": (PRODUCT, lambda s: s.fuse("k", "j", "f").split("f", "a", "b", 4)),
    "parts in a workspace": (
        PRODUCT,
        lambda s: s.precompute(ALL, "j", "q", "w").split("q", "a", "b", 4).divide("i", "c", "d", 2),
    ),
}


@pytest.mark.short(2)
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("format", ["csr", "dcsr"])
def test_schedules(name, format):
    expression, commands = SCHEDULES[name]
    made, given = sparse_result(expression, format)
    agree(commands(made), given, expression, compiled=(name, format) == ("parts of the columns", "csr"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_all_of_them_compiled(name):
    expression, commands = SCHEDULES[name]
    made, given = sparse_result(expression)
    agree(commands(made), given, expression, compiled=True)


def test_a_part_is_written_out():
    made, given = sparse_result(PRODUCT)
    made = made.pos("k", "p", "A[i,k]").split("p", "a", "b", 2).unroll("b")
    agree(made, given, PRODUCT, compiled=True)
    walks = 2  # elements are counted in a table, or by marks
    assert made.kernel().plan.own.kernel.stages("stage3").count("T.unroll") == walks


def test_a_part_of_the_rows_on_each_thread():
    made, given = sparse_result(PRODUCT)
    made = made.divide("i", "a", "b", 3).parallelize("a", "threads")
    assert "\n".join(str(made).splitlines()[2:9]) == (
        "for a  # threads\n    for b\n        w[...] = 0\n        for k\n"
        "            for j\n                w[j] += A[i,k] * B[k,j]\n        for j"
    )
    agree(made, given, PRODUCT, compiled=True)


def test_columns_in_parts_are_walked_together():
    """Operands are bisected for where a part begins, and walked from there: not each coordinate is tried."""
    made, _ = sparse_result(SUM)
    text = made.split("j", "a", "b", 4).program.script()
    part = "bounds=((X_j, a * 4, minimum(a * 4 + 4, number(n_j)), 'coordinate', 4),)"
    assert f"with p.iterate('over_b', (X_j,), 'S', ('j',), merged=(W0_1, W1_1), {part})" in text


def test_extents_that_are_not_true_are_caught():
    made, given = sparse_result(SUM)
    with pytest.raises(ValueError, match=r"b = bound\(j, 8, 'exact'\): j has 9 values here"):
        interpreted(made.bound("j", "b", 8)).run(given)


def test_a_tensor_whose_rows_are_of_two_indices():
    t = np.where(np.random.default_rng(3).random((4, 3, 5)) < 0.4, 2.0, 0)
    given = {"T": st.array(t, "csf"), "U": st.array(2 * t[::-1], "csf")}
    made = st.statement("Y[i,j,k] = T[i,j,k] + U[i,j,k]", format="csf", **given)
    for statement in (made, made.fuse("i", "j", "f").split("f", "a", "b", 5), made.split("i", "a", "b", 3)):
        np.testing.assert_array_equal(interpreted(statement).run(given).to_dense(), t + 2 * t[::-1])


@pytest.mark.parametrize("formats", [("csr", "csr"), ("csr", "dcsr"), ("dcsr", "csr")])
def test_positions_of_two_operands(formats):
    given = {"A": st.array(L, formats[0]), "B": st.array(R, formats[1]), "x": st.array(np.arange(9.0))}
    made = st.statement("C[i,j] = A[i,j] * B[i,k] * x[k]", format="csr", **given)
    for statement in (made, made.split("i", "a", "b", 4).reorder("b", "a")):
        statement = statement.pos("j", "p", "A[i,j]").pos("k", "q", "B[i,k]").split("q", "c", "d", 2)
        found = interpreted(statement).run(given).to_dense()
        np.testing.assert_array_equal(found, L * (R @ np.arange(9.0))[:, None])


REFUSED = {
    "fuse(i, k, f): rows of C[i,j] are not complete one after another under f; keep loops over i alone": (
        lambda s: s.fuse("i", "k", "f")
    ),
    "reorder(k, i): rows of C[i,j] are not complete one after another under k": lambda s: s.reorder("k", "i"),
    "reorder(a, i, b): rows of C[i,j] are not complete one after another under a": (
        lambda s: s.split("k", "a", "b", 3).reorder("a", "i", "b")
    ),
    "reorder(j, k): B[k,j] is stored by k, j, in this order; convert it, or keep the loops": (
        lambda s: s.reorder("j", "k")
    ),
    "parallelize(k, 'threads', 'none'): of a result that is put together, the outermost loop runs on threads": (
        lambda s: s.parallelize("k", "threads")
    ),
    "parallelize(i, 'block', 'none'): of a result that is put together": lambda s: s.parallelize("i", "block"),
    "precompute('A[i,k]', j, q, w): all that is summed goes to the workspace: A[i,k] * B[k,j]": (
        lambda s: s.precompute("A[i,k]", "j", "q", "w")
    ),
    "a workspace has a row of the result, an element for each value of j; cut it up afterwards": (
        lambda s: s.precompute(ALL, "k", "q", "w")
    ),
    "precompute('A[i,k] * B[k,j]', q, r, v): a row is summed in w already; there is one workspace": (
        lambda s: s.precompute(ALL, "j", "q", "w").precompute(ALL, "q", "r", "v")
    ),
    "unroll(j): what operands store is walked along j or around it, element by element; take pos(...) of an index": (
        lambda s: s.unroll("j")
    ),
    "unroll(p): unrolled want a number of elements that is known at compile time; split the loop": (
        lambda s: s.pos("k", "p", "A[i,k]").unroll("p")
    ),
    "pos(i, p, A[i,k]): A stores i densely": lambda s: s.pos("i", "p", "A[i,k]"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_of_a_product(reason):
    made, _ = sparse_result(PRODUCT)
    with pytest.raises(st.ScheduleError, match=re.escape(reason)):
        REFUSED[reason](made)


def test_what_is_refused_of_a_sum():
    made, given = sparse_result(SUM)
    with pytest.raises(st.ScheduleError, match=re.escape("2 * B[i,j] is added too, and not multiplied by A[i,j]")):
        made.pos("j", "p", "A[i,j]")
    given = {**given, "D": given["A"], "E": given["A"]}
    mixed = st.statement("C[i,j] = A[i,j] + B[i,k] * D[k,l] * E[l,j]", format="csr", **given)
    with pytest.raises(st.ScheduleError, match=re.escape("A[i,j] has no l, of which f is made; fuse others")):
        mixed.fuse("l", "j", "f")
    several = st.statement("C[i,j] = A[i,j] * D[k,l]", format="csr", A=given["A"], D=given["D"]).fuse("k", "l", "f")
    with pytest.raises(st.ScheduleError, match=r"pos\(f, p, D\[k,l\]\): elements .* along k and l are in two"):
        several.pos("f", "p", "D[k,l]")


def test_positions_above_that_are_not_known():
    given = {"T": st.array(np.ones((3, 3, 3)), "csf"), "A": st.array(L[:3, :3], "csr")}
    made = st.statement("C[i,j] = A[i,j] * T[i,k,l]", format="csr", **given)
    made = made.pos("l", "p", "T[i,k,l]")
    with pytest.raises(st.ScheduleError, match="is stored by i, k, l, in this order"):
        made.reorder("p", "k")
