"""Content keys: two kernels share a key exactly when they are the same machine code for the same callers.

A key is the SHA-256 of everything that decides the code: the printed stage I program (index and value types are part
of its text), the plan, the target, the name of the function, and the toolchain. The toolchain includes a hash of this
compiler's own source files, so that an edited compiler never loads a kernel of the version before the edit.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import json
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

# Such a target means another CPU on each machine that shares the cache.
_NATIVE_CPU = re.compile(r"\bnative\b")

DIGEST = re.compile(r"[0-9a-f]{64}")


def source_hash(folder: Path) -> str:
    """SHA-256 over the relative paths and contents of all Python files below ``folder``."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        for part in (path.relative_to(folder).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


# Taken at import, as the other modules of the compiler are: an edit made while the process runs must not give the
# code of the old modules the key of the new ones.
_COMPILER_SOURCE = source_hash(Path(__file__).resolve().parents[1])


@functools.cache
def toolchain() -> Mapping[str, str]:
    """What besides program, plan and target decides the machine code: versions, compiler source, host platform."""
    return MappingProxyType(
        {
            "tvm": _version("apache-tvm", "tvm"),
            "tvm_ffi": _version("apache-tvm-ffi", "tvm_ffi"),
            "gnn_sparse_backend": importlib.import_module("gnn_sparse_backend").__version__,
            "compiler_source": _COMPILER_SOURCE,
            "platform": f"{sys.platform}-{platform.machine()}",
        }
    )


@dataclass(frozen=True)
class KernelKey:
    """The identity of a kernel.

    ``program``: printed stage I program. ``plan``: text of format and schedule with their parameters. ``target``: text
    that names kind and CPU with its features, or architecture (``codegen.target.Target.key``; for code compiled by a
    tool outside this environment, such as nvcc, its version too). ``symbol``: function in the library. ``digest`` is
    the key itself, 64 hexadecimal digits.

    Raises TypeError for a part that is not a string; ValueError for an empty program, target or symbol, and for a
    target whose CPU is "native".
    """

    program: str
    plan: str
    target: str
    symbol: str = "main"
    toolchain: Mapping[str, str] = field(default_factory=toolchain, compare=False)  # in the digest
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        for name in ("program", "plan", "target", "symbol"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"{name} of a kernel key must be text, got {type(value).__name__}: {value!r:.80}")
            if not value and name != "plan":
                raise ValueError(f"{name} of a kernel key is empty; it must say what is compiled")
        if _NATIVE_CPU.search(self.target):
            raise ValueError(
                f"the target {self.target!r} names its CPU 'native', which is another CPU on another "
                "machine; name the CPU itself (tvm's global function target.llvm_get_system_cpu has it)"
            )
        # JSON keeps the parts apart: ("ab", "c") and ("a", "bc") are different texts.
        parts = [self.program, self.plan, self.target, self.symbol, dict(self.toolchain)]
        text = json.dumps(parts, sort_keys=True)
        object.__setattr__(self, "digest", hashlib.sha256(text.encode()).hexdigest())


def _version(distribution: str, module: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # built from source and put on the path
        return str(importlib.import_module(module).__version__)
