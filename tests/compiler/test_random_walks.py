"""Merged iterations under drawn conditions, with drawn bodies: what tries every coordinate is the oracle."""

from __future__ import annotations

from functools import reduce
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import Stored, Var, both, either, present, select, stored
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.language.printer import program_from_script
from gnn_sparse_backend.compiler.language.traversal import walk
from gnn_sparse_backend.compiler.lowering import flatten, lattice, lower
from gnn_sparse_backend.compiler.position.interpret import run_loops, run_position
from gnn_sparse_backend.compiler.position.validate import validate_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from tests.compiler.merged_programs import FALSE, TRUE, negated, rows_of
from tests.compiler.structures import complete, seeds

NAMES = "ABCD"


def conditions(asked, loads):
    """Conditions on what is stored, and on the values there; constants too."""
    leaves = st.sampled_from([*asked, *asked, *map(present, loads), *(x > 0 for x in loads), TRUE, FALSE])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(both, inner, inner), st.builds(either, inner, inner), st.builds(negated, inner)
        ),
        max_leaves=5,
    )


def numbers(asked, loads):
    """Sums, differences, products and choices of what is read."""
    return st.recursive(
        st.sampled_from(loads),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda a, b: a - b, inner, inner),
            st.builds(lambda a, b: a * b, inner, inner),
            st.builds(select, conditions(asked, loads), inner, inner),
        ),
        max_leaves=4,
    )


@st.composite
def programs(draw):
    """Out[i, j] = a number where a condition holds; the axes that it asks for are merged, or some of them."""
    count = draw(st.integers(1, len(NAMES)))
    p = ProgramBuilder("drawn")
    I, J, axes, buffers = rows_of(p, *NAMES[:count], t=draw(st.sampled_from(["int32", "int64"])))
    Out = p.buffer("Out", (I, J), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("clear", (J,), "S", ("jc",)) as (j,):
            Out[i, j] = -7.0
        j = Var("j")
        asked = [stored(axis, i, j) for axis in axes]
        loads = [buffer[i, j] for buffer in buffers]
        first = draw(st.sampled_from(asked))
        condition = draw(
            conditions(asked, loads).map(lambda drawn: draw(st.sampled_from([both, either]))(first, drawn))
        )
        able = [axis for axis in axes if any(isinstance(e, Stored) and e.axis == axis for e in walk(condition))]
        merged = draw(st.lists(st.sampled_from(able), min_size=1, unique=True))
        with p.iterate("columns", (J,), "S", merged=merged):
            p.where(condition)
            Out[i, j] = draw(numbers(asked, loads))
    return p.finish()


def drawn(program, seed):
    rng = np.random.default_rng(seed)
    return complete(program, rng, {"m": int(rng.integers(0, 4)), "n": int(rng.integers(1, 8))}, most=5)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs(), seed=seeds)
def test_stages_of_drawn_walks(program, seed):
    agree(program, seed)


@pytest.mark.exhaustive
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs(), seed=seeds)
def test_stages_of_many_drawn_walks(program, seed):
    agree(program, seed)


def agree(program, seed):
    assert program_from_script(program.script()) == program
    arguments = drawn(program, seed)
    want = interpret(program, arguments)["Out"]
    for most in (0, len(NAMES)):  # with a body that asks who is there, and with code for each set
        with patch.object(lattice, "MOST_SETS", most):
            stage2 = lower(program)
        validate_position(stage2)
        for got in (run_position(stage2, arguments), run_loops(flatten(stage2), arguments)):
            np.testing.assert_array_equal(got["Out"], want)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs(), seed=seeds)
def test_machine_code_of_drawn_walks(program, seed):
    arguments = drawn(program, seed)
    want = interpret(program, arguments)["Out"]
    copies = {n: v if isinstance(v, int) else np.array(v) for n, v in arguments.items()}
    compile_program(program, cpu_schedule())(*(copies[name] for name in program.parameter_names))
    np.testing.assert_allclose(copies["Out"], want, rtol=1e-6, atol=1e-6)


def test_many_operands():
    """The sum of four matrices: one body, or each of 15 points and its cases."""
    p = ProgramBuilder("sum_of_four")
    I, J, axes, buffers = rows_of(p, *NAMES, t="int32")
    Out = p.buffer("Out", (I, J), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("clear", (J,), "S", ("jc",)) as (j,):
            Out[i, j] = 0.0
        with p.iterate("columns", (J,), "S", merged=axes) as (j,):
            p.where(reduce(either, (stored(axis, i, j) for axis in axes)))
            Out[i, j] = reduce(lambda a, b: a + b, (buffer[i, j] for buffer in buffers))
    program = p.finish()
    assert len(lower(program).program.iteration("columns").points) == 1
    with patch.object(lattice, "MOST_SETS", 4):
        assert len(lower(program).program.iteration("columns").points) == 15
    agree(program, 3)
