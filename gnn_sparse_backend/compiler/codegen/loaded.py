"""Compiled functions in this process: what building and loading give, and how a file is loaded, which needs nothing of
what builds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tvm_ffi

from ...deferred import load_libraries, load_runtime, tvm
from ...frozen import dataclass
from .cpu import threads
from .cpu.checks import provide_checks
from .cpu.workspace import provide_runtime
from .errors import BuildError
from .object_files import is_cut_short
from .opened import open_library, open_packed


@dataclass(frozen=True)
class LoadedModule:
    """Compiled functions in this process. ``module["name"]`` is called with scalars and tensors (DLPack, no copy)."""

    names: tuple[str, ...]
    module: tvm.runtime.Module
    path: Path | None = None

    def __getitem__(self, name: str) -> Any:
        try:
            return self.module.get_function(name)
        except AttributeError as error:
            known = f"; it has {', '.join(self.names)}" if self.names else ""
            raise KeyError(f"no function {name!r} in {self.path or 'the compiled module'}{known}") from error


def load(path: str | os.PathLike[str]) -> LoadedModule:
    """Load what `build_shared` or `build_cuda_shared` wrote, with its parallel loops on the shared threads.

    It is unloaded when the module and the last of its functions are gone; code of a GPU stays, since nobody knows here
    whether it has run to its end, or is part of a CUDA graph.

    The file's code runs in this process: load only files whose origin and content are known (the kernel cache compares
    hashes). Raises BuildError when the file is missing, cut short, or not a library.
    """
    path = Path(path).absolute()
    if not path.is_file():
        raise BuildError(str(path), "no such file")
    if path.suffix == ".so" and is_cut_short(path):
        raise BuildError(str(path), "cannot be loaded: it is no complete library")
    try:
        provide_checks()
        if path.suffix == ".ll":
            from .cuda.embed_cubin import add_imports

            load_libraries()
            module = tvm_ffi.load_module(os.path.realpath(path), keep_module_alive=False)
            add_imports(module, path)
        else:
            load_runtime()
            module = open_library(path)
    except BuildError:
        raise
    except (RuntimeError, OSError, ValueError, AttributeError) as error:
        raise BuildError(str(path), f"cannot be loaded: {error}") from error
    threads.share(module)
    if module.imports:
        _of_gpus.append(module)
    return LoadedModule((), module, path)


def load_packed(name: str, library: bytes) -> LoadedModule:
    """Load a library of a pack, of code for a CPU, whose hash was compared. Needs no TVM, and no folder to write into
    where the system has files in memory. Raises BuildError.
    """
    provide_runtime()
    provide_checks()
    module = open_packed(name, library)
    threads.share(module)
    return LoadedModule((), module)


_of_gpus: list[tvm.runtime.Module] = []
