"""Targets, building, loading and threads: the code that knows how TVM is spelled at build time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...deferred import names_of

if TYPE_CHECKING:
    from .build import build_jit, build_shared, generate_assembly, generate_cuda
    from .cpu.host import compiling_for, host_target, running_target, target_of
    from .cuda.machine_code import CudaBinary, compile_cuda, cuda_source, cuda_target
    from .cuda.ptxas import PtxasStatistics
    from .errors import BuildError
    from .loaded import LoadedModule, load
    from .target import Target
else:
    __getattr__, __dir__ = names_of(
        __name__,
        {
            ".build": "build_jit build_shared generate_assembly generate_cuda",
            ".cpu.host": "compiling_for host_target running_target target_of",
            ".cuda.machine_code": "CudaBinary compile_cuda cuda_source cuda_target",
            ".cuda.ptxas": "PtxasStatistics",
            ".errors": "BuildError",
            ".loaded": "LoadedModule load",
            ".target": "Target",
        },
    )

__all__ = [
    "BuildError",
    "CudaBinary",
    "LoadedModule",
    "PtxasStatistics",
    "Target",
    "build_jit",
    "build_shared",
    "compile_cuda",
    "compiling_for",
    "cuda_source",
    "cuda_target",
    "generate_assembly",
    "generate_cuda",
    "host_target",
    "load",
    "running_target",
    "target_of",
]
