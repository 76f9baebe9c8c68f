"""Stage II and III functions: those we make pass validation, and broken ones are refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm_ffi
from tvm import s_tir, tirx

from gnn_sparse_backend.compiler.compile import stage2, stage3
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.lowering import lower
from gnn_sparse_backend.compiler.position.validate import StageError, validate_loops, validate_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.cuda import gpu_schedule
from tests.compiler.test_stages import NAMES, program_of


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_of_every_program_is_valid(name):
    program = program_of(name, "int32")
    validate_position(lower(program))
    stage2(program, cpu_schedule())
    for schedule in (cpu_schedule(), gpu_schedule()):
        validate_loops(stage3(program, schedule))


def rewritten(function, kind, change):
    body = tvm_ffi.structural_mutate(function.body, [(kind, change)])
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def test_unbound_variable():
    def free(loop, mutator):
        return loop.body if loop.loop_var.name == "k" else mutator.default_mutate(loop)

    with pytest.raises(StageError, match="variable 'k' is used where it is not bound"):
        validate_loops(rewritten(lower(csr_spmm(4)).function, tirx.For, free))


def test_missing_parameter():
    function = lower(csr_spmm(4)).function
    params = [p for p in function.params if p.name != "B"]
    with pytest.raises(StageError, match="'B' is used where it is not"):
        validate_loops(tirx.PrimFunc(params, function.body, function.ret_type, function.attrs))


def test_missing_size():
    function = lower(csr_spmm(4)).function
    params = [p for p in function.params if p.name != "n"]
    with pytest.raises(StageError, match="variable 'n' is used where it is not bound"):
        validate_loops(tirx.PrimFunc(params, function.body, function.ret_type, function.attrs))


def test_two_blocks_of_one_name():
    def rename(block, mutator):
        block = mutator.default_mutate(block)
        name = "spmm" if block.name_hint == "spmm_0" else block.name_hint
        return s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, name, block.body, block.init, block.alloc_buffers
        )

    with pytest.raises(StageError, match="2 blocks of the name 'spmm'"):
        validate_loops(rewritten(lower(csr_spmm(4)).function, s_tir.SBlock, rename))


def test_narrow_index():
    """A 32-bit index overflows on a row offset times a width."""

    def narrow(store, mutator):
        indices = [i.astype("int32") for i in store.indices]
        return tirx.BufferStore(store.buffer, store.value, indices) if store.buffer.name == "C" else store

    with pytest.raises(StageError, match="buffer 'C' is indexed by .* of type int32, not int64"):
        validate_loops(rewritten(lower(csr_spmm(4)).function, tirx.BufferStore, narrow))


def test_axis_table_must_agree():
    stage2 = lower(csr_spmm(4))
    axes = dict(stage2.axes)
    with pytest.raises(StageError, match="'A' has 2 dimensions and stands on 1 axes"):
        validate_position(replace(stage2, axes={**axes, "A": axes["A"][:1]}))
    with pytest.raises(StageError, match="'Q' of the axis table is not in it"):
        validate_position(replace(stage2, axes={**axes, "Q": axes["A"]}))
