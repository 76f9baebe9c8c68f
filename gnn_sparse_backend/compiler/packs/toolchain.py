"""Versions that decide a kernel's machine code, and those that decide how it is called."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ...system import identity


def source_hash(folder: Path) -> str:
    """SHA-256 over the relative paths and contents of all Python files below ``folder``."""
    digest = hashlib.sha256()
    above = len(folder.parts)
    files = [(*Path(at).parts[above:], name) for at, _, names in os.walk(folder) for name in names]
    for parts in sorted(each for each in files if each[-1].endswith(".py")):
        with open(os.path.join(folder, *parts), "rb", buffering=0) as file:  # a fifth of what pathlib takes
            text = file.read()
        for part in ("/".join(parts).encode(), text):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


# Taken at import, as the other modules of the compiler are: an edit made while the process runs must not give the
# code of the old modules the key of the new ones.
_COMPILER_SOURCE = source_hash(Path(__file__).resolve().parents[1])


@functools.cache
def toolchain() -> Mapping[str, str]:
    """What besides program, plan and target decides the machine code: versions, compiler source, host platform.

    Without TVM, where nothing is compiled, its version is "none".
    """
    return MappingProxyType(
        {
            "tvm": _version("apache-tvm", "tvm"),
            **calling_versions(),
            "platform": identity(),
        }
    )


@functools.cache
def calling_versions() -> Mapping[str, str]:
    """What decides how a kernel is called: a process runs those kernels of others that were made with the same."""
    return MappingProxyType(
        {
            "tvm_ffi": _version("apache-tvm-ffi", "tvm_ffi"),
            "gnn_sparse_backend": importlib.import_module("gnn_sparse_backend").__version__,
            "compiler_source": _COMPILER_SOURCE,
        }
    )


def _version(distribution: str, module: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        pass
    try:  # built from source and put on the path
        return str(importlib.import_module(module).__version__)
    except ImportError:
        return "none"
