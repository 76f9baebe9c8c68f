"""What the operating system says of the processor: whether code that uses certain instructions runs here."""

from __future__ import annotations

import ctypes
import functools
import platform
import re
import sys
from collections.abc import Iterable
from pathlib import Path

# The kernel's names, in /proc/cpuinfo, of the features that LLVM spells on the right: those that it uses by itself. A
# hypervisor may hide any of them from a processor that is otherwise recognised by its family and model, or give a
# processor that has them an older model's number.
_SPELLED_ALIKE = (
    "ssse3 sse4a popcnt movbe avx avx2 fma fma4 xop tbm f16c bmi2 avx512f avx512cd avx512bw avx512dq avx512vl "
    "avx512ifma avx512vbmi gfni vaes vpclmulqdq"
).split()
CPUINFO_TO_LLVM = {
    **{name: name for name in _SPELLED_ALIKE},
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "bmi1": "bmi",
    "abm": "lzcnt",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx_vnni": "avxvnni",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}
_MODEL = re.compile(
    r"^(?:vendor_id|cpu family|model|model name|stepping|Features|CPU implementer|CPU architecture|CPU variant|CPU part"
    r"|CPU revision)\s*:.*$",
    re.M,
)
_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18


def machine() -> str:
    """The architecture, as the first word of LLVM's triples has it: "x86_64" or "aarch64"."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


@functools.cache
def usable_flags() -> frozenset[str]:
    """The features of the processor that this process may use, in the kernel's spelling; empty where the system says
    nothing.
    """
    flags = cpuinfo_flags()
    if "amx_tile" in flags and not may_use_tiles():
        flags -= {flag for flag in flags if flag.startswith("amx_")}
    return flags


def cpuinfo_flags() -> frozenset[str]:
    """The features that Linux reports of the first processor; empty on other systems."""
    named = (line.split(":", 1)[1] for line in _cpuinfo().splitlines() if line.startswith(("flags", "Features")))
    return frozenset(next(named, "").split())


def cpuinfo_model() -> list[str]:
    """What Linux says of the model of each kind of processor here; empty on other systems."""
    return sorted(set(_MODEL.findall(_cpuinfo())))


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def may_use_tiles() -> bool:
    """Whether this process may use the tile registers of AMX. Linux has them for processes that ask, which this does.

    Threads and forks of the process may use them then, too.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) == 0)


def needs_of(cpu: str, triple: str, features: Iterable[str]) -> tuple[str, ...]:
    """The flags without which code for a processor (LLVM's names) does not run, sorted.

    LLVM names the features of ARM processors otherwise than Linux does: a generic one needs the vectors that all of 64
    bits have, and any other, which can only be this machine's, all flags of this machine.
    """
    if triple.startswith("aarch64"):
        return ("asimd", "fp") if cpu == "generic" else tuple(sorted(usable_flags()))
    named = frozenset(features)
    return tuple(sorted(flag for flag, llvm in CPUINFO_TO_LLVM.items() if llvm in named))


def lacking(architecture: str, needs: Iterable[str]) -> tuple[str, ...]:
    """What this processor lacks to run code for an architecture that needs these flags; nothing where it runs here."""
    if architecture != machine():
        return (f"an {architecture} processor",)
    return tuple(flag for flag in needs if flag not in usable_flags())
