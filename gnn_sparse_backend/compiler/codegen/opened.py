"""A library whose bytes are in memory, opened without a file of its own where the system has files in memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator

import tvm_ffi

from .errors import BuildError


def open_packed(name: str, library: bytes) -> tvm_ffi.Module:
    """The module of a library's bytes, its parallel loops as they are."""
    open_library = tvm_ffi.get_global_func("ffi.Module.load_from_file.so")  # by its path's ending it would not be known
    try:
        with _as_file(library) as path:
            module: tvm_ffi.Module = open_library(path, "so")
            return module
    except (RuntimeError, OSError, ValueError) as error:
        raise BuildError(name, f"its library cannot be loaded: {error}") from error


_numbers = itertools.count(1)


@contextlib.contextmanager
def _as_file(library: bytes) -> Iterator[str]:
    """A path at which bytes can be read meanwhile: a file in memory, else one that only this user can read."""
    try:
        descriptor = os.memfd_create("gsb-kernel", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux, or not allowed
        pass
    else:
        # The loader takes a path that it has seen for the library that it found there, and descriptors are used again:
        # the bits of a number, as "/" and "/.", make each path another.
        path = f"/proc/self/fd{f'{next(_numbers):b}'.replace('0', '/').replace('1', '/.')}/{descriptor}"
        with os.fdopen(descriptor, "wb") as file:
            file.write(library)
            file.flush()
            if os.path.exists(path):
                yield path
                return
    with tempfile.TemporaryDirectory(prefix="gsb-") as folder:
        path = os.path.join(folder, "kernel.so")
        with open(path, "wb") as file:
            file.write(library)
        yield path
