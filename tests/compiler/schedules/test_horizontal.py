"""Sub-kernels of a decomposed operator in one loop: same results, one parallel region, one launch; and its refusals."""

from __future__ import annotations

import pytest
from hypothesis import given

from gnn_sparse_backend.compiler.codegen import build_jit
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import cuda_source, cuda_target
from gnn_sparse_backend.compiler.compile import compile_program, stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.library import products, relational
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.cuda import gpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.shared.horizontal import fuse_horizontally
from tests.compiler.programs_under_test import CASES
from tests.compiler.structures import seeds
from tests.compiler.test_stages import call, compare, few, program_of


@pytest.mark.parametrize(
    "schedule", [cpu_schedule(fuse_horizontally()), gpu_schedule(fuse_horizontally())], ids=["cpu", "cuda"]
)
@given(seed=seeds)
@few
def test_fused_loops_mean_what_stage_one_means(schedule, seed):
    program = program_of("spmm_in_hyb", "int32")
    arguments = CASES["spmm_in_hyb"].arguments(program, seed)
    compare(run_loops(stage3(program, schedule), arguments), interpret(program, arguments), ("C",), 1e-12)


@given(seed=seeds)
@few
def test_fused_machine_code_means_what_stage_one_means(seed):
    program = program_of("spmm_in_hyb", "int64")
    arguments = CASES["spmm_in_hyb"].arguments(program, seed)
    kernel = compile_program(program, cpu_schedule(fuse_horizontally()))
    compare(call(kernel, program, arguments), interpret(program, arguments), ("C",), 1e-6)


def test_one_parallel_region():
    program = program_of("spmm_in_hyb", "int32")
    assert stage3(program, cpu_schedule()).script().count("T.parallel(") == 4
    assert stage3(program, cpu_schedule(fuse_horizontally())).script().count("T.parallel(") == 1


def test_one_launch():
    program = program_of("spmm_in_hyb", "int32")

    def launches(schedule):
        source = cuda_source(build_jit(stage3(program, schedule), cuda_target("sm_90")))
        return source.count("{") and sum("__global__" in line and ";" not in line for line in source.splitlines())

    assert launches(gpu_schedule()) == 4
    assert launches(gpu_schedule(fuse_horizontally())) == 1


def test_refuses_different_outer_axes():
    with pytest.raises(StageIError, match="'scatter' begins with axis 'V', 'gather' with 'E'"):
        stage3(relational.hypergraph_convolution(4), cpu_schedule(fuse_horizontally()))


def test_refuses_reductions_outside():
    with pytest.raises(StageIError, match="begins with axis 'R'"):
        stage3(relational.rgms_heterogeneous(2, 2), cpu_schedule(fuse_horizontally()))


def test_refuses_elements_of_another_task():
    """The second iteration reads what other elements of the common axis wrote: it must wait for all of them."""
    p = ProgramBuilder("neighbours")
    m, nnz = p.sizes("m", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (m, nnz), ("indptr", "indices"))
    X = p.buffer("X", (I,), "float32")
    Y = p.buffer("Y", (I,), "float32")
    Z = p.buffer("Z", (I,), "float32")
    with p.iterate("double", (I,), "S") as (i,):
        Y[i] = X[i] + X[i]
    with p.iterate("gather", (I, J), "SR") as (i, j):
        with p.init():
            Z[i] = 0.0
        Z[i] = Z[i] + Y[j]
    with pytest.raises(StageIError, match="'gather' reaches elements of 'Y' outside its element of 'I'"):
        stage3(p.finish(), cpu_schedule(fuse_horizontally()))


def test_refuses_serial_loops():
    program = program_of("spmm_in_hyb", "int32")
    with pytest.raises(StageIError, match="not all parallel"):
        stage3(program, cpu_schedule(fuse_horizontally(), parallel=False))


def test_single_iteration_is_left_alone():
    program = products.csr_spmm(4)
    assert stage3(program, cpu_schedule(fuse_horizontally())).script() == stage3(program, cpu_schedule()).script()
