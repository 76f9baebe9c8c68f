"""TVM's own schedule primitives on the blocks that come out of the lowering, unmodified: same results after each."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import s_tir

from gnn_sparse_backend.compiler.codegen import build_jit, host_target
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.library.products import csr_sddmm, csr_spmm
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.compiler.position.interpret import run_position
from tests.compiler.structures import complete
from tests.compiler.test_stages import call, compare


def vectorized_rows(schedule):
    i, (j, k) = *schedule.get_loops(schedule.get_sblock("spmm_0")), schedule.get_loops(schedule.get_sblock("spmm"))
    schedule.parallel(i)
    outer, inner = schedule.split(k, [None, 4])
    schedule.vectorize(inner)
    schedule.unroll(outer)
    schedule.decompose_reduction(schedule.get_sblock("spmm"), j)


def split_rows(schedule):
    (i,) = schedule.get_loops(schedule.get_sblock("spmm_0"))
    outer, _ = schedule.split(i, [None, 2])
    schedule.parallel(outer)
    j, _ = schedule.get_loops(schedule.get_sblock("spmm"))
    schedule.decompose_reduction(schedule.get_sblock("spmm"), j)


def reordered(schedule):
    block = schedule.get_sblock("spmm")
    j, k = schedule.get_loops(block)
    schedule.reorder(k, j)
    schedule.decompose_reduction(block, j)


def cached_operand(schedule):
    block = schedule.get_sblock("spmm")
    j, _k = schedule.get_loops(block)
    schedule.compute_at(schedule.cache_read(block, 1, "local"), j)
    schedule.decompose_reduction(block, j)


def arguments_of(program, outputs, seed):
    rng = np.random.default_rng(seed)
    found = complete(program, rng, {"m": 6, "n": 5})
    for name in outputs:
        found[name] = np.full_like(found[name], np.nan)
    return found


@pytest.mark.parametrize("schedule_with", [vectorized_rows, split_rows, reordered, cached_operand])
def test_spmm(schedule_with):
    program = csr_spmm(8)
    stage2 = lower(program)
    schedule = s_tir.Schedule(stage2.function)
    schedule_with(schedule)
    scheduled = stage2.with_function(schedule.mod["main"])
    kernel = build_jit(flatten(scheduled), host_target())[stage2.name]
    for seed in range(10):
        arguments = arguments_of(program, ("C",), seed)
        want = interpret(program, arguments)
        compare(run_position(scheduled, arguments), want, ("C",), 1e-12)
        compare(call(kernel, program, arguments), want, ("C",), 1e-6)


def test_two_stage_sddmm():
    """rfactor of the feature loop, the second stage of section 4.2.2 of the SparseTIR paper."""
    program = csr_sddmm(8)
    stage2 = lower(program)
    schedule = s_tir.Schedule(stage2.function)
    k = schedule.get_loops(schedule.get_sblock("sddmm"))[-1]
    _, inner = schedule.split(k, [None, 4])
    lanes = schedule.rfactor(inner, 0)
    for block in (lanes, schedule.get_sblock("sddmm")):
        loop = next(l for l in schedule.get_loops(block) if _reduces(schedule, block, l))
        schedule.decompose_reduction(block, loop)
    scheduled = stage2.with_function(schedule.mod["main"])
    for seed in range(10):
        arguments = arguments_of(program, ("O",), seed)
        compare(run_position(scheduled, arguments), interpret(program, arguments), ("O",), 1e-12)


def _reduces(schedule, block, loop) -> bool:
    """Whether the loop drives a reduction variable of the block."""
    realize = schedule.get(block)
    from tvm import tirx

    reductions = [n for n, v in enumerate(realize.iter_vars) if v.iter_type == tirx.IterVar.CommReduce]
    variable = schedule.get(loop).loop_var
    bindings = _realize_of(schedule, block).iter_values
    return any(variable.name in str(bindings[n]) for n in reductions)


def _realize_of(schedule, block):
    import tvm_ffi

    found = []
    name = schedule.get(block).name_hint
    tvm_ffi.structural_walk(
        schedule.mod["main"].body,
        (s_tir.SBlockRealize, lambda r: found.append(r) if r.block.name_hint == name else None),
        order="post",
    )
    return found[0]
