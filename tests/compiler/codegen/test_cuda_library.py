"""CUDA kernels as files: built, kept, loaded and launched by a process that has TVM's CUDA runtime, but no GPU
(`fake_cuda`).
"""

from __future__ import annotations

import ctypes

import pytest

from gnn_sparse_backend.compiler.codegen import BuildError
from gnn_sparse_backend.compiler.codegen.cuda import library
from gnn_sparse_backend.compiler.codegen.cuda import machine_code as cuda_module
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import cuda_target, default_compiler, nvrtc_available
from gnn_sparse_backend.compiler.codegen.cuda.nvidia import find_library, nvcc_path
from tests.compiler import fake_cuda

PROGRAM = """
import ctypes
import sys
import torch
import tvm
import gnn_sparse_backend.compiler.codegen.cuda.machine_code as cuda
from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.compiler.codegen import cuda_target, linker
from gnn_sparse_backend.compiler.codegen.cuda.runtime import missing_for_cuda
from gnn_sparse_backend.compiler.codegen.cuda.nvidia import DRIVER, find_library
from gnn_sparse_backend.runtime.devices import keep_current_device

assert missing_for_cuda() == [], missing_for_cuda()
linker.LINKERS = linker.LINKERS if LINKER else ()
compiled = cuda.compile_cuda
cuda.compile_cuda = lambda *a: (print("compiles"), compiled(*a))[1]
program = aggregate(AggregateSpec(parse("x0"), (Operand("column", (4,), "float32"),), (4,)))
kernel = compile_program(program, team_schedule(1), cuda_target("sm_80"))
print(kernel.origin, "__global__" in kernel.script("cuda"))
ptr, one = torch.tensor([0, 1], dtype=torch.int32), torch.ones(1, 4)
try:
    kernel(1, 1, 1, 1, ptr, ptr, ptr[:1], one, one)
except ValueError as error:
    print("refused", "device_type" in str(error))

acted = find_library(DRIVER)
launches, current = (ctypes.c_int * 8).in_dll(acted, "fake_launches"), ctypes.c_int.in_dll(acted, "fake_current")
tensors = (ptr, ptr, ptr[:1], one, one)
on_second = [tvm.runtime.empty(x.shape, str(x.dtype).removeprefix("torch."), tvm.cuda(1)) for x in tensors]
current.value = 0
kernel(1, 1, 1, 1, *on_second)
print("launched", *launches[:2], "current", current.value)

class Shown(torch.Tensor):
    def get_device(self):
        return 1

class Device:  # as PyTorch's
    def __init__(self, number):
        self.number = number
    def __enter__(self):
        self.before, current.value = current.value, self.number
    def __exit__(self, *error):
        current.value = self.before

torch.cuda.device_count, torch.cuda.current_device, torch.cuda.device = lambda: 2, lambda: current.value, Device
kept = keep_current_device(lambda *arguments: kernel(1, 1, 1, 1, *on_second))
for number in (0, 1):
    current.value = number
    kept(1, 1, 1, 1, one.as_subclass(Shown))
    print("launched", *launches[:2], "current", current.value)
torch.cuda.device_count = lambda: 1
assert keep_current_device(kernel) is kernel
"""


@pytest.mark.slow
@pytest.mark.skipif(nvcc_path() is None and not nvrtc_available(), reason="no compiler of CUDA source on this machine")
@pytest.mark.parametrize("linker", [True, False], ids=["linker", "no linker"])
def test_a_kernel_is_compiled_once_found_again_and_launched(linker, tmp_path):
    """On the GPU of its tensors, which the host's code of TVM makes the current one: what calls it from PyTorch undoes
    that.
    """
    environment = fake_cuda.environment(fake_cuda.make(tmp_path, gpus=2))
    said = [fake_cuda.run(PROGRAM.replace("if LINKER", f"if {linker}"), environment) for _ in range(2)]
    launched = ["refused True", "launched 0 1 current 1", "launched 0 2 current 0", "launched 0 3 current 1"]
    # the second process loads machine code from the cache; tensors of the CPU are refused by the kernel itself
    assert said == [["compiles", "compiled True", *launched], ["disk True", *launched]]
    assert {path.suffix for path in (tmp_path / "cache").glob("*/aggregate.*")} == {".so" if linker else ".ll"}


def test_the_compiler_can_be_chosen(monkeypatch):
    monkeypatch.setattr(cuda_module, "nvrtc_available", lambda: True)
    monkeypatch.delenv("GSB_CUDA_COMPILER", raising=False)
    assert default_compiler() == "nvrtc"
    monkeypatch.setenv("GSB_CUDA_COMPILER", "nvcc")
    assert default_compiler() == "nvcc"
    monkeypatch.setenv("GSB_CUDA_COMPILER", "clang")
    with pytest.raises(ValueError, match="GSB_CUDA_COMPILER must be one of nvcc, nvrtc, got 'clang'"):
        default_compiler()


def test_a_key_says_which_compiler_makes_the_code(monkeypatch):
    target, keys = cuda_target("sm_80"), set()
    monkeypatch.setattr(library, "cuda_compiler", library.cuda_compiler.__wrapped__)  # which a process asks once
    for version in ((12, 8), (13, 0)):
        monkeypatch.setattr(library, "default_compiler", lambda: "nvrtc")
        monkeypatch.setattr(library, "nvrtc_version", lambda version=version: version)
        keys.add(library.cuda_key(target))
    monkeypatch.setattr(library, "default_compiler", lambda: "nvcc")
    monkeypatch.setattr(library, "nvcc_path", lambda: None)
    keys.add(library.cuda_key(target))
    assert len(keys) == 3 and all(key.startswith(target.key) for key in keys)


def test_a_refused_source_keeps_its_name_and_text_through_tvm(monkeypatch):
    """TVM calls the compiler from C++; what it raises comes out as it is."""

    def refuse(*arguments):
        raise BuildError("kernel", "nvcc failed", "__global__ void kernel() {}")

    monkeypatch.setattr(cuda_module, "compile_cuda", refuse)
    with pytest.raises(BuildError) as failure:
        with cuda_module.own_compile_callback("sm_80"):
            import tvm_ffi

            try:
                tvm_ffi.get_global_func("tvm_callback_cuda_compile")("source")
            except Exception as error:
                raise RuntimeError("as TVM says it") from error
    assert failure.value.kernel == "kernel" and "__global__" in failure.value.source


def test_libraries_of_wheels_are_found():
    assert find_library("libthere-is-no-such.so.1") is None
    assert isinstance(find_library("libc.so.6"), ctypes.CDLL)
