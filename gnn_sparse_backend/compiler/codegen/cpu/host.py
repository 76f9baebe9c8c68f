"""The processors that code is made for: this one, found at run time, and levels; and which of them a process takes."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .... import system
from ....config import TARGET, TARGETS
from ....deferred import can_compile, global_function
from ...packs import processor
from ...packs.errors import MissingKernelError
from ...packs.in_force import packs
from ...packs.processor import KERNEL_TO_LLVM, needs_of, processor_model, usable_flags
from ..kept import kept
from ..target import NEON_BYTES, Target

NATIVE = "native"
_LINUX = {architecture: f"{architecture}-unknown-linux-gnu" for architecture in KERNEL_TO_LLVM}
_LEVELS = {
    **{level: Target("llvm", level, _LINUX["x86_64"]) for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")},
    "aarch64": Target("llvm", "generic", _LINUX["aarch64"]),
    "neoverse-n1": Target("llvm", "neoverse-n1", _LINUX["aarch64"]),
    "neoverse-v1": Target("llvm", "neoverse-v1", _LINUX["aarch64"], sve=32),
    "neoverse-v2": Target("llvm", "neoverse-v2", _LINUX["aarch64"]),
}


class _Taken:
    """The target that kernels are asked for, and the one whose kernels run in its place: the same, but in
    `compiling_for`.
    """

    target: Target | None = None
    running: Target | None = None


_taken = _Taken()


def host_target() -> Target:
    """The target that this process asks kernels for, settled when it is first asked.

    The level that ``GSB_TARGET`` names; else, with packs, the best of their targets that runs here; else the CPU of
    this process: LLVM's name for it, with the features that the operating system reports.

    Raises MissingKernelError without a pack and without TVM, ValueError for a ``GSB_TARGET`` that does not run here.
    """
    if _taken.target is None:
        _taken.target = _taken.running = _settle()
        packs.settled = _taken.target.key
    return _taken.target


def running_target() -> Target:
    """The target of the kernels that run: `host_target`, but in `compiling_for` a target that does not run here."""
    target = host_target()
    return _taken.running or target


@contextlib.contextmanager
def compiling_for(target: Target) -> Iterator[None]:
    """Inside the block kernels are asked for ``target``; where it does not run here, those of this CPU run instead."""
    host_target()
    before = _taken.target, _taken.running
    _taken.target, _taken.running = target, target if not lacking(target) else native_target()
    try:
        yield
    finally:
        _taken.target, _taken.running = before


def lacking(target: Target) -> tuple[str, ...]:
    """What this processor lacks to run code for a target; nothing where it runs here."""
    return processor.lacking(target.machine, needs_of(target.machine, target.features, target.sve))


def target_of(name: str) -> Target:
    """The target of one of `TARGETS`. Raises ValueError for another name."""
    if name == NATIVE:
        return native_target()
    if name not in _LEVELS:
        raise ValueError(f"unknown target {name!r}: choose from {', '.join(TARGETS)}")
    named = _LEVELS[name]
    return replace(named, features=_features(named))


@functools.cache
def native_target() -> Target:
    """The CPU of this process: LLVM's name for it, with the features that the operating system reports. Found once, by
    LLVM where no earlier process has asked it about such a CPU.
    """
    model = "\n".join((*processor_model(), *sorted(usable_flags())))
    path = kept("host", model, lambda folder: _write(folder, _found())) if model else None
    if path is None:
        return _found()
    fields = json.loads(path.read_text()).items()
    found: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields}
    return Target(**found)


def _write(folder: Path, target: Target) -> Path:
    path = folder / "host.json"
    path.write_text(json.dumps(asdict(target)))
    return path


def _found() -> Target:
    """The CPU as LLVM knows it, corrected by what the operating system says."""
    named = Target(
        "llvm",
        str(global_function("target.llvm_get_system_cpu")()),
        str(global_function("target.llvm_get_system_triple")()),
    )
    hidden, unexpected = feature_differences(_features(named), usable_flags(), named.architecture)
    corrected = replace(named, disabled=hidden, enabled=unexpected)
    features = _features(corrected)
    longer = system.sve_bytes() if "sve" in features else 0
    return replace(corrected, features=features, sve=longer if longer > NEON_BYTES else 0)


def _settle() -> Target:
    name = TARGET.get()
    packed = packs.target(name)
    if packed is not None:
        lists = {field: tuple(packed.fields[field]) for field in ("features", "disabled", "enabled")}
        return Target(**{**packed.fields, **lists})
    if not can_compile():
        raise MissingKernelError(
            f"TVM is not installed, and no pack of kernels {f'for {name} ' if name else ''}is loaded: call "
            "gsb.load_pack before gsb.enable and the first operator (or set GSB_PACK), or install TVM "
            "(pip install apache-tvm)"
        )
    if name is None:
        return native_target()
    target = target_of(name)
    if lacks := lacking(target):
        raise ValueError(f"GSB_TARGET={name}: this processor lacks {' '.join(lacks)}; name a lower level, or unset it")
    return target


def feature_differences(
    assumed: tuple[str, ...], flags: frozenset[str], architecture: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where LLVM (``assumed``, its names) and the operating system (``flags``, the kernel's names) disagree about the
    processor of an architecture.

    Returns two sorted tuples of LLVM's names: what LLVM assumes and the system does not report, and what the system
    reports and LLVM does not assume. Both are empty where ``flags`` is: the operating system says nothing.
    """
    if not flags:
        return (), ()
    names = KERNEL_TO_LLVM.get(architecture, {}).items()
    hidden = sorted(llvm for kernel, llvm in names if llvm in assumed and kernel not in flags)
    unexpected = sorted(llvm for kernel, llvm in names if llvm not in assumed and kernel in flags)
    return tuple(hidden), tuple(unexpected)


def _features(target: Target) -> tuple[str, ...]:
    known = global_function("target.Target")(target.host)
    return tuple(sorted(map(str, global_function("target.llvm_get_cpu_features")(known))))
