"""Scheduled statements: what their loops become, the values that come out, and what is refused in which words."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.tensor.evaluation import arrays_of
from tests.tensor.random_tensors import dense, sparse
from tests.tensor.scheduling.checks import Stage

A, X = sparse(23, 17, density=0.3), dense(17)
A[5:9] = 0
B = dense(17, 8)


@pytest.fixture(scope="module")
def spmv():
    return st.statement("y[i] = A[i,j] * x[j]", A=st.array(A, "csr"), x=X)


@pytest.fixture(scope="module")
def spmm():
    return st.statement("C[i,j] = A[i,k] * B[k,j]", A=st.array(A, "csr"), B=B)


def agree(statement, wanted, *, compiled=False, **operands):
    """Its program is interpreted, and compiled where that is asked for."""
    arrays = arrays_of(statement.source.notation, operands)
    found = statement._of(Stage(statement)).run(arrays)
    np.testing.assert_allclose(found.to_dense(), wanted, rtol=1e-12, atol=1e-12)
    if not compiled:
        return
    found = st.compile(statement)(**operands)
    np.testing.assert_allclose(found.to_dense(), wanted, rtol=1e-12, atol=1e-12)


def balanced(statement):
    return statement.fuse("i", "j", "f").pos("f", "p", "A[i,j]").split("p", "p0", "p1", 8)


@pytest.mark.parametrize("race", ["atomics", "temporary"])
def test_equal_parts_of_the_elements_on_threads(spmv, race):
    made = balanced(spmv).parallelize("p0", "threads", race)
    assert (
        str(made)
        == f"""\
y[i] = A[i,j] * x[j]

for p0  # threads, {race}
    for p1
        y[i] += A[i,j] * x[j]

variables:
    i: 0 <= i < |i|
    j: 0 <= j < |j|
    f = fuse(i, j): 0 <= f < |i| * |j|
    p = pos(f, A[i,j]): 0 <= p < #A[i,j]; i by a search for the first element of a part, and then followed
    p0, p1 = split(p, 8): 0 <= p0 < ceil(#A[i,j] / 8), 0 <= p1 < 8"""
    )
    agree(made, A @ X, A=st.array(A, "csr"), x=X, compiled=True)
    # a row is searched for at both ends of a part, and no more: the searches stand outside of the loop over rows
    text = made.program.script()
    begin, loop = text.index("owner_of"), text.index("bounds=((X_i, At[0]")
    assert text.count("owner_of") == 2 and begin < text.rindex("owner_of") < loop


def test_a_statement_stays_as_it_is(spmv):
    before = str(spmv)
    after = spmv.split("i", "i0", "i1", 4)
    assert str(spmv) == before and after.commands == ("split(i, i0, i1, 4)",) and not spmv.commands


