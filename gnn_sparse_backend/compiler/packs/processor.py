"""What a processor must have to run code for a target: between Linux's names of its features and LLVM's."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from ... import system

# The kernel's names of the features that LLVM spells on the right: those that it uses by itself. A hypervisor may hide
# any of them from a processor that is otherwise recognised by its family and model, or give a processor that has them
# an older model's number.
_SPELLED_ALIKE = (
    "ssse3 sse4a popcnt movbe avx avx2 fma fma4 xop tbm f16c bmi2 avx512f avx512cd avx512bw avx512dq avx512vl "
    "avx512ifma avx512vbmi gfni vaes vpclmulqdq"
).split()
_X86 = {
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
_ARM = {
    "fp": "fp-armv8",
    "asimd": "neon",
    "crc32": "crc",
    "atomics": "lse",
    "asimdhp": "fullfp16",
    "asimdrdm": "rdm",
    "jscvt": "jsconv",
    "fcma": "complxnum",
    "lrcpc": "rcpc",
    "asimddp": "dotprod",
    "asimdfhm": "fp16fml",
    "sve": "sve",
    "sve2": "sve2",
    "i8mm": "i8mm",
    "bf16": "bf16",
}
KERNEL_TO_LLVM = {"x86_64": _X86, "aarch64": _ARM}
_MODEL = re.compile(
    r"^(?:vendor_id|cpu family|model|model name|stepping|Features|CPU implementer|CPU architecture|CPU variant|CPU part"
    r"|CPU revision)\s*:.*$",
    re.M,
)


@functools.cache
def usable_flags() -> frozenset[str]:
    """The features of the processor that this process may use, in the kernel's spelling, and the length of its scalable
    vectors, as ``sve256``; empty where the system says nothing.
    """
    flags = system.processor_flags()
    if "amx_tile" in flags and not system.may_use_tiles():
        flags -= {flag for flag in flags if flag.startswith("amx_")}
    if "sve" in flags:
        flags |= {sve_flag(system.sve_bytes())}
    return flags


def sve_flag(nbytes: int) -> str:
    """What `usable_flags` has for scalable vectors of this length."""
    return f"sve{8 * nbytes}"


def processor_model() -> list[str]:
    """What Linux says of the model of each kind of processor here; empty on other systems."""
    return sorted(set(_MODEL.findall(system.cpuinfo())))


def needs_of(machine: str, features: Iterable[str], sve: int = 0) -> tuple[str, ...]:
    """The flags without which code for such a processor does not run, sorted.

    machine: as `system.machine`; elsewhere than on Linux nothing says what a processor has. features: LLVM's names.
    sve: bytes of a scalable vector that the code counts on.
    """
    named = frozenset(features)
    known = {flag for flag, llvm in KERNEL_TO_LLVM.get(machine, {}).items() if llvm in named}
    return tuple(sorted(known | {sve_flag(sve)} if sve else known))


def lacking(machine: str, needs: Iterable[str]) -> tuple[str, ...]:
    """What this processor lacks to run code for a machine that needs these flags; nothing where it runs here."""
    if machine != system.machine():
        return (f"an {machine} processor",)
    return tuple(flag for flag in needs if flag not in usable_flags())
