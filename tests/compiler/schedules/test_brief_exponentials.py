"""Exponentials with the digits of bfloat16: how exact they are, what special values give, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.codegen import host_target
from gnn_sparse_backend.compiler.compile import compile_program, stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import exp
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.brief_exponentials import brief_exponentials

LANES = 16
widths = pytest.mark.parametrize("lanes", [LANES, 8, 4])
SCHEDULE = cpu_schedule(brief_exponentials("weight"))


def exponentials(lanes=LANES, body=exp):
    p = ProgramBuilder("exponentials")
    I, C = p.dense_fixed("I", p.size("count")), p.dense_fixed("C", lanes)
    X, Y = p.buffer("X", (I, C), "float32"), p.buffer("Y", (I, C), "float32")
    with p.iterate("each", (I,), "S", ("i",)) as (i,), p.iterate("weight", (C,), "S", ("c",)) as (c,):
        Y[i, c] = body(X[i, c])
    return p.finish()


def run(x, lanes):
    x = np.ascontiguousarray(x, np.float32).reshape(-1, lanes)
    y = np.full_like(x, 7.0)
    compile_program(exponentials(lanes), SCHEDULE, host_target())(len(x), x, y)
    return y


@widths
def test_exponentials_are_exact_to_13_bits(lanes):
    x = np.linspace(-87, 0, LANES * 4096, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    # 1.04e-4 of the polynomial, and what rounding x log2(e) makes of an argument of 126
    assert np.abs(run(x, lanes).ravel() / exact - 1).max() < 1.04e-4 + 126 * 2.0**-23


@widths
def test_special_values_are_those_of_the_exponential(lanes):
    special = np.array([0.0, -0.0, -np.inf, np.inf, np.nan, -1e30, -200.0, 200.0], np.float32)
    wanted = np.array([1, 1, 0, np.inf, np.nan, 0, 0, np.inf], np.float32)
    np.testing.assert_array_equal(run(np.tile(special, 2), lanes).ravel(), np.tile(wanted, 2))


def test_an_iteration_without_exponentials_is_refused():
    with pytest.raises(StageIError, match="iteration 'weight' has no exponential of float32"):
        stage3(exponentials(body=lambda x: x + 1.0), SCHEDULE)
