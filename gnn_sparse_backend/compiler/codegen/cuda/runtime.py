"""What TVM needs of CUDA at run time: found, loaded, and named where it is missing. Nothing here needs a GPU.

TVM's wheel has its CUDA runtime in a library of its own, linked against version 13 of NVIDIA's runtime, which it loads
when it is imported, and goes without where it cannot. NVIDIA's runtime may be in the wheel ``nvidia-cuda-runtime``,
where the dynamic linker does not look, so it is loaded here first.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import tvm_ffi

from ....config import CUDA_COMPILER
from ....deferred import load_devices, tvm
from ..errors import BuildError
from .driver import DriverError, driver_version, split
from .machine_code import default_compiler
from .nvidia import CUDA, DRIVER, INSTALL, RUNTIME, find_library, in_wheels, nvcc_path
from .nvrtc import missing_for_nvrtc

UPDATE = f"update NVIDIA's driver to version 580 or later, which is for CUDA {CUDA}"
# What CUDA 13's compilers still make machine code for.
OLDEST = 75


def missing_for_cuda() -> list[str]:
    """What keeps CUDA kernels from being compiled and run in this process, in words, most basic first; empty for
    nothing.

    Each says what is there, what is wanted, and what to do.
    """
    missing = [*_missing_driver(), *_missing_runtime()]
    if not missing and not load_runtime():
        missing.append(
            f"TVM's own CUDA runtime does not load: {_load_error()}; pip install --force-reinstall apache-tvm"
        )
    return missing + _missing_compiler()


def require_cuda(framework: str = "") -> None:
    """Raise BuildError that says what is missing, unless nothing is. framework: whose tensors they are, in words."""
    missing = missing_for_cuda()
    if missing:
        of = f" ({framework})" if framework else ""
        advice = "`gsb doctor` lists what there is; operands on the CPU work without any of it"
        raise BuildError("CUDA", f"kernels for a GPU lack something here{of}: {'; '.join(missing)}. {advice}")


def require_arch(arch: str) -> None:
    """Raise BuildError for a GPU that CUDA's compilers no longer make machine code for."""
    if is_too_old(arch):
        raise BuildError(
            "CUDA",
            f"the GPU is of {arch}, and CUDA {CUDA} compiles for sm_{OLDEST} and later; move the operands "
            "with .to('cpu')",
        )


def is_too_old(arch: str) -> bool:
    """Whether CUDA's compilers no longer make machine code for an architecture ("sm_70")."""
    return int(arch.removeprefix("sm_").rstrip("af")) < OLDEST


def runtime_version() -> tuple[int, int]:
    """The version of NVIDIA's runtime library that is found, (13, 0). Raises OSError where there is none."""
    version, library = ctypes.c_int(), find_library(RUNTIME)
    if library is None or library.cudaRuntimeGetVersion(ctypes.byref(version)):
        raise OSError(f"{RUNTIME} is not found")
    return split(version.value)


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


def _missing_driver() -> list[str]:
    if find_library(DRIVER) is None:
        return [f"{DRIVER}, NVIDIA's driver, is not on this machine; install the driver, version 580 or later"]
    try:
        major, minor = driver_version()
    except DriverError as error:
        return [f"{DRIVER} is no driver that works: {error}; install NVIDIA's driver, version 580 or later"]
    if major < CUDA:
        return [f"NVIDIA's driver is for CUDA {major}.{minor}, and {RUNTIME} needs one for CUDA {CUDA}.0; {UPDATE}"]
    return []


def _missing_runtime() -> list[str]:
    if find_library(RUNTIME) is not None:
        return []
    others = sorted({path.name for path in in_wheels("*/lib/libcudart.so.*")})
    instead = f" ({', '.join(others)} is, which does not do, and may stay)" if others else ""
    return [
        f"{RUNTIME}, the runtime of CUDA {CUDA} that TVM is linked against, is not found{instead}; {INSTALL} "
        f"brings it, beside a PyTorch for CUDA {CUDA - 1} too"
    ]


def _missing_compiler() -> list[str]:
    try:
        compiler, chosen = default_compiler(), CUDA_COMPILER.get()
    except ValueError as error:
        return [str(error)]
    if compiler == "nvcc" and nvcc_path() is not None:
        return []
    nvrtc = "; ".join(missing_for_nvrtc())
    if chosen == "nvcc":
        return [
            "GSB_CUDA_COMPILER asks for nvcc, which is not found; put it on PATH, set CUDA_HOME, or unset "
            "GSB_CUDA_COMPILER"
        ]
    if not nvrtc:
        return []
    if chosen == "nvrtc":
        return [f"GSB_CUDA_COMPILER asks for NVRTC, which cannot be used: {nvrtc}; {INSTALL} brings all of it"]
    return [
        f"a compiler of CUDA source is not found: NVRTC cannot be used, {nvrtc}, and there is no nvcc; {INSTALL} "
        "brings NVRTC and its headers, or put nvcc on PATH"
    ]


def _loaded() -> bool:
    load_devices()
    return tvm_ffi.get_global_func("device_api.cuda", allow_missing=True) is not None


def _load_error() -> str:
    try:
        ctypes.CDLL(str(_tvm_library()))
    except OSError as error:
        return str(error)
    return "it registers no device"


def _tvm_library() -> Path:
    return Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
