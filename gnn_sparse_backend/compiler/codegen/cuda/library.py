"""CUDA kernels as files that the kernel cache keeps: the host's code with the GPU's machine code inside."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

from ....config import CUDA_MADE_BY
from ....deferred import tirx, tvm
from ..build import as_module, compiled, function_names
from ..errors import BuildError
from ..linker import find_linker, link
from ..target import Target
from .embed_cubin import text_with_imports
from .machine_code import cuda_source, default_compiler
from .nvidia import nvcc_path
from .nvrtc import nvrtc_version


def build_cuda_shared(function: tirx.PrimFunc | tvm.IRModule, target: Target, out_dir: str | os.PathLike[str]) -> Path:
    """Compile into a file that `load` accepts, and leave the CUDA source beside it as ``cuda.cu``.

    A shared object ``<name>.so``; on a machine without a linker LLVM text, ``<name>.ll``, with the GPU's code in it
    (`embed_cubin`). Where TVM's CUDA runtime is loaded the file holds machine code for the architecture of the target.
    Elsewhere it holds the source, which is then compiled when it is loaded. Raises BuildError, which names the kernel
    and keeps its source.
    """
    module = as_module(function)
    name = function_names(module)[0]
    made = compiled(module, target)
    source = cuda_source(made)
    for body in module.functions.values():
        check_lane_reductions(name, body, source)
    out_dir = Path(out_dir)
    (out_dir / "cuda.cu").write_text(source, encoding="utf-8")
    if find_linker() is None:
        path = out_dir / f"{name}.ll"
        try:
            path.write_text(text_with_imports(made), encoding="utf-8")
        except ValueError as error:
            raise BuildError(
                name, f"{error}; a linker (ld, gcc or cc) on PATH does without it", module.script()
            ) from error
        return path
    path = out_dir / f"{name}.so"

    def linked(file: str, objects: list[str]) -> None:
        link(name, objects, file, target, module.script)

    made.export_library(str(path), fcompile=linked)
    return path


def check_lane_reductions(name: str, function: tirx.PrimFunc, source: str) -> None:
    """Raise BuildError unless the source has all reductions among lanes that the function says it has.

    Where TVM does not recognise one it leaves an addition that each lane does for itself, without a word.
    """
    attributes = function.attrs or {}
    wanted = int(attributes["gsb.lane_reductions"]) if "gsb.lane_reductions" in attributes else 0
    found = source.count("__activemask()")
    if found < wanted:
        raise BuildError(name, f"TVM made {found} reductions among lanes of {wanted}", source)


def cuda_key(target: Target) -> str:
    """The key of a cuda target with the version of the compiler, outside of this environment, of its machine code."""
    return f"{target.key}-{cuda_compiler()}"


@functools.cache
def cuda_compiler() -> str:
    """Name and version of the compiler of CUDA source on this machine, or of the one whose kernels are in the cache."""
    if (made_by := CUDA_MADE_BY.get()) is not None:
        return made_by
    if default_compiler() == "nvrtc":
        return f"nvrtc-{nvrtc_version()}"
    nvcc = nvcc_path()
    if nvcc is None:
        return "source"
    lines = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout.split()
    return f"nvcc-{next((word for word in lines if word.startswith('V')), 'unknown')}"
