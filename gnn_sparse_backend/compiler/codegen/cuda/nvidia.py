"""NVIDIA's shared libraries and headers on this machine: the driver's, those in wheels, and those of a toolkit."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import shutil
from pathlib import Path

CUDA = 13
"""The version of CUDA that TVM's wheel is built for, and with it its runtime's and NVRTC's."""
DRIVER = "libcuda.so.1"
RUNTIME = f"libcudart.so.{CUDA}"
NVRTC = f"libnvrtc.so.{CUDA}"
INSTALL = "pip install 'gnn-sparse-backend[cuda]'"

# What TVM's sources include, and what that includes, by the wheels that have it: NVRTC brings no headers of its own.
HEADERS = {
    "cuda_fp16.h": "nvidia-cuda-runtime",
    "crt/host_defines.h": "nvidia-cuda-crt",
    "cuda/std/cstdint": "nvidia-cuda-cccl",
}


@functools.cache
def find_library(name: str) -> ctypes.CDLL | None:
    """A shared library, where the dynamic linker finds it, in one of NVIDIA's wheels or in a toolkit; kept loaded."""
    paths = [name, *in_wheels(f"*/lib/{name}"), *(root / lib / name for root in toolkits() for lib in ("lib64", "lib"))]
    # NVRTC goes with the headers, those of the wheels first; of a runtime or a driver there is but one in a process.
    # What is global is what TVM's runtime is linked against.
    mode = ctypes.RTLD_GLOBAL
    if name == NVRTC:
        paths, mode = [*paths[1:], name], ctypes.RTLD_LOCAL
    for path in paths:
        try:
            return ctypes.CDLL(str(path), mode=mode)
        except OSError:
            continue
    return None


def in_wheels(pattern: str) -> list[Path]:
    """Paths in NVIDIA's wheels, which share the namespace ``nvidia``: those of CUDA 13 are below nvidia/cu13."""
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None or spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    return [path for root in roots for path in sorted(Path(root).glob(pattern))]


def toolkits() -> list[Path]:
    """Folders of CUDA's toolkit: ``$CUDA_HOME``, ``$CUDA_PATH``, and /usr/local/cuda."""
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return [*named, Path("/usr/local/cuda")]


def nvcc_path() -> str | None:
    """The nvcc of this machine: in ``$CUDA_HOME`` or ``$CUDA_PATH``, on ``PATH``, in /usr/local/cuda; else None."""
    *named, usual = toolkits()
    for home in named:
        found = shutil.which("nvcc", path=str(home / "bin"))
        if found:
            return found
    return shutil.which("nvcc") or shutil.which("nvcc", path=str(usual / "bin"))


def include_folders() -> list[str]:
    """Header folders for NVRTC: those of the wheels of CUDA 13, which go with its own, then the toolkit's."""
    roots = [*in_wheels(f"cu{CUDA}"), *toolkits()]
    folders = [folder for root in roots for folder in (root / "include", root / "include" / "cccl") if folder.is_dir()]
    return [str(folder) for folder in folders]


def missing_headers() -> list[str]:
    """Headers that NVRTC would not find, each with the wheel that has it."""
    folders = include_folders()
    return [
        f"{header} ({wheel})"
        for header, wheel in HEADERS.items()
        if not any(os.path.isfile(os.path.join(f, header)) for f in folders)
    ]
