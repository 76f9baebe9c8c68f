"""Schedules as sequences of primitives: what a step says of itself, what it is given, and primitives of one's own."""

from __future__ import annotations

import pytest

from gnn_sparse_backend.compiler import (
    ProgramBuilder,
    StageIError,
    compile_program,
    cpu_schedule,
    fold_in_lanes,
    iteration_primitive,
    prefetch_gather,
    primitive,
    program_from_script,
    stage2,
    stage3,
    unroll_and_jam,
)
from gnn_sparse_backend.compiler.language.axes import ROLES, Axis, dense_fixed
from gnn_sparse_backend.compiler.language.definition import digest_of
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.schedules.sequence import flat_primitive, is_for_gpu, of_stage
from gnn_sparse_backend.compiler.schedules.teams import team_schedule


def marked(text):
    """A primitive of these tests that says ``text`` of the function."""

    @primitive()
    def mark(stage2, about):
        return stage2.with_function(stage2.function.with_attr(about, text))

    return mark


@primitive(instructions=True)
def told(stage2, instructions=True):
    return stage2.with_function(stage2.function.with_attr("told", str(instructions)))


def test_a_schedule_says_what_it_does():
    schedule = cpu_schedule(
        fold_in_lanes("spmm", 4), ahead=(prefetch_gather("spmm", "B", first=0, count=4, distance=8),)
    )
    assert repr(schedule) == (
        "(vectorize_all(), parallelize_all(()), prefetch_gather('spmm', 'B', count=4, distance=8, first=0), "
        "decompose_reductions(), fold_in_lanes('spmm', 4))"
    )
    assert schedule == eval(repr(schedule), {**_names(), "__builtins__": {}}) and hash(schedule)


def _names():
    from gnn_sparse_backend.compiler.schedules import cpu

    return {**vars(cpu), "prefetch_gather": prefetch_gather, "fold_in_lanes": fold_in_lanes}


def test_steps_are_applied_in_their_order():
    program = csr_spmm(4)
    function = stage2(program, (*cpu_schedule(), marked("first")("who"), marked("last")("who"))).function
    assert function.attrs["who"] == "last"


@pytest.mark.parametrize("serial, want", [(False, "True"), (True, "False")])
def test_who_runs_serially_is_told_that_there_are_no_instructions(serial, want):
    schedule = team_schedule(1, told())
    assert is_for_gpu(schedule) and stage2(csr_spmm(4), schedule, serial).function.attrs["told"] == want
    assert [step.name for step in of_stage(schedule, 1)] == []


def test_kernels_of_a_primitive_follow_its_code():
    """One of another module may change between two processes, whose disk cache is the same."""

    @primitive()
    def mark(stage2, about):
        return stage2.with_function(stage2.function.with_attr(about, "other"))

    program, keys = csr_spmm(5), set()
    here, there = marked("one")("who"), mark("who")
    assert here.name == there.name == "mark" and repr(here) != repr(there)
    assert repr(here) == repr(marked("one")("who")) != repr(marked("two")("who"))  # a plain value it was made with
    assert repr(marked(program)("who")) == repr(marked(object())("who"))  # nothing else that it reads is seen
    assert not unroll_and_jam("rows", 2).version
    for step in (here, there):
        keys.add(compile_program(program, (*cpu_schedule(), step)).key)
    assert len(keys) == 2


def test_an_iteration_is_named():
    @iteration_primitive()
    def look(stage2, iteration, seen):
        seen.append(iteration)
        return stage2

    program, seen = csr_spmm(4), []
    stage3(program, (*cpu_schedule(), look("spmm", seen)))
    assert seen == [program.iteration("spmm")]
    with pytest.raises(StageIError, match="has no iteration 'nothing'"):
        stage3(program, (*cpu_schedule(), look("nothing", seen)))


def test_roles_of_axes():
    p = ProgramBuilder("roles")
    axes = [p.role_axis("K", 4, role) for role in ("", *ROLES)]
    X = p.buffer("X", (p.dense_fixed("I", p.size("m")),), "float32")
    with p.iterate("rows", (X.value.axes[0],), "S") as (i,):
        X[i] = 0.0
    assert [(axis.name, axis.role) for axis in axes] == [("K", ""), *((f"K_{role}", role) for role in ROLES)]
    program = p.finish()
    assert program_from_script(program.script()) == program and "'K_lane', 4, role='lane'" in program.script()
    with pytest.raises(StageIError, match="role 'row' is not one of lane, warp"):
        dense_fixed("K", 4, "row")
    with pytest.raises(StageIError, match="or it is not dense-fixed"):
        Axis("J", "sparse_fixed", 4, dense_fixed("I", 4), nnz_cols=2, indices="indices", role="lane")


def test_equal_code_has_one_version_however_often_it_is_referred_to():
    """Or another process would find no kernel of its primitive."""

    @primitive()
    def mark(stage2):
        return stage2.with_function(stage2.function.with_attr("who", "a text that nobody has interned"))

    @flat_primitive
    def flat(function, program):
        return function

    code = mark().rewrite.__code__
    referred = [code.co_consts, code.co_consts, code.co_names, code]
    assert len(referred) == 4 and digest_of(mark().rewrite) == mark().version
    assert flat().version and flat().stage == 3
