"""CUDA kernels without a GPU: the same sequential program with its thread bindings as without, and machine code for it.

The interpreter runs thread loops in order, so it sees wrong indices and guards, not races: every program's
threads write disjoint elements, and none uses shared memory or atomics, which the source is searched for.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from gnn_sparse_backend.compiler.codegen import BuildError, build_jit
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import compile_cuda, cuda_source, cuda_target, nvcc_path
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.cuda import gpu_schedule
from tests.compiler.programs_under_test import CASES
from tests.compiler.structures import seeds
from tests.compiler.test_stages import NAMES, compare, few, program_of

OF_ANY_SIZE = "merged_sparse_product"

needs_nvcc = pytest.mark.skipif(nvcc_path() is None, reason="no nvcc on this machine")


@pytest.mark.short(8)
@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
@few
def test_thread_loops_mean_what_stage_one_means(name, seed):
    program = program_of(name, "int32")
    arguments = CASES[name].arguments(program, seed)
    want = interpret(program, arguments)
    compare(run_loops(stage3(program, gpu_schedule()), arguments), want, CASES[name].outputs, 1e-12)


def test_a_workspace_of_a_size_that_only_a_call_knows_is_refused_in_words():
    loops = stage3(program_of(OF_ANY_SIZE, "int32"), gpu_schedule())
    with pytest.raises(
        BuildError, match="local buffer 'W' .* known at run time alone, and a kernel for CUDA allocates"
    ):
        build_jit(loops, cuda_target("sm_90"))


@pytest.mark.short(10)
@pytest.mark.parametrize("name", [name for name in NAMES if name != OF_ANY_SIZE])
def test_source(name):
    program = program_of(name, "int32")
    source = cuda_source(build_jit(stage3(program, gpu_schedule()), cuda_target("sm_90")))
    assert "__global__" in source and ("blockIdx.x" in source or "threadIdx.x" in source)
    assert "__shared__" not in source and "atomicAdd(" not in source.split('extern "C"')[-1]


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "name",
    [
        "csr_spmm",
        "csr_sddmm",
        "sparse_softmax",
        "spmm_in_hyb",
        "aggregate_heads",
        "aggregate_max",
        "edge_map_dot",
        "csr_to_bsr",
    ],
)
def test_machine_code_without_spills(name, arch):
    program = program_of(name, "int32")
    source = cuda_source(build_jit(stage3(program, gpu_schedule()), cuda_target(arch)))
    binary = compile_cuda(source, arch)
    assert binary.code
    for kernel in binary.statistics:
        assert kernel.spill_stores == kernel.spill_loads == 0, kernel
        assert kernel.registers <= 80, kernel  # room for 800 threads of an SM
