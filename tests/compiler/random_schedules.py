"""Random schedules of the programs of operators, for the CPU and, one thread after the other, for a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gnn_sparse_backend.compiler import (
    Program,
    StageIError,
    interpret,
    run_loops,
    stage3,
)
from gnn_sparse_backend.compiler.language.program import walk_iterations
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.cuda import gpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.lanes import fold_in_lanes
from gnn_sparse_backend.compiler.schedules.primitives.cpu.unroll_and_jam import unroll_and_jam
from gnn_sparse_backend.compiler.schedules.primitives.cuda.cache_row import cache_row
from gnn_sparse_backend.compiler.schedules.primitives.cuda.side_by_side import visit_side_by_side
from gnn_sparse_backend.compiler.schedules.primitives.cuda.team_reduce import fold_across_lanes
from gnn_sparse_backend.compiler.schedules.sequence import is_for_gpu
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.compiler.schedules.units import UNITS, unit_schedule
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
            parallel, vectorize = (choose((True, False)) for _ in range(2))
            steps = [fold_in_lanes(*each) for each in lanes] + [unroll_and_jam(*each) for each in together]
            return cpu_schedule(*steps, parallel=parallel, vectorize=vectorize)
        case "cuda":
            return gpu_schedule()
        case "teams":
            some = [tuple(name for name in names if choose((False, False, True))) for _ in range(3)]
            lanes, teams = choose((1, 2, 4, 32)), choose((1, 2, 4))
            turns = ((choose(names), choose((2, 3))),) if choose((False, True)) else ()
            primitives = fold_across_lanes, visit_side_by_side, cache_row
            steps = [each(name, lanes) for each, named in zip(primitives, some) for name in named]
            return team_schedule(lanes, *steps, teams=teams, turns=turns)
    return unit_schedule(tuple((name, choose(UNITS)) for name in names if choose((False, True))))


def check(name: str, index_dtype: str, seed: int, schedule: Any) -> bool:
    """Whether a schedule takes a program; if so, its loops compute what the program means, to twelve digits.

    Loops run one after the other, so races of a `unit_schedule`, which are its user's to see to, do not show.
    """
    program = program_of(name, index_dtype)
    arguments = CASES[name].arguments(program, seed)
    try:
        function = stage3(program, schedule, serial=is_for_gpu(schedule))
    except StageIError:
        return False
    want, got = interpret(program, arguments), run_loops(function, arguments)
    for output in CASES[name].outputs:
        what = f"{output} of {name}, {index_dtype}, seed {seed}, {schedule!r}"
        np.testing.assert_allclose(got[output], want[output], rtol=1e-12, atol=1e-12, equal_nan=True, err_msg=what)
    return True
