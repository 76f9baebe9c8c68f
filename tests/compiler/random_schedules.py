"""Random schedules of the programs of operators, for the CPU and, one thread after the other, for a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gnn_sparse_backend.compiler import (
    CpuSchedule,
    CudaSchedule,
    CudaTeams,
    LoopSchedule,
    Program,
    StageIError,
    interpret,
    run_loops,
    stage3,
)
from gnn_sparse_backend.compiler.language.program import walk_iterations
from gnn_sparse_backend.compiler.schedules.loops import UNITS
from tests.compiler.programs_under_test import CASES

Choose = Callable[[Sequence[Any]], Any]


@functools.cache
def program_of(name: str, index_dtype: str) -> Program:
    """A program under test; the library has one of each kind."""
    return CASES[name].make(index_dtype)


def random_schedule(choose: Choose, program: Program) -> Any:
    """A schedule, legal for this program or not."""
    names = [it.name for it in walk_iterations(program.iterations)]
    match choose(("cpu", "cpu", "cuda", "teams", "loops")):
        case "cpu":
            lanes = ((choose(names), choose((2, 4, 3))),) if choose((True, False)) else ()
            together = ((choose(names), choose((2, 4, 1))),) if not lanes and choose((True, False)) else ()
            parallel, vectorize, fuse = (choose((True, False)) for _ in range(3))
            return CpuSchedule(parallel, vectorize, fuse, lanes=lanes, together=together)
        case "cuda":
            return CudaSchedule(choose((True, False)))
        case "teams":
            some = [tuple(name for name in names if choose((False, False, True))) for _ in range(3)]
            lanes, teams = choose((1, 2, 4, 32)), choose((1, 2, 4))
            turns = ((choose(names), choose((2, 3))),) if choose((False, True)) else ()
            return CudaTeams(lanes, teams, turns, *some)
    return LoopSchedule(tuple((name, choose(UNITS)) for name in names if choose((False, True))))


def check(name: str, index_dtype: str, seed: int, schedule: Any) -> bool:
    """Whether a schedule takes a program; if so, its loops compute what the program means, to twelve digits.

    Loops run one after the other, so races of a `LoopSchedule`, which are its user's to see to, do not show.
    """
    program = program_of(name, index_dtype)
    arguments = CASES[name].arguments(program, seed)
    try:
        function = stage3(program, schedule, serial=not isinstance(schedule, CpuSchedule))
    except StageIError:
        return False
    want, got = interpret(program, arguments), run_loops(function, arguments)
    for output in CASES[name].outputs:
        what = f"{output} of {name}, {index_dtype}, seed {seed}, {schedule!r}"
        np.testing.assert_allclose(got[output], want[output], rtol=1e-12, atol=1e-12, equal_nan=True, err_msg=what)
    return True
