"""CUDA kernels as files: built, kept and loaded by a process that has TVM's CUDA runtime, but no GPU.

The runtime loads where it finds NVIDIA's driver, so a stub of it stands in: a library of that name whose functions all answer
that there is no device.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

from gnn_sparse_backend.compiler.target import BuildError
from gnn_sparse_backend.compiler.target import cuda as cuda_module
from gnn_sparse_backend.compiler.target.cuda import default_compiler, nvcc_path
from gnn_sparse_backend.compiler.target.cuda_runtime import DRIVER, RUNTIME, find_library

LIBRARY = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE

PROGRAM = """
import sys
import torch
import gnn_sparse_backend.compiler.target.cuda as cuda
from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.compiler.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.compiler.programs.message import parse
from gnn_sparse_backend.compiler.programs.operands import Operand
from gnn_sparse_backend.compiler.schedule.cuda_teams import CudaTeams
from gnn_sparse_backend.compiler.target import cuda_target
from gnn_sparse_backend.compiler.target.cuda_runtime import missing_for_cuda

assert missing_for_cuda() == [], missing_for_cuda()
compiled = cuda.compile_cuda
cuda.compile_cuda = lambda *a: (print("compiles"), compiled(*a))[1]
program = aggregate(AggregateSpec(parse("x0"), (Operand("column", (4,), "float32"),), (4,)))
kernel = compile_program(program, CudaTeams(1, 128), cuda_target("sm_80"))
print(kernel.origin, "__global__" in kernel.script("kernel"))
ptr, one = torch.tensor([0, 1], dtype=torch.int32), torch.ones(1, 4)
try:
    kernel(1, 1, 1, 1, ptr, ptr, ptr[:1], one, one)
except ValueError as error:
    print("device_type" in str(error))
"""


@pytest.fixture
def stub_driver(tmp_path):
    """A folder with a driver that has no device; skips where one cannot be made."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler or not shutil.which("nm") or find_library(RUNTIME) is None:
        pytest.skip("a stub of the driver wants a C compiler, nm and NVIDIA's runtime library")
    if find_library(DRIVER) is not None:
        pytest.skip("this machine has a driver")
    symbols = subprocess.run(["nm", "-D", "--undefined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    names = sorted(set(re.findall(r"\bcu[A-Z]\w*", symbols)))
    source = tmp_path / "stub.c"
    source.write_text("\n".join(f"int {name}(void) {{ return {NO_DEVICE}; }}" for name in names))
    subprocess.run([compiler, "-shared", "-fPIC", f"-Wl,-soname,{DRIVER}", str(source), "-o", str(tmp_path / DRIVER)], check=True)
    return tmp_path


@pytest.mark.skipif(nvcc_path() is None, reason="no nvcc on this machine")
def test_a_kernel_is_compiled_once_and_found_again(stub_driver):
    environment = {
        **os.environ, "LD_LIBRARY_PATH": f"{stub_driver}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "GSB_CACHE_DIR": str(stub_driver / "cache"), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }  # fmt: skip
    said = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, cwd=Path.cwd())
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    # the second process loads machine code from the cache; tensors of the CPU are refused by the kernel itself
    assert said == [["compiles", "compiled", "True", "True"], ["disk", "True", "True"]]


def test_the_compiler_can_be_chosen(monkeypatch):
    monkeypatch.setattr(cuda_module, "nvrtc_available", lambda: True)
    monkeypatch.delenv("GSB_CUDA_COMPILER", raising=False)
    assert default_compiler() == "nvrtc"
    monkeypatch.setenv("GSB_CUDA_COMPILER", "nvcc")
    assert default_compiler() == "nvcc"
    monkeypatch.setenv("GSB_CUDA_COMPILER", "clang")
    with pytest.raises(ValueError, match="GSB_CUDA_COMPILER must be one of nvcc, nvrtc, got 'clang'"):
        default_compiler()


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
