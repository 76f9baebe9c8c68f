"""The CPU that this process runs on, found at run time."""

from __future__ import annotations

import ctypes
import functools
import json
import platform
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ....deferred import global_function
from ..kept import kept
from ..target import Target

# The kernel's names, in /proc/cpuinfo, of the vector features that LLVM spells on the right. A hypervisor may hide any
# of them from a processor that is otherwise recognised by its family and model, or give a processor that has them an
# older model's number.
_SPELLED_ALIKE = (
    "ssse3 popcnt movbe avx avx2 fma f16c bmi2 avx512f avx512cd avx512bw avx512dq avx512vl avx512ifma avx512vbmi "
    "gfni vaes vpclmulqdq"
).split()
_CPUINFO_TO_LLVM = {
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


@functools.cache
def host_target() -> Target:
    """The CPU of this process: LLVM's name for it, with the features that the operating system reports.

    Returns
    -------
    Target of kind "llvm". Found once per process, by LLVM where no earlier process has asked it about such a CPU.
    """
    flags = _usable_flags()
    model = "\n".join((*_cpuinfo_model(), *sorted(flags)))
    path = kept("host", model, lambda folder: _write(folder, _found(flags))) if model else None
    if path is None:
        return _found(flags)
    fields = json.loads(path.read_text()).items()
    found: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields}
    return Target(**found)


def _write(folder: Path, target: Target) -> Path:
    path = folder / "host.json"
    path.write_text(json.dumps(asdict(target)))
    return path


def _found(flags: frozenset[str]) -> Target:
    """The CPU as LLVM knows it, corrected by what the operating system says."""
    named = Target(
        "llvm",
        str(global_function("target.llvm_get_system_cpu")()),
        str(global_function("target.llvm_get_system_triple")()),
    )
    hidden, unexpected = feature_differences(_features(named), flags)
    corrected = replace(named, disabled=hidden, enabled=unexpected)
    return replace(corrected, features=_features(corrected))


_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18


def may_use_tiles() -> bool:
    """Whether this process may use the tile registers of AMX. Linux has them for processes that ask, which this does.

    Threads and forks of the process may use them then, too.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) == 0)


def feature_differences(assumed: tuple[str, ...], flags: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where LLVM (``assumed``, its names) and the operating system (``flags``, the kernel's names) disagree about the
    processor.

    Returns two sorted tuples of LLVM's names: what LLVM assumes and the system does not report, and what the system
    reports and LLVM does not assume. Both are empty where ``flags`` is: the operating system says nothing.
    """
    if not flags:
        return (), ()
    hidden = sorted(llvm for kernel, llvm in _CPUINFO_TO_LLVM.items() if llvm in assumed and kernel not in flags)
    unexpected = sorted(llvm for kernel, llvm in _CPUINFO_TO_LLVM.items() if llvm not in assumed and kernel in flags)
    return tuple(hidden), tuple(unexpected)


def _features(target: Target) -> tuple[str, ...]:
    known = global_function("target.Target")(target.host)
    return tuple(sorted(map(str, global_function("target.llvm_get_cpu_features")(known))))


_MODEL = re.compile(
    r"^(?:vendor_id|cpu family|model|model name|stepping|Features|CPU implementer|CPU architecture|CPU variant|CPU part"
    r"|CPU revision)\s*:.*$",
    re.M,
)


def _cpuinfo_model() -> list[str]:
    """What Linux says of the model of each kind of processor here; empty on other systems."""
    try:
        return sorted(set(_MODEL.findall(Path("/proc/cpuinfo").read_text())))
    except OSError:
        return []


def _usable_flags() -> frozenset[str]:
    """The features that Linux reports and lets this process use."""
    flags = _cpuinfo_flags()
    if "amx_tile" in flags and not may_use_tiles():
        flags -= {flag for flag in flags if flag.startswith("amx_")}
    return flags


def _cpuinfo_flags() -> frozenset[str]:
    """The x86 feature flags that Linux reports; empty on other systems and other processors."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), frozenset())
