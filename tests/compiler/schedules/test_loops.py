"""Loops on the units that a schedule names: values of every stage, the code that comes out, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx

from gnn_sparse_backend.compiler import (
    ProgramBuilder,
    StageIError,
    compile_program,
    minimum,
    number,
    run_loops,
    run_position,
    stage2,
    stage3,
)
from gnn_sparse_backend.compiler.codegen import generate_cuda
from gnn_sparse_backend.compiler.codegen.nodes import nodes
from gnn_sparse_backend.compiler.schedules.units import unit_schedule

SIZES = (0, 1, 8, 29)


def sums(dtype="float32"):
    """Y[i % 3] += X[i], in parts of 8."""
    p = ProgramBuilder("sums")
    n, parts = p.sizes("n", "parts")
    c_axis, i_axis, three = p.dense_fixed("C", parts), p.dense_fixed("I", n), p.dense_fixed("T", 3)
    x, y = p.buffer("X", (i_axis,), dtype), p.buffer("Y", (three,), dtype)
    with p.iterate("chunks", (c_axis,), "R") as (c,):
        with p.iterate("part", (i_axis,), "R", bounds=[(i_axis, c * 8, c * 8 + 8, "position", 8)]) as (i,):
            y[i % 3] = y[i % 3] + x[i]
    return p.finish()


def doubled():
    """Z[i] = 2 * X[i], in parts of 8."""
    p = ProgramBuilder("doubled")
    n, parts = p.sizes("n", "parts")
    c_axis, i_axis = p.dense_fixed("C", parts), p.dense_fixed("I", n)
    x, z = p.buffer("X", (i_axis,), "float32"), p.buffer("Y", (i_axis,), "float32")
    with p.iterate("chunks", (c_axis,), "S") as (c,):
        high = minimum(c * 8 + 8, number(n))
        with p.iterate("part", (i_axis,), "S", bounds=[(i_axis, c * 8, high, "position", 8)]) as (i,):
            z[i] = x[i] * 2.0
    return p.finish()


def given(n, length, dtype="float32"):
    x = np.random.default_rng(n).integers(-4, 5, n).astype(dtype)
    return dict(n=n, parts=-(-n // 8), X=x, Y=np.zeros(length, dtype))


def agree(made, schedule, arguments, wanted, serial=False):
    np.testing.assert_array_equal(run_position(stage2(made, schedule, serial), arguments)["Y"], wanted)
    np.testing.assert_array_equal(run_loops(stage3(made, schedule, serial), arguments)["Y"], wanted)
    out = arguments["Y"].copy()
    compile_program(made, schedule, serial=serial)(arguments["n"], arguments["parts"], arguments["X"], out)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_threads_add_atomically(dtype):
    made, schedule = sums(dtype), unit_schedule((("chunks", "threads"),), atomic=("Y",))
    for n in SIZES:
        arguments = given(n, 3, dtype)
        wanted = [arguments["X"][at::3].sum() for at in range(3)]
        agree(made, schedule, arguments, np.array(wanted))


def test_no_addition_is_lost():
    made, n = sums(), 200_000
    kernel = compile_program(made, unit_schedule((("chunks", "threads"),), atomic=("Y",)))
    out = np.zeros(3, np.float32)
    kernel(n, -(-n // 8), np.ones(n, np.float32), out)
    assert out.sum() == n


@pytest.mark.parametrize("unit", ["lanes", "unrolled"])
def test_whole_parts_apart_from_the_last(unit):
    made, schedule = doubled(), unit_schedule((("chunks", "threads"), ("part", unit)))
    for n in SIZES:
        arguments = given(n, n)
        agree(made, schedule, arguments, arguments["X"] * 2)
    loops = nodes(stage3(made, schedule).body, tirx.For)
    kind = tirx.ForKind.VECTORIZED if unit == "lanes" else tirx.ForKind.UNROLLED
    assert [loop.extent.value for loop in loops if loop.kind == kind] == [8]


def test_a_gpu_one_element_after_the_other():
    made, schedule = doubled(), unit_schedule((("chunks", "block"), ("part", "thread")))
    for n in SIZES:
        arguments = given(n, n)
        agree(made, schedule, arguments, arguments["X"] * 2, serial=True)
    source = generate_cuda(stage3(made, schedule), "sm_80")
    assert "blockIdx.x" in source and "threadIdx.x" in source


def test_atomic_additions_of_a_gpu():
    schedule = unit_schedule((("chunks", "block"), ("part", "thread")), atomic=("Y",))
    assert "atomic" in generate_cuda(stage3(sums(), schedule), "sm_80")
    arguments = given(29, 3)
    agree(sums(), schedule, arguments, [arguments["X"][at::3].sum() for at in range(3)], serial=True)


@pytest.mark.parametrize(
    "made, units, atomic, reason",
    [
        (sums, (("part", "fibres"),), (), "unit 'fibres' is not one of threads, lanes"),
        (sums, (("chunks", "lanes"),), (), "has no number of elements that is known here"),
        (sums, (("chunks", "thread"),), (), "wants at most 1024 elements"),
        (lambda: sums("float16"), (("chunks", "threads"),), ("Y",), "is of float16, which is not added atomically"),
        (lambda: sums("int64"), (("chunks", "block"),), ("Y",), "is of int64, which is not added atomically"),
    ],
)
def test_refusals(made, units, atomic, reason):
    with pytest.raises(StageIError, match=reason):
        stage2(made(), unit_schedule(units, atomic=atomic))


def test_a_loop_over_two_axes_has_no_unit():
    p = ProgramBuilder("two")
    i_axis, j_axis = p.dense_fixed("I", 4), p.dense_fixed("J", 4)
    y = p.buffer("Y", (i_axis, j_axis), "float32")
    with p.iterate("pairs", (i_axis, j_axis), "SS") as (i, j):
        y[i, j] = 0.0
    with pytest.raises(StageIError, match="iteration 'pairs' on threads is over several axes"):
        stage2(p.finish(), unit_schedule((("pairs", "threads"),)))
