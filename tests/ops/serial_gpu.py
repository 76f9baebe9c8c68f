"""A stand-in for a GPU: operators plan and dispatch as for CUDA, and kernels are those scheduled for CUDA, run
serially.

What is replaced is the boundary alone: what architecture a device has, what its driver tells, and how a scheduled
program becomes code.
"""

from __future__ import annotations

import dataclasses
import importlib
import os

import pytest

from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.ops.core import cuda_build
from gnn_sparse_backend.ops.core import plans_cuda as cuda_plans
from gnn_sparse_backend.ops.relational import schedules_cuda_rows
from gnn_sparse_backend.planner.cuda import rows as cuda_rows
from gnn_sparse_backend.planner.cuda.gpu import Gpu
from gnn_sparse_backend.runtime import devices

ARCH = "serial"
# With GSB_SIMT=1 (`python -m tests.simt`), kernels are their CUDA source, thread by thread.
_threads = importlib.import_module("tests.simt.driver") if os.environ.get("GSB_SIMT") == "1" else None
GPU = Gpu("a stand-in", ARCH, cache=1 << 16)
LAUNCHED: list[str] = []
"""Names of the programs whose kernels ran since the test began; kernels are kept from test to test."""


def build(program, schedule, arch):
    assert arch == ARCH, arch
    kernel = _threads.build(program, schedule) if _threads else compile_program(program, schedule, serial=True)

    def launch(*arguments):
        LAUNCHED.append(program.name)
        kernel.entry(*arguments)

    return dataclasses.replace(kernel, entry=launch)


def stand_in(monkeypatch, arch: str, build) -> None:
    """Let tensors of the CPU take the way of tensors on a GPU of this architecture, whose kernels ``build`` makes."""
    monkeypatch.setattr(devices, "arch_of", lambda device: arch)
    monkeypatch.setattr(devices, "on_cpu", lambda device: False)
    gpu = dataclasses.replace(GPU, arch=arch)
    monkeypatch.setattr(cuda_plans, "_gpu", lambda device, arch: gpu)
    monkeypatch.setattr(cuda_build, "build", build)


def cut_rows_short(monkeypatch, longest: int, part: int) -> None:
    """Rows of more than ``longest`` non-zeros are cut into parts of ``part``."""
    monkeypatch.setattr(cuda_rows, "LONG_ROW", longest)
    monkeypatch.setattr(cuda_rows, "PART", part)


@pytest.fixture
def serial_gpu(monkeypatch):
    """Tensors of the CPU take the way of tensors on a GPU. Gives the names of what is launched meanwhile."""
    LAUNCHED.clear()
    stand_in(monkeypatch, ARCH, build)
    return LAUNCHED


@pytest.fixture
def owned_rows(serial_gpu, monkeypatch):
    """Blocks of a GPU own rows of relational products however few there are. Gives the names of what is launched."""
    monkeypatch.setattr(schedules_cuda_rows, "LEAST_BLOCKS", 1)
    return serial_gpu


@pytest.fixture(autouse=True)
def everything_on_the_serial_gpu(request):
    """With GSB_SERIAL_GPU=1 every test of a folder whose ``conftest.py`` has this takes the way to a GPU."""
    if os.environ.get("GSB_SERIAL_GPU") == "1":
        request.getfixturevalue("serial_gpu")
