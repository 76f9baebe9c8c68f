"""Libraries opened: from their files, or from their bytes without a file of their own where the system has files in
memory.
"""

from __future__ import annotations

import os

import tvm_ffi

from .errors import BuildError
from .memory_file import readable

_ERRORS = (RuntimeError, OSError, ValueError, AttributeError)


def open_library(path: str | os.PathLike[str]) -> tvm_ffi.Module:
    """The module of a library's file, its parallel loops as they are; of its bytes where the system runs no code from
    there, as where a folder is mounted ``noexec``.

    It is unloaded when nobody holds it or a function of it. Raises BuildError.
    """
    try:
        return tvm_ffi.load_module(os.path.realpath(path), keep_module_alive=False)
    except _ERRORS as error:
        try:
            with open(path, "rb") as file:
                return open_packed(os.fspath(path), file.read())
        except (BuildError, OSError):
            raise BuildError(os.fspath(path), f"cannot be loaded: {error}") from error


def open_packed(name: str, library: bytes) -> tvm_ffi.Module:
    """The module of a library's bytes, its parallel loops as they are. Raises BuildError."""
    open_file = tvm_ffi.get_global_func("ffi.Module.load_from_file.so")  # by its path's ending it would not be known
    try:
        with readable(library, "kernel.so") as path:
            module: tvm_ffi.Module = open_file(path, "so")
            return module
    except _ERRORS as error:
        raise BuildError(name, f"its library cannot be loaded: {error}") from error
