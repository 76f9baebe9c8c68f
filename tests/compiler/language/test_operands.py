"""Which axes cannot be walked together: each refusal names the axis and says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import both, cast, either, number, stored
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.language.validate import validate


def builder():
    """A matrix and a dense axis of its columns: (p, I, J, JA, A, Y)."""
    p = ProgramBuilder("refused")
    m, n, na = p.sizes("m", "n", "na")
    I, J = p.dense_fixed("I", m), p.dense_fixed("J", n)
    JA = p.sparse_variable("JA", I, (n, na), ("JA_indptr", "JA_indices"))
    return p, I, J, JA, p.buffer("A", (I, JA), "float32"), p.buffer("Y", (I,), "float32")


def refused(message: str, write) -> None:
    p, I, J, JA, A, Y = builder()
    with pytest.raises(StageIError, match=message):
        with p.iterate("rows", (I,), "S") as (i,):
            write(p, i, J, JA, A, Y)
        p.finish()


def asks(condition, **more):
    def write(p, i, J, JA, A, Y):
        with p.iterate("columns", (J,), "R", merged=(JA,), **more) as (j,):
            p.where(condition(p, i, j, JA, A))
            Y[i] = Y[i] + A[i, j]

    return write


def test_the_condition_must_ask_for_each_axis():
    refused(
        r"iteration 'columns' cannot merge axis 'JA': its condition does not ask stored\(JA, ..., j\)",
        asks(lambda p, i, j, JA, A: A[i, j] > 0),
    )
    refused("does not ask stored", asks(lambda p, i, j, JA, A: stored(JA, i, j + 1)))


def test_an_axis_is_walked_under_one_element():
    refused(
        "cannot merge axis 'JA': its condition asks for it under several elements; declare an axis for each",
        asks(lambda p, i, j, JA, A: either(stored(JA, i, j), stored(JA, i + 1, j))),
    )
    refused(
        "cannot merge axis 'JA': the element above it depends on j, along which it is walked",
        asks(lambda p, i, j, JA, A: stored(JA, j, j)),
    )


def test_the_element_above_is_the_same_throughout_the_walk():
    def write(p, i, J, JA, A, Y):
        One = p.dense_fixed("One", 1)
        At = p.local("At", (One,), "int64")
        At[0] = 0
        with p.iterate("columns", (J,), "R", merged=(JA,)) as (j,):
            p.where(stored(JA, At[0], j))
            At[0] = At[0] + 1

    refused("cannot merge axis 'JA': the element above it is read from 'At', which the body stores to", write)


def test_only_one_dense_axis_is_visited():
    def sparse(p, i, J, JA, A, Y):
        with p.iterate("columns", (JA,), "R", merged=(JA,)) as (j,):
            p.where(stored(JA, i, j))
            Y[i] = A[i, j]

    refused("iteration 'columns' merges axes, so it must be over one dense axis", sparse)

    def initialised(p, i, J, JA, A, Y):
        with p.iterate("columns", (J,), "R", merged=(JA,)) as (j,):
            with p.init():
                Y[i] = 0.0
            p.where(stored(JA, i, j))
            Y[i] = Y[i] + A[i, j]

    refused("merges axes and has an init; write the initial values before it", initialised)


@pytest.mark.parametrize(
    "marks, message",
    [
        ({"sorted": False}, "its coordinates must be sorted and unique"),
        ({"unique": False}, "its coordinates must be sorted and unique"),
    ],
)
def test_coordinates_ascend(marks, message):
    p = ProgramBuilder("refused")
    m, n, na = p.sizes("m", "n", "na")
    I, J = p.dense_fixed("I", m), p.dense_fixed("J", n)
    JA = p.sparse_variable("JA", I, (n, na), ("JA_indptr", "JA_indices"), **marks)
    Y = p.buffer("Y", (I,), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("columns", (J,), "R", merged=(JA,)) as (j,):
            p.where(stored(JA, i, j))
            Y[i] = Y[i] + 1.0
    with pytest.raises(StageIError, match=message):
        p.finish()


def test_lengths_agree():
    p, I, _, JA, _, Y = builder()
    short = p.dense_fixed("Short", 3)
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("columns", (short,), "R", merged=(JA,)) as (j,):
            p.where(stored(JA, i, j))
            Y[i] = 1.0
    with pytest.raises(StageIError, match="cannot merge axis 'JA': its length is n, that of 'Short' is 3"):
        p.finish()


def test_stored_is_asked_of_sparse_axes_with_a_coordinate_of_each_level():
    _, _I, J, JA, _, _ = builder()
    with pytest.raises(StageIError, match="stored wants a sparse axis; 'J' is dense_fixed and stores all"):
        stored(J, 0)
    with pytest.raises(StageIError, match="stored of axis 'JA' wants a coordinate of each of I, JA, got 1"):
        stored(JA, 0)
    assert stored(JA, 0, 1).dtype == "bool"


def test_an_axis_of_another_program_is_refused():
    p, I, J, JA, _A, Y = builder()
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("columns", (J,), "R") as (j,):
            p.where(stored(JA, i, j))
            Y[i] = Y[i] + 1.0
    program = p.finish()
    validate(program)
    with pytest.raises(StageIError, match="'JA' is not an axis of the program"):
        validate(replace(program, axes=tuple(a for a in program.axes if a != JA), buffers=(Y.value,)))


def test_stored_is_a_value_as_well():
    """Without being merged it is looked up; outside of the axes above nothing is stored."""
    p, I, J, JA, _, _ = builder()
    There = p.buffer("There", (I, J), "float32")
    with p.iterate("all", (I, J), "SS") as (i, j):
        There[i, j] = cast("float32", both(stored(JA, i, j), stored(JA, i - 1, j))) + number(0.0, "float32")
    found = interpret(
        p.finish(),
        {
            **{"m": 3, "n": 3, "na": 4, "JA_indptr": [0, 2, 3, 4], "JA_indices": [0, 2, 2, 0]},
            **{"A": [1] * 4, "Y": [0] * 3, "There": [[0] * 3] * 3},
        },
    )
    assert found["There"].tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
