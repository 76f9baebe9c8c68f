"""Libraries opened, and objects written: in files in memory where the system has them, since folders may be full,
read-only, or ones that no code is run from.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator

import tvm_ffi

from ... import system
from .errors import BuildError

_ERRORS = (RuntimeError, OSError, ValueError, AttributeError)
_numbers = itertools.count(1)


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


@contextlib.contextmanager
def readable(data: bytes, name: str) -> Iterator[str]:
    """A path at which bytes can be read meanwhile: a file in memory, else one of this name in a folder of this user's.

    Raises OSError where there is neither.
    """
    with _in_memory() as descriptor:
        if descriptor is not None:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(data)
            yield _path(descriptor)
            return
    # Windows lets nobody delete a library in use
    with tempfile.TemporaryDirectory(prefix="gsb-", ignore_cleanup_errors=True) as folder:
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(data)
        yield path


@contextlib.contextmanager
def object_of(module: tvm_ffi.Module) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The object file of a compiled module: its path, and the descriptors that a process has to inherit that reads it.

    In memory where the system has such files, since LLVM ends the process where it cannot write one.
    """
    with _in_memory() as descriptor:
        if descriptor is not None:
            module.write_to_file(_path(descriptor), "o")
            yield _path(descriptor), (descriptor,)
            return
    with tempfile.TemporaryDirectory(prefix="gsb-") as folder:
        path = os.path.join(folder, "kernel.o")
        module.write_to_file(path)
        yield path, ()


@contextlib.contextmanager
def _in_memory() -> Iterator[int | None]:
    """The descriptor of an empty file in memory; None where the system has none, or none with a path."""
    descriptor = system.file_in_memory("gsb-kernel")
    if descriptor is None:
        yield None
        return
    try:
        yield descriptor if os.path.exists(system.path_of(descriptor)) else None
    finally:
        os.close(descriptor)


def _path(descriptor: int) -> str:
    # The loader takes a path that it has seen for the library that it found there, and descriptors are used again: the
    # bits of a number, as "/" and "/.", make each path another.
    folder, number = os.path.split(system.path_of(descriptor))
    return f"{folder}{f'{next(_numbers):b}'.replace('0', '/').replace('1', '/.')}/{number}"
