"""Every stage of every program against the stage above it, on drawn structures."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.language.printer import program_from_script, script
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.compiler.position.interpret import run_loops, run_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.shared.decompose import decompose_reductions
from tests.compiler.programs_under_test import CASES
from tests.compiler.structures import seeds
from tests.covering import covering

UNSCHEDULED = cpu_schedule(parallel=False, vectorize=False)
few = settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = sorted(CASES)


@functools.cache
def program_of(name: str, index_dtype: str):
    return CASES[name].make(index_dtype)


def call(kernel, program, arguments) -> dict[str, np.ndarray]:
    """Run a compiled kernel on copies of the arguments."""
    copies = {n: v if isinstance(v, int) else np.array(v) for n, v in arguments.items()}
    kernel(*(copies[name] for name in program.parameter_names))
    return {b.name: copies[b.name] for b in program.parameters}


def compare(got, want, outputs, tolerance: float) -> None:
    for name in outputs:
        np.testing.assert_allclose(got[name], want[name], rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=name)


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", NAMES)
def test_printed_program_builds_the_same_program(name, index_dtype):
    program = program_of(name, index_dtype)
    assert program_from_script(script(program)) == program


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
@few
def test_stage_two_means_what_stage_one_means(name, seed):
    program = program_of(name, "int32")
    arguments = CASES[name].arguments(program, seed)
    want = interpret(program, arguments)
    compare(run_position(decompose_reductions()(lower(program)), arguments), want, CASES[name].outputs, 1e-12)


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
@few
def test_stage_three_means_what_stage_two_means(name, seed):
    program = program_of(name, "int64")
    arguments = CASES[name].arguments(program, seed)
    stage2 = decompose_reductions()(lower(program))
    want = run_position(stage2, arguments)
    compare(run_loops(flatten(stage2), arguments), want, CASES[name].outputs, 0)


@pytest.mark.parametrize(
    "name, schedule, index_dtype",
    covering({"name": NAMES, "schedule": [UNSCHEDULED, cpu_schedule()], "index_dtype": ["int32", "int64"]}),
)
@given(seed=seeds)
@few
def test_machine_code_means_what_stage_one_means(name, schedule, index_dtype, seed):
    program = program_of(name, index_dtype)
    arguments = CASES[name].arguments(program, seed)
    want = interpret(program, arguments)
    kernel = compile_program(program, schedule)
    # values are exact quarters: only the exponential and division round
    compare(call(kernel, program, arguments), want, CASES[name].outputs, 1e-5)


@pytest.mark.short(20)
@pytest.mark.parametrize("name", NAMES)
def test_zero_elements(name):
    """No non-zeros at all: outputs that were poisoned come out as the empty sum."""
    case = CASES[name]
    program = program_of(name, "int32")
    for seed in range(40):
        arguments = case.arguments(program, seed)
        if all(arguments.get(axis.nnz.name) == 0 for axis in program.axes if axis.is_variable and axis.is_sparse):
            break
    else:
        case = case.__class__(case.make, case.sizes, case.outputs, case.fix, most=0)
        arguments = case.arguments(program, 0)
    kernel = compile_program(program, cpu_schedule())
    compare(call(kernel, program, arguments), interpret(program, arguments), case.outputs, 1e-6)
