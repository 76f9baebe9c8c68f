"""Content keys: two kernels share a key exactly when they are the same machine code for the same callers.

A key is the SHA-256 of everything that decides the code: the printed stage I program (index and value types are part
of its text), the plan, the target, the name of the function, and the toolchain. The toolchain includes a hash of this
compiler's own source files, so that an edited compiler never loads a kernel of the version before the edit.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field

from ...frozen import dataclass
from ..packs.file import identity_of
from ..packs.toolchain import toolchain

# Such a target means another CPU on each machine that shares the cache.
_NATIVE_CPU = re.compile(r"\bnative\b")

DIGEST = re.compile(r"[0-9a-f]{64}")


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

    @property
    def identity(self) -> str:
        """What a pack knows the kernel by: the key without the toolchain."""
        return identity_of(self.program, self.plan, self.target, self.symbol)
