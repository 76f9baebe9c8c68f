"""What TVM needs of CUDA at run time: found, loaded, and named where it is missing. Nothing here needs a GPU.

TVM's wheel has its CUDA runtime in a library of its own, linked against version 13 of NVIDIA's runtime, which it loads when
it is imported, and goes without where it cannot. NVIDIA's runtime may be in the wheel ``nvidia-cuda-runtime``, where the
dynamic linker does not look, so it is loaded here first.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import tvm
import tvm_ffi

from .cuda import in_wheels, nvcc_path, nvrtc_available
from .errors import BuildError

RUNTIME = "libcudart.so.13"
DRIVER = "libcuda.so.1"
INSTALL = "pip install 'gnn-sparse-backend[cuda]'"


def missing_for_cuda() -> list[str]:
    """What keeps CUDA kernels from being compiled and run in this process, in words, most basic first; empty for nothing."""
    missing = []
    if find_library(DRIVER) is None:
        missing.append(f"{DRIVER}, NVIDIA's driver, is not on this machine; install the driver, version 580 or later")
    if find_library(RUNTIME) is None:
        missing.append(f"{RUNTIME}, the runtime of CUDA 13 that TVM is linked against, is not found; {INSTALL} "
                       "brings it, beside a PyTorch for CUDA 12 too")  # fmt: skip
    if not missing and not load_runtime():
        missing.append(f"TVM's own CUDA runtime does not load: {_load_error()}")
    if not nvrtc_available() and nvcc_path() is None:
        missing.append(f"a compiler of CUDA source is not found; {INSTALL} brings NVRTC, or put nvcc on PATH")
    return missing


def require_cuda() -> None:
    """Raise BuildError that says all that is missing, unless nothing is."""
    missing = missing_for_cuda()
    if missing:
        advice = "`gsb doctor` lists what there is; operands on the CPU work without any of it"
        raise BuildError("CUDA", f"{'; '.join(missing)}. {advice}")


def load_runtime() -> bool:
    """Load TVM's CUDA runtime if it is not loaded yet; whether it is now."""
    if _loaded():
        return True
    if find_library(RUNTIME) is None:
        return False
    try:
        ctypes.CDLL(str(_tvm_library()))
    except OSError:
        return False
    return _loaded()


def _loaded() -> bool:
    return tvm_ffi.get_global_func("device_api.cuda", allow_missing=True) is not None


def _load_error() -> str:
    try:
        ctypes.CDLL(str(_tvm_library()))
    except OSError as error:
        return str(error)
    return "it registers no device"


def _tvm_library() -> Path:
    return Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"


@functools.lru_cache(maxsize=None)
def find_library(name: str) -> ctypes.CDLL | None:
    """A shared library, where the dynamic linker finds it or in one of NVIDIA's wheels; kept loaded."""
    for path in (name, *in_wheels(f"*/lib/{name}")):
        try:
            return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    return None


__all__ = ["DRIVER", "INSTALL", "RUNTIME", "find_library", "load_runtime", "missing_for_cuda", "require_cuda"]
