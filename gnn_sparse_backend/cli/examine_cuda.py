"""What ``gsb doctor`` says of CUDA: the driver, its GPUs, PyTorch's own CUDA, NVIDIA's libraries and compilers."""

from __future__ import annotations

import subprocess

from .findings import ABSENT, OK, Finding

_GROUP = "cuda"


def examine_cuda() -> list[Finding]:
    """Nothing here is "broken": operands on the CPU work without any of it."""
    try:
        from ..compiler.codegen.cuda.runtime import missing_for_cuda
    except (ImportError, OSError, RuntimeError):
        return []  # the cpu group has the reason
    missing = missing_for_cuda()
    ready = (
        "kernels are compiled and run" if not missing else "operands must be on the CPU; missing: " + "; ".join(missing)
    )
    kernels = _finding("kernels", not missing, ready)
    return [_driver(), *_gpus(), _torch(), _runtime(), _nvrtc(), _headers(), _nvcc(), kernels]


def _finding(name: str, there: bool, text: str) -> Finding:
    return Finding(_GROUP, name, OK if there else ABSENT, text)


def _driver() -> Finding:
    from ..compiler.codegen.cuda.driver import DriverError, driver_version
    from ..compiler.codegen.cuda.nvidia import CUDA, DRIVER, RUNTIME, find_library
    from ..compiler.codegen.cuda.runtime import UPDATE

    if find_library(DRIVER) is None:
        return _finding(
            "driver", False, f"{DRIVER} not found: no GPU can be used; install NVIDIA's driver, version 580 or later"
        )
    try:
        major, minor = driver_version()
    except DriverError as error:
        return _finding("driver", False, f"{DRIVER}, which does not work: {error}")
    if major < CUDA:
        return _finding("driver", False, f"{DRIVER}, for CUDA {major}.{minor}: too old for {RUNTIME}; {UPDATE}")
    return _finding("driver", True, f"{DRIVER}, for CUDA {major}.{minor}")


def _gpus() -> list[Finding]:
    from ..compiler.codegen.cuda.driver import DriverError, devices
    from ..compiler.codegen.cuda.nvidia import CUDA, DRIVER, find_library
    from ..compiler.codegen.cuda.runtime import OLDEST, is_too_old

    if find_library(DRIVER) is None:
        return []
    try:
        found = devices()
    except DriverError as error:
        return [_finding("gpu", False, f"the driver shows none: {error}")]
    if not found:
        return [_finding("gpu", False, "the driver shows none; does CUDA_VISIBLE_DEVICES hide it?")]
    old = f", too old: CUDA {CUDA} compiles for sm_{OLDEST} and later"
    ages = [is_too_old(gpu.arch) for gpu in found]
    return [
        _finding(f"gpu {number}", not too_old, f"{gpu.name}, {gpu.arch}{old if too_old else ''}")
        for number, (gpu, too_old) in enumerate(zip(found, ages))
    ]


def _torch() -> Finding:
    try:
        import torch
    except Exception as error:  # the versions group says more
        return _finding("torch", False, f"import torch fails: {type(error).__name__}: {error}")
    name = f"PyTorch {torch.__version__}"
    if torch.version.hip is not None:
        return _finding("torch", False, f"{name} is for ROCm {torch.version.hip}: there are no kernels for its GPUs")
    if torch.version.cuda is None:
        return _finding("torch", False, f"{name} is built without CUDA: it has no tensors on a GPU")
    there = torch.cuda.is_available()
    sees = f"sees {torch.cuda.device_count()} GPU(s)" if there else "sees no GPU"
    return _finding("torch", there, f"{name} is built for CUDA {torch.version.cuda}, and {sees}")


def _runtime() -> Finding:
    from ..compiler.codegen.cuda.nvidia import INSTALL, RUNTIME
    from ..compiler.codegen.cuda.runtime import runtime_version

    try:
        version = runtime_version()
    except OSError as error:
        return _finding("runtime", False, f"{error}: TVM's CUDA runtime needs it: {INSTALL}")
    return _finding("runtime", True, f"{RUNTIME}, of CUDA {'.'.join(map(str, version))}")


def _nvrtc() -> Finding:
    from ..compiler.codegen.cuda.nvidia import INSTALL, NVRTC, find_library
    from ..compiler.codegen.cuda.nvrtc import NvrtcError, nvrtc_version

    if find_library(NVRTC) is None:
        return _finding("nvrtc", False, f"{NVRTC} not found: {INSTALL}")
    try:
        return _finding("nvrtc", True, f"{NVRTC}, of CUDA {nvrtc_version()}")
    except NvrtcError as error:
        return _finding("nvrtc", False, f"{NVRTC}, which does not work: {error}")


def _headers() -> Finding:
    from ..compiler.codegen.cuda.nvidia import INSTALL, include_folders, missing_headers

    missing = missing_headers()
    if missing:
        return _finding("headers", False, f"NVRTC needs them, not found: {', '.join(missing)}: {INSTALL}")
    return _finding("headers", True, " ".join(include_folders()))


def _nvcc() -> Finding:
    from ..compiler.codegen.cuda.nvidia import nvcc_path

    nvcc = nvcc_path()
    if nvcc is None:
        return _finding("nvcc", False, "not found; it is not needed beside NVRTC")
    try:
        lines = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=30).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        return _finding("nvcc", False, f"{nvcc}, which does not run: {error}")
    return _finding(
        "nvcc", True, f"{nvcc}, {next((line.strip() for line in lines if 'release' in line), 'version unknown')}"
    )
