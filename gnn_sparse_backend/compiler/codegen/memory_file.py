"""Files in memory: what LLVM writes and reads, and what the loader maps, where folders may be full, read-only, or ones
that no code is run from.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator

import tvm_ffi

_numbers = itertools.count(1)


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
    with tempfile.TemporaryDirectory(prefix="gsb-") as folder:
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
    try:
        descriptor = os.memfd_create("gsb-kernel", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux, or not allowed
        yield None
        return
    try:
        yield descriptor if os.path.exists(f"/proc/self/fd/{descriptor}") else None
    finally:
        os.close(descriptor)


def _path(descriptor: int) -> str:
    # The loader takes a path that it has seen for the library that it found there, and descriptors are used again: the
    # bits of a number, as "/" and "/.", make each path another.
    return f"/proc/self/fd{f'{next(_numbers):b}'.replace('0', '/').replace('1', '/.')}/{descriptor}"
