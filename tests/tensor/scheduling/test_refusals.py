"""What commands refuse beside what the other files have: each with what was given, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from gnn_sparse_backend import tensor as st

A = np.where(np.random.default_rng(0).random((9, 7)) < 0.4, 2.0, 0)
CSR = st.array(A, "csr")
X = np.ones(7)


def spmv() -> st.Statement:
    return st.statement("y[i] = A[i,j] * x[j]", A=CSR, x=X)


def spmm() -> st.Statement:
    """With the loops that a workspace wants."""
    return st.statement("C[i,j] = A[i,k] * B[k,j]", A=CSR, B=np.ones((7, 5))).reorder("i", "k", "j")


def two() -> st.Statement:
    given = dict(A=CSR, B=CSR, x=X, z=X)
    return st.statement("y[i] = A[i,j] * x[j] + B[i,k] * z[k]", format="dense", **given)


def added() -> st.Statement:
    given = dict(A=st.array(A, "dcsr"), B=st.array(2 * A, "dcsr"))
    return st.statement("C[i,j] = A[i,j] + B[i,j]", format="dense", **given)


def multiplied() -> st.Statement:
    return st.statement("y[i] = A[i,j] * B[i,j]", format="dense", A=CSR, B=CSR)


def tensor() -> st.Statement:
    t = st.array(np.ones((3, 3, 3)), "csf")
    return st.statement("y[i] = T[i,j,k] * B[j,k]", T=t, B=np.ones((3, 3)))


def dense() -> st.Statement:
    return st.statement("C[i,j] = A[i,k] * B[k,j]", A=np.ones((4, 4)), B=np.ones((4, 4)))


def filled() -> st.Statement:
    return spmm().precompute("A[i,k] * B[k,j]", "j", "jp", "w")


REFUSED: dict[str, Callable[[], st.Statement]] = {
    "split(3, a, b, 4): 3 is no name; names are texts such as 'i'": lambda: spmv().split(3, "a", "b", 4),
    "split(i, a b, c, 4): 'a b' is no name of a variable; give letters, digits and _": (
        lambda: spmv().split("i", "a b", "c", 4)
    ),
    "reorder(j, k): the loops over 'j' and 'k' are in no nest together; give loops of one": (
        lambda: two().reorder("j", "k")
    ),
    "reorder(i): give at least two loops, each once, from the outermost on": lambda: spmv().reorder("i"),
    "reorder(i, i): give at least two loops, each once": lambda: spmv().reorder("i", "i"),
    "fuse(i, p, f): p counts positions; fuse coordinates first, and take pos of what comes out": (
        lambda: spmv().pos("j", "p", "A[i,j]").fuse("i", "p", "f")
    ),
    "pos(i, p, A[i,j]): another product adds to the workspace under i, and is not multiplied by A[i,j]; cut": (
        lambda: added().precompute("A[i,j] + B[i,j]", "j", "jp", "w").pos("i", "p", "A[i,j]")
    ),
    "pos(j, p, A[i,k]): j is no index of A[i,k]; take pos of i, k": lambda: spmm().pos("j", "p", "A[i,k]"),
    "pos(f, p, T[i,j,k]): T stores i, j, k in this order; positions are those of its first levels together": (
        lambda: tensor().fuse("j", "k", "f").pos("f", "p", "T[i,j,k]")
    ),
    "pos(j, p, B[i,k]): B[i,k] is not read under the loop over j; take an access of its products": (
        lambda: two().pos("j", "p", "B[i,k]")
    ),
    "pos(p, q, B[i,j]): p counts positions of A[i,j] already; lead back by coord(p, ...) first": (
        lambda: multiplied().pos("j", "p", "A[i,j]").pos("p", "q", "B[i,j]")
    ),
    "bound(a, c, 3, 'exact'): a is no index of the expression; an exact extent is one of an index": (
        lambda: spmv().split("i", "a", "b", 4).bound("a", "c", 3)
    ),
    "parallelize(k, 'threads', 'atomics'): w is a workspace; atomics are for C; choose another loop": (
        lambda: filled().parallelize("k", "threads", "atomics")
    ),
    "parallelize(i, 'threads', 'temporary'): nothing is summed over i: each of its elements has its own y[i]": (
        lambda: spmv().parallelize("i", "threads", "temporary")
    ),
    "split(i, a, b, 2.5): the size of a part is a positive number, not 2.5": lambda: spmv().split("i", "a", "b", 2.5),
    "parallelize(k, 'threads', 'parallel_reduction'): C is written in a nest inside of k; choose a loop of that": (
        lambda: spmm().precompute("B[k,j]", "j", "jp", "w").parallelize("k", "threads", "parallel_reduction")
    ),
    "precompute('A[i,j]', 3, jp, w): variables are a name, or several in a tuple": (
        lambda: spmv().precompute("A[i,j]", 3, "jp", "w")
    ),
    "parallelize(i1, 'thread', 'none'): a block of a GPU has at most 1024 threads, not 2048": (
        lambda: dense().split("i", "i0", "i1", 2048).parallelize("i0", "block").parallelize("i1", "thread")
    ),
    "unroll(b): 500 copies would be written out, and 256 are the most; split the loop": (
        lambda: spmv().split("i", "a", "b", 500).unroll("b")
    ),
    "unroll(d): 1024 copies would be written out, and 256 are the most": (
        lambda: dense().split("i", "a", "b", 32).split("j", "c", "d", 32).unroll("b").unroll("d")
    ),
    "precompute('A[i,j]', i, j, jp, w): there are 2 variables and 1 for where the workspace is filled; give as many": (
        lambda: spmv().precompute("A[i,j]", ("i", "j"), "jp", "w")
    ),
    "precompute('A[i,k]', j, k, jp, kp, w): nothing of A[i,k] depends on j; leave it out": (
        lambda: dense().precompute("A[i,k]", ("j", "k"), ("jp", "kp"), "w")
    ),
    "precompute('1e400 * A[i,j] * x[j]', j, jp, w): 1e400 * A[i,j] * x[j] is no part of a product under these loops": (
        lambda: spmv().precompute("1e400 * A[i,j] * x[j]", "j", "jp", "w")
    ),
    "parallelize(i, 'block', 'none'): on a GPU the workspace w is inside of a loop, and its extents are known at "
    "compile time; give bound(j, ...)": lambda: filled().parallelize("i", "block"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused(reason):
    with pytest.raises(st.ScheduleError, match=re.escape(reason)):
        REFUSED[reason]()


def test_long_parts_of_sparse_results_are_not_written_out():
    made = st.statement("C[i,j] = A[i,j] + B[i,j]", A=CSR, B=st.array(2 * A, "csr")).split("i", "a", "b", 500)
    with pytest.raises(st.ScheduleError, match="500 copies would be written out, and 256 are the most"):
        made.unroll("b")


def test_numbers_beside_a_sparse_operand_have_no_positions():
    made = st.statement("C[i,j] = 2 + A[i,j]", format="csr", A=CSR)
    with pytest.raises(st.ScheduleError, match=re.escape("pos(j, p, A[i,j]): 2 is added too, and not multiplied")):
        made.pos("j", "p", "A[i,j]")


def test_a_workspace_of_a_sparse_result_has_a_name_as_well():
    made = st.statement("C[i,j] = A[i,j] + B[i,j]", A=CSR, B=st.array(2 * A, "csr"))
    with pytest.raises(st.ScheduleError, match="variables are a name, or several in a tuple"):
        made.precompute("A[i,j] + B[i,j]", 3, "jp", "w")


def test_numbers_of_numpy_are_numbers():
    made = spmv().bound("i", "i9", np.int64(9)).split("i9", "a", "b", np.int32(4)).divide("j", "c", "d", np.uint8(2))
    np.testing.assert_allclose(st.compile(made)(A=CSR, x=X).to_dense(), A @ X)