SCHEDULES = {
    "rows": lambda s: s.split("i", "i0", "i1", 4).parallelize("i0", "threads"),
    "lanes": lambda s: (
        s.pos("j", "p", "A[i,j]")
        .split("p", "p0", "p1", 4)
        .parallelize("p1", "lanes", "parallel_reduction")
        .parallelize("i", "threads")
    ),
    "tiles of columns": lambda s: s.split("j", "j0", "j1", 5).reorder("j0", "i", "j1"),
    "inner before outer": lambda s: s.split("i", "i0", "i1", 4).reorder("i1", "i0").parallelize("i1", "threads"),
    "unrolled": lambda s: s.pos("j", "p", "A[i,j]").split("p", "p0", "p1", 3).unroll("p1"),
    "there and back": lambda s: s.pos("j", "p", "A[i,j]").coord("p", "c").split("c", "c0", "c1", 4),
    "columns first": lambda s: s.reorder("j", "i"),
    "a product": lambda s: s.precompute("A[i,j] * x[j]", "j", "jp", "w"),
    "search for each": lambda s: s.fuse("i", "j", "f").pos("f", "p", "A[i,j]").parallelize("p", "threads", "atomics"),
    "parts in a workspace": lambda s: (
        balanced(s).precompute("A[i,j] * x[j]", "p1", "q", "w").parallelize("p0", "threads", "atomics")
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_of_a_matrix_and_a_vector(spmv, name):
    agree(SCHEDULES[name](spmv), A @ X, A=st.array(A, "csr"), x=X, compiled=name == "lanes")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_all_of_them_compiled(spmv, name):
    agree(SCHEDULES[name](spmv), A @ X, A=st.array(A, "csr"), x=X, compiled=True)


def test_a_row_of_a_product_in_a_workspace(spmm):
    made = spmm.reorder("i", "k", "j").precompute("A[i,k] * B[k,j]", "j", "jp", "w").bound("jp", "jb", 8)
    made = made.parallelize("jb", "lanes").parallelize("i", "threads")
    assert "\n".join(str(made).splitlines()[2:8]) == (
        "for i  # threads\n    w[...] = 0\n    for k\n        for jb  # lanes\n"
        "            w[jp] += A[i,k] * B[k,j]\n    for j"
    )
    agree(made, A @ B, A=st.array(A, "csr"), B=B, compiled=True)


def test_positions_of_a_first_level_that_is_compressed():
    """They are those of all its elements: no loop is around."""
    t = st.array(A, "dcsr")
    made = st.statement("y[i] = A[i,j] * x[j]", A=t, x=X).pos("i", "p", "A[i,j]").split("p", "p0", "p1", 4)
    for statement in (made, made.parallelize("p0", "threads")):
        agree(statement, A @ X, A=t, x=X, compiled=statement is not made)


def test_a_workspace_that_is_filled_from_another_one(spmv):
    made = spmv.precompute("A[i,j] * x[j]", "j", "jp", "w").precompute("x[j]", "jp", "jx", "v")
    agree(made, A @ X, A=st.array(A, "csr"), x=X)


def test_one_sum_on_all_threads():
    made = st.statement("a = x[i] * z[i]", x=X, z=X + 1).divide("i", "i0", "i1", 3)
    made = made.parallelize("i0", "threads", "parallel_reduction")
    agree(made, X @ (X + 1), x=X, z=X + 1)


def test_a_result_at_the_elements_of_an_operand():
    u, v, a = dense(23, 6), dense(17, 6, seed=2), st.array(A, "csr")
    made = st.statement("S[i,j] = A[i,j] * U[i,k] * V[j,k]", A=a, U=u, V=v)
    made = made.fuse("i", "j", "f").pos("f", "p", "A[i,j]").split("p", "p0", "p1", 16).parallelize("p0", "threads")
    agree(made, A * (u @ v.T), A=a, U=u, V=v)
    assert made.kernel().format == a.format


def test_a_gpu_checked_one_element_after_the_other(spmv):
    made = balanced(spmv).parallelize("p0", "block", "atomics").parallelize("p1", "thread", "atomics")
    found = made.kernel(serial=True).run({"A": st.array(A, "csr"), "x": st.array(X)})
    np.testing.assert_allclose(found.to_dense(), A @ X)
    source = made.cuda("sm_80")
    assert "blockIdx.x" in source and "threadIdx.x" in source and "atomic" in source
    with pytest.raises(st.ScheduleError, match="loops are on a GPU, and arrays are on the CPU: give serial=True"):
        st.compile(made)
    with pytest.raises(st.ScheduleError, match="no loop is on a GPU"):
        spmv.cuda()


def test_bounds_that_are_not_true_are_caught():
    b = st.array(B)
    made = st.statement("C[i,j] = A[i,k] * B[k,j]", A=st.array(A, "csr"), B=B).bound("j", "jb", 9)
    with pytest.raises(ValueError, match=r"jb = bound\(j, 9, 'exact'\): j has 8 values here"):
        agree(made, 0, A=st.array(A, "csr"), B=b)
    most = int((A != 0).sum(1).max())
    made = st.statement("y[i] = A[i,j] * x[j]", A=st.array(A, "csr"), x=X).pos("j", "p", "A[i,j]")
    agree(made.bound("p", "pb", most, "most").unroll("pb"), A @ X, A=st.array(A, "csr"), x=X)
    with pytest.raises(ValueError, match=f"p has {most} values here, and the statement says that there are no more"):
        agree(made.bound("p", "pb", most - 1, "most"), 0, A=st.array(A, "csr"), x=X)


REFUSED = {
    "split(i, i, k, 2): there is a 'i' already; choose another name": lambda s: s.split("i", "i", "k", 2),
    "split(q, a, b, 2): there is no loop over 'q'. There are loops over i, j": lambda s: s.split("q", "a", "b", 2),
    "split(i, a, b, 0): the size of a part is a positive number, not 0": lambda s: s.split("i", "a", "b", 0),
    "split(i, c, d, 2): there is no loop over 'i'; it became a, b. There are loops over a, b, j": lambda s: s.split(
        "i", "a", "b", 2
    ).split("i", "c", "d", 2),
    "fuse(j, i, f): the loop over i is not right inside of that over j: i is around j; reorder them": lambda s: s.fuse(
        "j", "i", "f"
    ),
    "pos(i, p, A[i,j]): A stores i densely: its positions are its coordinates already": lambda s: s.pos(
        "i", "p", "A[i,j]"
    ),
    "pos(j, p, x[j]): x is dense; positions are those of a sparse one": lambda s: s.pos("j", "p", "x[j]"),
    "pos(j, p, A[j,i]): A[j,i] is no access of the expression; there are A[i,j], x[j]": lambda s: s.pos(
        "j", "p", "A[j,i]"
    ),
    "pos(j1, p, A[i,j]): j1 is a part of j; take pos(j, ...) first and cut what comes out": lambda s: s.split(
        "j", "j0", "j1", 4
    ).pos("j1", "p", "A[i,j]"),
    "reorder(p, i): pos(j, p, A[i,j]): how many positions p has depends on i; reorder the loops so that those over p "
    "and its parts are inside": lambda s: s.pos("j", "p", "A[i,j]").reorder("p", "i"),
    "coord(j, c): j does not count positions; coord leads back from what pos made, before it is cut up": lambda s: (
        s.coord("j", "c")
    ),
    "parallelize(j, 'threads', 'none'): elements of j add to the same y[i], as j is summed over; choose 'atomics', "
    "'temporary' or 'parallel_reduction', or another loop": lambda s: s.parallelize("j", "threads"),
    "parallelize(p0, 'threads', 'none'): elements of p0 add to the same y[i], as j is summed over": lambda s: balanced(
        s
    ).parallelize("p0", "threads"),
    "parallelize(p0, 'threads', 'parallel_reduction'): y[i] is settled only inside, by p0, p1": lambda s: balanced(
        s
    ).parallelize("p0", "threads", "parallel_reduction"),
    "parallelize(i, 'threads', 'parallel_reduction'): nothing is summed over i": lambda s: s.parallelize(
        "i", "threads", "parallel_reduction"
    ),
    "parallelize(j, 'lanes', 'atomics'): lanes have no atomic additions": lambda s: s.parallelize(
        "j", "lanes", "atomics"
    ),
    "parallelize(i, 'lanes', 'none'): there are loops inside of that over i; only the innermost": lambda s: (
        s.parallelize("i", "lanes")
    ),
    "parallelize(j, 'lanes', 'parallel_reduction'): lanes want a number of elements that is known": lambda s: (
        s.parallelize("j", "lanes", "parallel_reduction")
    ),
    "parallelize(i, 'thread', 'none'): a block is around its warps": lambda s: s.parallelize("i", "thread"),
    "parallelize(i1, 'block', 'none'): a loop on block is the outermost one; reorder the loops": lambda s: s.split(
        "i", "i0", "i1", 4
    ).parallelize("i1", "block"),
    "parallelize(j, 'threads', 'atomics'): it is inside of the loop over i, which is on threads": lambda s: (
        s.parallelize("i", "threads").parallelize("j", "threads", "atomics")
    ),
    "parallelize(i, 'fibres', 'none'): unit 'fibres' is not one of 'threads'": lambda s: s.parallelize("i", "fibres"),
    "parallelize(i, 'threads', 'luck'): race strategy 'luck' is not one of 'none'": lambda s: s.parallelize(
        "i", "threads", "luck"
    ),
    "split(i, a, b, 2): i is on threads already; give this command before": lambda s: s.parallelize(
        "i", "threads"
    ).split("i", "a", "b", 2),
    "unroll(j): unrolled want a number of elements that is known at compile time": lambda s: s.unroll("j"),
    "bound(j, b, 4, 'about'): the kind is 'exact' or 'most', not 'about'": lambda s: s.bound("j", "b", 4, "about"),
    "precompute('A[i,j] * z[j]', j, q, w): A[i,j] * z[j] is no part of a product under these": lambda s: s.precompute(
        "A[i,j] * z[j]", "j", "q", "w"
    ),
    "precompute('A[i,j]', i, q, w): the loop over j, on which both depend, is inside of that over i": lambda s: (
        s.precompute("A[i,j]", "i", "q", "w")
    ),
}


@pytest.mark.short(len(REFUSED))
@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused(spmv, reason):
    with pytest.raises(st.ScheduleError, match=re.escape(reason)):
        REFUSED[reason](spmv)


def test_repeated_coordinates_race():
    where = np.array([[0, 0, 1], [1, 1, 2]]), np.array([1.0, 2.0, 3.0])
    made = st.statement("y[i,j] = A[i,j] * x[j]", format="dense", A=st.array(where, "coo", shape=(3, 4)), x=dense(4))
    made = made.fuse("i", "j", "f").pos("f", "p", "A[i,j]")
    with pytest.raises(st.ScheduleError, match="as coordinates of A may repeat"):
        made.parallelize("p", "threads")


def test_expressions_that_have_no_loops_to_schedule():
    a = st.array(A, "csr")
    with pytest.raises(st.ScheduleError, match="a function of several sparse operands is not scheduled"):
        st.statement("y[i] = relu(A[i,j] + B[i,j])", format="dense", A=a, B=st.array(A * (A > 0), "csr"))
    with pytest.raises(TypeError, match="a statement has its operands and its format already; compile it alone"):
        st.compile(st.statement("y[i] = A[i,j] * x[j]", A=a, x=X), A=a)


def test_a_sum_in_a_workspace():
    a, b, d = (np.where(np.random.default_rng(n).random(A.shape) < 0.4, n + 1.0, 0) for n in range(3))
    given = {name: st.array(x, format) for name, x, format in (("A", a, "csr"), ("B", b, "csr"), ("D", d, "dcsr"))}
    made = st.statement("C[i,j] = 2 * A[i,j] - 2 * B[i,j] + D[i,j]", format="dense", **given)
    made = made.precompute("A[i,j] - B[i,j]", "j", "jp", "w")
    assert "\n".join(str(made).splitlines()[2:12]) == (
        "for i\n    w[...] = 0\n    for jp\n        w[jp] += A[i,j]\n    for jp\n        w[jp] += -1 * B[i,j]\n"
        "    for j\n        C[i,j] += 2 * w[j]\nfor i\n    for j"
    )
    agree(made.parallelize("i", "threads"), 2 * a - 2 * b + d, compiled=True, **given)
    with pytest.raises(st.ScheduleError, match="stand in other loops, or are multiplied by something else"):
        st.statement("C[i,j] = 2 * A[i,j] + D[i,j]", format="dense", A=given["A"], D=given["D"]).precompute(
            "A[i,j] + D[i,j]", "j", "jq", "v"
        )
    other = made.precompute("D[i,j]", "j", "jq", "v")  # the other nest, by itself
    agree(other, 2 * a - 2 * b + d, **given)
    for expression, why in {
        "A[i,j] - 3": "is not a sum of products of tensors",
        "D[i,j] + E[i,j]": "E[i,j] is no part of a product under these loops",
    }.items():
        with pytest.raises(st.ScheduleError, match=re.escape(why)):
            made.precompute(expression, "j", "jq", "v")


@pytest.mark.parametrize("rows, columns", [(4, 8), (5, 9), (1, 3), (8, 4)])
def test_parts_of_two_loops_are_both_unrolled(rows, columns):
    """Of extents that the parts divide, and of others."""
    generator = np.random.default_rng(0)
    a, x = generator.random((rows, columns)), generator.random(columns)
    made = st.statement("y[i] = A[i,j] * x[j]", A=a, x=x)
    made = made.split("i", "i0", "i1", 2).split("j", "j0", "j1", 4)
    for order in (("i1", "j1"), ("j1", "i1")):
        both = made
        for loop in order:
            both = both.unroll(loop)
        agree(both, a @ x, compiled=True, A=a, x=x)
