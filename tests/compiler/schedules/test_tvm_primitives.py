"""TVM's own schedule primitives as steps, on the program of SpMM and on one whose sum has an init: each is usable, and
then means what stage I means, or refuses with TVM's words (docs/decisions/tvm-primitives.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import s_tir
from tvm.script import tirx as T

from gnn_sparse_backend.compiler import interpret, primitive, run_loops, stage3, tile_axis
from gnn_sparse_backend.compiler.language.program import Program
from gnn_sparse_backend.compiler.library.products import csr_sddmm
from gnn_sparse_backend.compiler.position.validate import StageError
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.ops.message.programs.message import arg
from gnn_sparse_backend.ops.message.programs.operands import Operand

FEATURES = 16


def spmm() -> Program:
    """What `gsb.spmm` with weights runs, its features in one tile."""
    operands = Operand("column", (FEATURES,), "float32"), Operand("edge", (1,), "float32")
    return tile_axis(aggregate(AggregateSpec(arg(1) * arg(0), operands, (FEATURES,))), "K", ((FEATURES,),))


def sddmm() -> Program:
    """A sum whose block has an init, as TVM wants reductions."""
    return csr_sddmm(FEATURES)


def arguments(program: Program) -> dict:
    rng = np.random.default_rng(0)
    indptr = np.array([0, 3, 3, 8, 9], np.int32)
    known = {"num_groups": 2, "m": 4, "n": 5, "nnz": 9, "group_ptr": np.array([0, 2, 4], np.int32)}
    for name in program.parameter_names:
        if name.endswith("indptr"):
            known[name] = indptr
        elif name.endswith("indices"):
            known[name] = rng.integers(0, 5, 9).astype(np.int32)
    lengths = {"m": 4, "n": 5, "nnz": 9}
    for buffer in program.parameters:
        sparse = any(axis.name == "J" for axis in buffer.axes)
        rows = [9] if sparse else [lengths[a.length.name] for a in buffer.axes if a.name in ("I", "N")]
        dense = [a.length for a in buffer.axes if isinstance(a.length, int)]
        known[buffer.name] = rng.standard_normal((*rows, *dense)).astype(np.float32)
    return {name: known[name] for name in program.parameter_names}


def tvm_step(do: Callable[[s_tir.Schedule], object], stage: int):
    """A step of TVM's primitives, which see the function alone."""

    @primitive(stage)
    def of_function(stage2):
        schedule = s_tir.Schedule(stage2.function)
        do(schedule)
        return stage2.with_function(schedule.mod["main"])

    @primitive(stage)
    def of_loops(function, program):
        schedule = s_tir.Schedule(function)
        do(schedule)
        return schedule.mod["main"]

    return (of_function if stage == 2 else of_loops)()


def loops(schedule: s_tir.Schedule, block: str):
    return schedule.get_loops(schedule.get_sblock(block))


def split(schedule):
    schedule.split(loops(schedule, "edges_tile_0")[-1], [None, 2])


def reorder(schedule):
    outer, inner = schedule.split(loops(schedule, "edges_0")[-1], [4, 4])
    schedule.reorder(inner, outer)


def cache_read(schedule):
    schedule.cache_read(schedule.get_sblock("edges_0"), 1, "local")


def blockize(schedule):
    _, inner = schedule.split(loops(schedule, "edges_0")[-1], [2, 8])
    schedule.blockize(inner)


def tensorize(schedule):
    _, inner = schedule.split(loops(schedule, "out_0")[-1], [2, 8])
    schedule.tensorize(inner, INTRINSIC)


def rfactor(schedule):
    _, inner = schedule.split(loops(schedule, "sddmm")[-1], [2, 8])
    schedule.rfactor(inner, 0)


def rfactor_of_ours(schedule):
    schedule.rfactor(loops(schedule, "edges_tile_0")[-1], 0)


def vectorize(schedule):
    schedule.vectorize(loops(schedule, "edges_0")[-1])


INTRINSIC = "copy_8_out_of_registers"


@T.prim_func(s_tir=True)
def _copied(a: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (T.int64(8),), "float32", offset_factor=1, scope="local", align=4)
    C = T.match_buffer(c, (T.int64(8),), "float32", offset_factor=1, align=4)
    with T.sblock("root"):
        T.reads(A[T.int64(0) : T.int64(8)])
        T.writes(C[T.int64(0) : T.int64(8)])
        for k in range(T.int64(8)):
            with T.sblock("copy"):
                vk = T.axis.spatial(T.int64(8), k)
                C[vk] = A[vk]


@T.prim_func(s_tir=True)
def _in_one_vector(a: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (T.int64(8),), "float32", offset_factor=1, scope="local", align=4)
    C = T.match_buffer(c, (T.int64(8),), "float32", offset_factor=1, align=4)
    with T.sblock("root"):
        T.reads(A[T.int64(0) : T.int64(8)])
        T.writes(C[T.int64(0) : T.int64(8)])
        for k in T.vectorized(T.int64(8)):
            C[k] = A[k]


s_tir.TensorIntrin.register(INTRINSIC, _copied, _in_one_vector, override=True)

USABLE = {
    "split, stage II": (spmm, split, 2),
    "split, stage III": (spmm, split, 3),
    "reorder, stage II": (spmm, reorder, 2),
    "reorder, stage III": (spmm, reorder, 3),
    "cache_read, stage II": (spmm, cache_read, 2),
    "cache_read, stage III": (spmm, cache_read, 3),
    "blockize, stage II": (spmm, blockize, 2),
    "blockize, stage III": (spmm, blockize, 3),
    "rfactor, stage II": (sddmm, rfactor, 2),
    "rfactor, stage III": (sddmm, rfactor, 3),
}
REFUSED = {
    "tensorize, stage II": (spmm, tensorize, 2, "variable 'A' is used where it is not bound"),
    "tensorize, stage III": (spmm, tensorize, 3, "buffers do not match"),
    "rfactor of a sum of ours": (spmm, rfactor_of_ours, 2, "is not a reduction block"),
    "vectorize of a sum of ours": (spmm, vectorize, 2, "local reduction block"),
}


@pytest.mark.short(len(USABLE))
@pytest.mark.parametrize("name", USABLE)
def test_what_is_usable_means_what_stage_i_means(name):
    make, do, stage = USABLE[name]
    program = make()
    schedule = tvm_step(do, stage), *([] if stage == 3 else cpu_schedule(parallel=False, vectorize=False))
    given = arguments(program)
    result = program.parameter_names[-1]
    want, found = interpret(program, given)[result], run_loops(stage3(program, schedule), given)[result]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert stage3(program, schedule).script() != stage3(program, schedule[1:]).script()


@pytest.mark.short(len(REFUSED))
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name):
    make, do, stage, words = REFUSED[name]
    with pytest.raises((s_tir.ScheduleError, StageError), match=words):
        stage3(make(), (tvm_step(do, stage),))


def test_what_is_cached_at_stage_iii_is_the_whole_operand():
    """There blocks read whole buffers, for all TVM knows: the copy is right, and of every weight for each."""
    of_one, of_all = (stage3(spmm(), (tvm_step(cache_read, stage),)).script() for stage in (2, 3))
    assert "T.grid(nnz, T.int64(1))" in of_all and "T.grid(nnz" not in of_one
