"""What this machine has of CUDA, acted within the process: a driver, libraries, headers and compilers that are there or
not.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from gnn_sparse_backend.compiler.codegen import linker
from gnn_sparse_backend.compiler.codegen.cuda import driver, nvidia, nvrtc
from gnn_sparse_backend.compiler.codegen.cuda import library as cuda_library
from gnn_sparse_backend.compiler.codegen.cuda import machine_code as cuda
from gnn_sparse_backend.compiler.codegen.cuda import runtime as cuda_runtime
from gnn_sparse_backend.compiler.codegen.cuda.nvidia import DRIVER, HEADERS, NVRTC, RUNTIME
from gnn_sparse_backend.runtime import devices

BUILTINS = "libnvrtc-builtins.so.13.0"
EVERYTHING = (DRIVER, RUNTIME, NVRTC, BUILTINS)


def answer(code: int = 0, *values: int):
    """A function of a library: it writes values through the pointers it is given, and returns a code."""

    def function(*pointers):
        for pointer, value in zip(pointers, values):
            pointer._obj.value = value
        return code

    return function


def acting(monkeypatch):
    """``act(libraries, driver_says, headers, nvcc, linkers, wheels)``: what there is from now on; by default everything
    but nvcc.

    driver_says: the version of CUDA, or an error code where negative. wheels: paths in NVIDIA's wheels.
    """

    def act(
        libraries=EVERYTHING, driver_says=13000, headers=tuple(HEADERS), nvcc=None, linkers=linker.LINKERS, wheels=()
    ):
        acted = {
            DRIVER: SimpleNamespace(cuDriverGetVersion=answer(max(-driver_says, 0), driver_says), cuInit=answer(100)),
            RUNTIME: SimpleNamespace(cudaRuntimeGetVersion=answer(0, 13000)),
            NVRTC: SimpleNamespace(nvrtcVersion=answer(0, 13, 0), nvrtcGetErrorString=SimpleNamespace()),
            BUILTINS: SimpleNamespace(),
        }
        for module in (cuda_runtime, driver, nvidia, nvrtc):
            monkeypatch.setattr(module, "find_library", lambda name: acted[name] if name in libraries else None)
        lacking = [f"{header} ({wheel})" for header, wheel in HEADERS.items() if header not in headers]
        for module in (nvidia, nvrtc):
            monkeypatch.setattr(module, "missing_headers", lambda: lacking)
        for module in (cuda, cuda_library, cuda_runtime, nvidia):
            monkeypatch.setattr(module, "nvcc_path", lambda: nvcc)
        for module in (cuda_runtime, nvidia):
            monkeypatch.setattr(module, "in_wheels", lambda pattern: [Path(path) for path in wheels])
        monkeypatch.setattr(cuda_runtime, "load_runtime", lambda: True)
        monkeypatch.setattr(linker, "LINKERS", linkers)
        forget()

    def forget():
        nvrtc._library.cache_clear(), devices._cuda_arch.cache_clear(), devices._why_not.cache_clear()

    monkeypatch.delenv("GSB_CUDA_COMPILER", raising=False)
    yield act
    forget()
