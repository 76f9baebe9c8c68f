"""Targets, building, loading and threads: the code that knows how TVM is spelled at build time."""

from .build import build_jit, build_shared, generate_assembly, generate_cuda, load
from .cpu.host import host_target
from .cuda.machine_code import CudaBinary, compile_cuda, cuda_source, cuda_target
from .cuda.ptxas import PtxasStatistics
from .errors import BuildError
from .loaded import LoadedModule
from .target import Target

__all__ = [
    "BuildError",
    "CudaBinary",
    "LoadedModule",
    "PtxasStatistics",
    "Target",
    "build_jit",
    "build_shared",
    "compile_cuda",
    "cuda_source",
    "cuda_target",
    "generate_assembly",
    "generate_cuda",
    "host_target",
    "load",
]
