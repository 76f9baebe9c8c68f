"""The CPU that this process runs on, found at run time."""

from __future__ import annotations

import functools
from pathlib import Path

import tvm

from .description import Target

# The kernel's names, in /proc/cpuinfo, of the vector features that LLVM spells on the right. A hypervisor may hide any of them
# from a processor that is otherwise recognised by its family and model.
_CPUINFO_TO_LLVM = {
    "ssse3": "ssse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "popcnt": "popcnt", "movbe": "movbe",
    "avx": "avx", "avx2": "avx2", "fma": "fma", "f16c": "f16c", "bmi1": "bmi", "bmi2": "bmi2", "abm": "lzcnt",
    "avx512f": "avx512f", "avx512cd": "avx512cd", "avx512bw": "avx512bw", "avx512dq": "avx512dq", "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi", "avx512_vbmi2": "avx512vbmi2", "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg", "avx512_vpopcntdq": "avx512vpopcntdq", "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16", "avx_vnni": "avxvnni", "gfni": "gfni", "vaes": "vaes", "vpclmulqdq": "vpclmulqdq",
    "amx_tile": "amx-tile", "amx_int8": "amx-int8", "amx_bf16": "amx-bf16",
}  # fmt: skip


@functools.lru_cache(maxsize=None)
def host_target() -> Target:
    """The CPU of this process: LLVM's name for it, with the features that both LLVM and the operating system report.

    Returns
    -------
    Target of kind "llvm". Found once per process.
    """
    cpu = str(tvm.get_global_func("target.llvm_get_system_cpu")())
    triple = str(tvm.get_global_func("target.llvm_get_system_triple")())
    hidden = missing_features(_features(cpu, triple, ()), _cpuinfo_flags())
    return Target("llvm", cpu, triple, features=_features(cpu, triple, hidden), disabled=hidden)


def missing_features(assumed: tuple[str, ...], flags: frozenset[str]) -> tuple[str, ...]:
    """Features LLVM assumes (its names) that the operating system does not report (``flags``, the kernel's names), sorted.

    An empty ``flags`` means that the operating system says nothing, and nothing is missing then.
    """
    if not flags:
        return ()
    return tuple(sorted(llvm for kernel, llvm in _CPUINFO_TO_LLVM.items() if llvm in assumed and kernel not in flags))


def _features(cpu: str, triple: str, disabled: tuple[str, ...]) -> tuple[str, ...]:
    found = tvm.get_global_func("target.llvm_get_cpu_features")(Target("llvm", cpu, triple, disabled=disabled).to_tvm())
    return tuple(sorted(str(name) for name in found))


def _cpuinfo_flags() -> frozenset[str]:
    """The x86 feature flags that Linux reports; empty on other systems and other processors."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), frozenset())
