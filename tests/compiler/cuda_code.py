"""The CUDA source of kernels that the planner makes, without a GPU and without keeping anything."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gnn_sparse_backend.compiler.codegen import generate_cuda
from gnn_sparse_backend.compiler.codegen.cuda.library import check_lane_reductions
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import compile_cuda, nvcc_path
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.ops.core import cuda_build
from gnn_sparse_backend.ops.grouped import schedules_cuda as cuda_grouped
from gnn_sparse_backend.ops.message import schedules_cuda as cuda_kernels
from gnn_sparse_backend.ops.relational import schedules_cuda as cuda_rgms
from gnn_sparse_backend.ops.relational import schedules_cuda_rows as cuda_rgms_rows
from gnn_sparse_backend.planner.cuda import blocks as cuda_bsr

ARCHITECTURES = ("sm_80", "sm_90")
needs_nvcc = pytest.mark.skipif(nvcc_path() is None, reason="no nvcc on this machine")


def source(make, arch: str) -> str:
    """The source of the one kernel that ``make(arch)`` asks the planner for."""
    texts = []

    def build(program, schedule, arch):
        function = stage3(program, schedule)
        texts.append(generate_cuda(function, arch))
        check_lane_reductions(program.name, function, texts[-1])
        return SimpleNamespace(entry=None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_build, "build", build)
        for module in (cuda_kernels, cuda_grouped, cuda_rgms, cuda_rgms_rows, cuda_bsr):
            for name, function in list(vars(module).items()):
                if hasattr(function, "cache_clear"):  # what is built here is no kernel
                    patch.setattr(module, name, function.__wrapped__)
        make(arch)
    (text,) = texts
    return text


def check_machine_code(text: str, arch: str, shared: int = 0, registers: int = 128) -> None:
    """Machine code without spills, with local arrays in registers, and no more bytes of shared memory than that."""
    binary = compile_cuda(text, arch)
    assert binary.code and binary.statistics
    for kernel in binary.statistics:
        assert kernel.spill_stores == kernel.spill_loads == kernel.stack == 0, kernel
        assert kernel.shared <= shared and kernel.registers <= registers, kernel
