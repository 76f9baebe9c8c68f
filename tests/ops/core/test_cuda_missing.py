"""What a GPU's kernels lack on this machine is said in full by the first call on one, and calls on the CPU go on."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import BuildError
from gnn_sparse_backend.compiler.codegen.cuda.nvidia import DRIVER, RUNTIME
from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.ops.core import cuda_build
from gnn_sparse_backend.ops.core import plans_cuda as cuda_plans
from gnn_sparse_backend.planner.cuda.gpu import Gpu
from gnn_sparse_backend.runtime import devices
from tests.acted_machine import BUILTINS, EVERYTHING

INSTALL = r"pip install 'gnn-sparse-backend\[cuda\]'"


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in EVERYTHING if name not in names)


@pytest.fixture
def on_a_gpu(monkeypatch):
    """From where it is called, operands are taken for those of a GPU; until it is called again."""
    real = devices.arch_of
    cuda = torch.device("cuda:0")

    def switch(on: bool) -> None:
        monkeypatch.setattr(devices, "arch_of", (lambda device: real(cuda)) if on else real)

    return switch


@pytest.fixture
def capability(monkeypatch):
    """A function: the GPU is of this architecture."""
    return lambda *version: monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: version)


def graph():
    return gsb.Graph.from_coo(torch.tensor([0, 1, 1]), torch.tensor([2, 0, 1]), (2, 3))


OPERATORS = {
    "spmm": lambda: gsb.spmm(graph(), torch.ones(3, 4)),
    "sddmm": lambda: gsb.sddmm(graph(), torch.ones(2, 4), torch.ones(3, 4)),
    "segment_mm": lambda: gsb.segment_mm(torch.ones(3, 4), torch.ones(2, 4, 5), torch.tensor([1, 2])),
}

LACKING = {
    "no driver": (
        dict(libraries=without(DRIVER)),
        "libcuda.so.1, NVIDIA's driver, is not on this machine; install the driver, version 580",
    ),
    "driver for CUDA 12": (
        dict(driver_says=12040),
        "driver is for CUDA 12.4, and libcudart.so.13 needs one for CUDA 13.0; "
        "update NVIDIA's driver to version 580 or later",
    ),
    "stub of the toolkit": (
        dict(driver_says=-34),
        "libcuda.so.1 is no driver that works: cuDriverGetVersion answers with error 34",
    ),
    "no runtime": (
        dict(libraries=without(RUNTIME)),
        f"libcudart.so.13, the runtime of CUDA 13.*is not found; {INSTALL}",
    ),
    "PyTorch for CUDA 12 alone": (
        dict(libraries=(DRIVER,), wheels=["nvidia/cuda_runtime/lib/libcudart.so.12"], headers=()),
        rf"libcudart.so.13.*not found \(libcudart.so.12 is, which does not do, and may stay\); {INSTALL}.*"
        rf"libnvrtc.so.13 \(nvidia-cuda-nvrtc\) is not found.*{INSTALL}",
    ),
    "no NVRTC": (
        dict(libraries=without("libnvrtc.so.13")),
        rf"NVRTC cannot be used, libnvrtc.so.13 \(nvidia-cuda-nvrtc\) is not found, "
        f"and there is no nvcc; {INSTALL}.*or put nvcc on PATH",
    ),
    "half of NVRTC": (
        dict(libraries=without(BUILTINS)),
        "libnvrtc-builtins.so.13.0.*is not found beside libnvrtc.so.13",
    ),
    "no headers": (
        dict(headers=("cuda_fp16.h",)),
        rf"headers are not found: crt/host_defines.h \(nvidia-cuda-crt\), "
        rf"cuda/std/cstdint \(nvidia-cuda-cccl\).*{INSTALL}",
    ),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_the_first_call_on_a_gpu_says_what_is_missing(lacking, acted_machine, on_a_gpu, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    machine, expected = LACKING[lacking]
    acted_machine(**machine)
    for call in OPERATORS.values():
        on_a_gpu(True)
        with pytest.raises(BuildError, match=f"built for CUDA 12.6.*{expected}.*gsb doctor.*operands on the CPU work"):
            call()
        on_a_gpu(False)
        call()
    assert devices.why_not(torch.device("cuda:0")) == "CUDA kernels lack something here, see gsb doctor"


@pytest.mark.parametrize(
    "asked, machine, expected",
    [
        ("nvcc", {}, "GSB_CUDA_COMPILER asks for nvcc, which is not found"),
        (
            "nvrtc",
            dict(libraries=without("libnvrtc.so.13"), nvcc="/bin/nvcc"),
            "GSB_CUDA_COMPILER asks for NVRTC, which cannot be used: libnvrtc",
        ),
        ("clang", {}, "GSB_CUDA_COMPILER must be one of nvcc, nvrtc, got 'clang'"),
    ],
)
def test_a_compiler_that_is_asked_for_and_missing(asked, machine, expected, acted_machine, on_a_gpu, monkeypatch):
    acted_machine(**machine)
    monkeypatch.setenv("GSB_CUDA_COMPILER", asked)
    on_a_gpu(True)
    with pytest.raises(BuildError, match=expected):
        OPERATORS["spmm"]()


@pytest.mark.parametrize(
    "machine",
    [{}, dict(linkers=()), dict(libraries=without("libnvrtc.so.13"), headers=(), nvcc="/bin/nvcc")],
    ids=["everything", "no linker", "nvcc alone"],
)
def test_what_suffices(machine, acted_machine, capability):
    acted_machine(**machine)
    capability(9, 0)
    assert devices.why_not(torch.device("cuda:0")) is None and devices.arch_of(torch.device("cuda:0")) == "sm_90"


def test_a_gpu_that_is_too_old(acted_machine, on_a_gpu, capability):
    acted_machine()
    capability(7, 0)
    on_a_gpu(True)
    with pytest.raises(BuildError, match="the GPU is of sm_70, and CUDA 13 compiles for sm_75 and later"):
        OPERATORS["spmm"]()


def test_kernels_leave_the_current_gpu_as_it_is(monkeypatch):
    """Through an operator: every kernel for a GPU is launched so, whichever way it was found."""
    current, launched = [0], []

    class Device:  # as PyTorch's
        def __init__(self, number):
            self.number = number

        def __enter__(self):
            self.before, current[0] = current[0], self.number

        def __exit__(self, *error):
            current[0] = self.before

    def compile_for_cpu(program, schedule, target):
        kernel = compile_program(program, schedule, serial=True)

        def launch(*arguments):
            launched.append(program.name)
            current[0] = 1  # as the host's code of TVM
            kernel.entry(*arguments)

        return dataclasses.replace(kernel, entry=launch)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda x: 1)
    monkeypatch.setattr(devices, "arch_of", lambda device: "sm_99")
    monkeypatch.setattr(cuda_plans, "_gpu", lambda device, arch: Gpu("a stand-in", arch, cache=1 << 16))
    monkeypatch.setattr(cuda_build, "compile_program", compile_for_cpu)
    for number in (0, 1):
        current[0] = number
        for call in OPERATORS.values():
            call()
            assert current == [number]
    assert {"aggregate", "edge_map"} < set(launched) and len(launched) == 2 * len(OPERATORS)
