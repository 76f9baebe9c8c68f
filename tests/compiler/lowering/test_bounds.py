"""Iterations over a part of an axis, and where elements lie: every stage against sums in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gnn_sparse_backend.compiler import (
    ProgramBuilder,
    StageIError,
    begin_of,
    both,
    compile_program,
    either,
    end_of,
    interpret,
    minimum,
    number,
    offset_of,
    owner_of,
    program_from_script,
    run_loops,
    run_position,
    stage2,
    stage3,
    stored,
)
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule

INDPTR = np.array([0, 0, 3, 3, 4, 8, 8], np.int32)
INDICES = np.array([1, 4, 6, 0, 0, 2, 2, 5], np.int32)  # one coordinate twice
VALUES = np.array([1.0, 2, 4, 8, 16, 32, 64, 128])
PARTS = 5


def program(low, high, by="position", unique=False):
    """Y[c, i]: the sum of what row i stores from low(c, i) up to high(c, i)."""
    p = ProgramBuilder("bounded")
    m, n, nnz = p.sizes("m", "n", "nnz")
    i_axis = p.dense_fixed("I", m)
    j_axis = p.sparse_variable("J", i_axis, (n, nnz), ("indptr", "indices"), unique=unique)
    c_axis = p.dense_fixed("C", PARTS)
    a = p.buffer("A", (i_axis, j_axis), "float64")
    y = p.buffer("Y", (c_axis, i_axis), "float64")
    with p.iterate("parts", (c_axis, i_axis), "SS") as (c, i):
        y[c, i] = 0.0
        limits = (j_axis, low(c, i, j_axis), high(c, i, j_axis), by)
        with p.iterate("row", (j_axis,), "R", bounds=[limits]) as (j,):
            y[c, i] = y[c, i] + a[i, j]
    return p.finish()


def every_stage(made, given, result="Y"):
    """What each stage of a program computes."""
    assert program_from_script(made.script()) == made
    schedule = cpu_schedule()
    yield interpret(made, given)[result]
    yield run_position(stage2(made, schedule), given)[result]
    yield run_loops(stage3(made, schedule), given)[result]
    out = given[result].copy()
    arguments = [out if name == result else given[name] for name in made.parameter_names]
    compile_program(made, schedule)(*arguments)
    yield out


def arguments():
    given = dict(m=6, n=7, nnz=8, indptr=INDPTR, indices=INDICES, A=VALUES)
    return given | {"Y": np.full((PARTS, 6), 7.0)}


def expected(low, high, by):
    found = np.zeros((PARTS, 6))
    for c in range(PARTS):
        for i in range(6):
            for at in range(INDPTR[i], INDPTR[i + 1]):
                key = INDICES[at] if by == "coordinate" else at - INDPTR[i]
                found[c, i] += VALUES[at] if low(c, i) <= key < high(c, i) else 0
    return found


@pytest.mark.parametrize("by", ["position", "coordinate"])
@pytest.mark.parametrize(
    "low, high",
    [
        (lambda c, i: c * 2 - 2, lambda c, i: c * 2),
        (lambda c, i: c, lambda c, i: c - 1),
        (lambda c, i: 3 - c, lambda c, i: 100 * c + i),
    ],
    ids=["parts", "none", "beyond"],
)
def test_parts_of_rows(low, high, by):
    made = program(lambda c, i, j: number(0) + low(c, i), lambda c, i, j: number(0) + high(c, i), by)
    for found in every_stage(made, arguments()):
        np.testing.assert_array_equal(found, expected(low, high, by))


def test_where_elements_lie():
    """The bounds of a row, as positions that count from its begin."""
    low = lambda c, i, j: begin_of(j, i) - c
    high = lambda c, i, j: minimum(end_of(j, i), c + 4)
    made = program(low, high)
    wanted = expected(lambda c, i: INDPTR[i] - c, lambda c, i: min(INDPTR[i + 1], c + 4), "position")
    for found in every_stage(made, arguments()):
        np.testing.assert_array_equal(found, wanted)


def test_the_offset_of_an_element():
    p = ProgramBuilder("offsets")
    m, n, nnz = p.sizes("m", "n", "nnz")
    i_axis = p.dense_fixed("I", m)
    j_axis = p.sparse_variable("J", i_axis, (n, nnz), ("indptr", "indices"))
    e_axis = p.dense_fixed("E", nnz)
    y = p.buffer("Y", (e_axis,), "int64")
    with p.iterate("each", (i_axis, j_axis), "SS") as (i, j):
        y[offset_of(j_axis, i, j)] = offset_of(j_axis, i, j) * 10 + i
    given = dict(m=6, n=7, nnz=8, indptr=INDPTR, indices=INDICES, Y=np.zeros(8, np.int64))
    owners = np.repeat(np.arange(6), np.diff(INDPTR))
    for found in every_stage(p.finish(), given):
        np.testing.assert_array_equal(found, np.arange(8) * 10 + owners)


@pytest.mark.parametrize("kind", ["variable", "fixed"])
@pytest.mark.parametrize("nnz", [8, 0])
def test_the_owner_of_an_element(kind, nnz):
    p = ProgramBuilder("owners")
    m, n, count = p.sizes("m", "n", "nnz")
    i_axis = p.dense_fixed("I", m)
    if kind == "variable":
        j_axis = p.sparse_variable("J", i_axis, (n, count), ("indptr", "indices"))
    else:
        j_axis = p.sparse_fixed("J", i_axis, (n, 3), "indices")
    e_axis = p.dense_fixed("E", 12)
    y = p.buffer("Y", (e_axis,), "int64")
    with p.iterate("each", (e_axis,), "S") as (e,):
        y[e] = owner_of(j_axis, e - 2)
    indptr = INDPTR if nnz else np.zeros(7, np.int32)
    indices = INDICES[:nnz] if kind == "variable" else np.zeros(18, np.int32)
    given = dict(m=6, n=7, nnz=nnz, indptr=indptr, indices=indices, Y=np.zeros(12, np.int64))
    offsets = range(-2, 10)
    if kind == "variable":
        wanted = [max((i for i in range(6) if indptr[i] <= at), default=-1) for at in offsets]
    else:
        wanted = [-1 if at < 0 else min(at // 3, 5) for at in offsets]
        del given["indptr"]
    for found in every_stage(p.finish(), given):
        np.testing.assert_array_equal(found, wanted)


def test_equal_parts_of_the_elements_across_rows():
    """Rows of the first and last element of a part are looked for, and those between follow."""
    p = ProgramBuilder("balanced")
    m, n, nnz = p.sizes("m", "n", "nnz")
    i_axis = p.dense_fixed("I", m)
    j_axis = p.sparse_variable("J", i_axis, (n, nnz), ("indptr", "indices"), unique=False)
    c_axis, y_axis = p.dense_fixed("C", 3), p.dense_fixed("JD", n)
    a, x = p.buffer("A", (i_axis, j_axis), "float64"), p.buffer("X", (y_axis,), "float64")
    y = p.buffer("Y", (i_axis,), "float64")
    with p.iterate("parts", (c_axis,), "R") as (c,):
        low, high = c * 3, minimum(c * 3 + 3, number(nnz))
        rows = (i_axis, owner_of(j_axis, low), owner_of(j_axis, high - 1) + 1)
        with p.iterate("rows", (i_axis,), "R", bounds=[rows]) as (i,):
            begin = begin_of(j_axis, i)
            with p.iterate("row", (j_axis,), "R", bounds=[(j_axis, low - begin, high - begin, "position", 3)]) as (j,):
                y[i] = y[i] + a[i, j] * x[j]
    given = dict(m=6, n=7, nnz=8, indptr=INDPTR, indices=INDICES, A=VALUES, X=np.arange(7.0), Y=np.zeros(6))
    dense = np.zeros((6, 7))
    np.add.at(dense, (np.repeat(np.arange(6), np.diff(INDPTR)), INDICES), VALUES)
    for found in every_stage(p.finish(), given):
        np.testing.assert_array_equal(found, dense @ np.arange(7.0))


@pytest.mark.parametrize("condition", [both, either, lambda a, b: either(a, either(b, number(1, "bool")))])
def test_a_part_of_axes_that_are_walked_together(condition):
    """Intersections, unions, and every coordinate: those of three from the diagonal on."""
    p = ProgramBuilder("merged")
    m, n, first, second = p.sizes("m", "n", "first", "second")
    i_axis, j_axis = p.dense_fixed("I", m), p.dense_fixed("K", n)
    ja = p.sparse_variable("JA", i_axis, (n, first), ("ptr_a", "ind_a"))
    jb = p.sparse_variable("JB", i_axis, (n, second), ("ptr_b", "ind_b"))
    a, b = p.buffer("A", (i_axis, ja), "float64"), p.buffer("B", (i_axis, jb), "float64")
    y = p.buffer("Y", (i_axis,), "float64")
    with p.iterate("rows", (i_axis,), "S") as (i,):
        y[i] = 0.0
        limits = [(j_axis, i, i + 3, "coordinate", 3)]
        with p.iterate("row", (j_axis,), "R", merged=(ja, jb), bounds=limits) as (j,):
            p.where(condition(stored(ja, i, j), stored(jb, i, j)))
            y[i] = y[i] + a[i, j] + 10.0 * b[i, j] + 100.0
    left, right = (np.random.default_rng(n).integers(0, 2, (5, 7)) * (n + 1.0) for n in range(2))
    given = {"m": 5, "n": 7, "Y": np.zeros(5)}
    for name, dense in (("a", left), ("b", right)):
        found = scipy.sparse.csr_array(dense)
        given |= {f"ptr_{name}": found.indptr, f"ind_{name}": found.indices, name.upper(): found.data}
    given |= {"first": len(given["A"]), "second": len(given["B"])}
    wanted = np.zeros(5)
    for row in range(5):
        for j in range(row, min(row + 3, 7)):
            if condition is both and not (left[row, j] and right[row, j]):
                continue
            if condition is either and not (left[row, j] or right[row, j]):
                continue
            wanted[row] += left[row, j] + 10 * right[row, j] + 100
    for found in every_stage(p.finish(), given):
        np.testing.assert_array_equal(found, wanted)


REFUSED = {
    "by 'rank'": lambda i, j, k: [(j, 0, 1, "rank")],
    "of at most -1 elements": lambda i, j, k: [(j, 0, 1, "position", -1)],
    "has bounds already": lambda i, j, k: [(j, 0, 1), (j, 1, 2)],
    "which it does not visit by a loop of its own": lambda i, j, k: [(k, 0, 1)],
    "of types float64 and int64": lambda i, j, k: [(j, number(0.0, "float64"), 1)],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_well_formed(reason):
    p = ProgramBuilder("wrong")
    i_axis = p.dense_fixed("I", 4)
    j_axis = p.sparse_variable("J", i_axis, (4, 8), ("indptr", "indices"))
    k_axis = p.dense_fixed("K", 4)
    y = p.buffer("Y", (i_axis,), "float64")
    with p.iterate("rows", (i_axis,), "S") as (i,):
        with p.iterate("row", (j_axis,), "R", bounds=REFUSED[reason](i_axis, j_axis, k_axis)):
            y[i] = y[i] + 1.0
    with pytest.raises(StageIError, match=reason):
        p.finish()


def test_unsorted_coordinates_have_no_bounds():
    p = ProgramBuilder("wrong")
    i_axis = p.dense_fixed("I", 4)
    j_axis = p.sparse_fixed("J", i_axis, (4, 2), "indices", sorted=False)
    y = p.buffer("Y", (i_axis,), "float64")
    with (
        p.iterate("rows", (i_axis,), "S") as (i,),
        p.iterate("row", (j_axis,), "R", bounds=[(j_axis, 0, 2, "coordinate")]),
    ):
        y[i] = y[i] + 1.0
    with pytest.raises(StageIError, match="whose coordinates are not sorted"):
        p.finish()


def test_offsets_want_their_coordinates():
    p = ProgramBuilder("wrong")
    i_axis = p.dense_fixed("I", 4)
    j_axis = p.sparse_variable("J", i_axis, (4, 8), ("indptr", "indices"))
    with pytest.raises(StageIError, match="begin_of of axis 'J' wants 1 coordinates, got 2"):
        begin_of(j_axis, 0, 1)
    with pytest.raises(StageIError, match="axis 'I' is a root"):
        owner_of(i_axis, 0)
