"""The linker that makes a shared object of a kernel's machine code."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from ... import system
from .errors import BuildError
from .target import Target

# -Bsymbolic: the launch pointer of a module is its own even if another module is loaded with global visibility
_LINK_FLAGS = ("-shared", "-z", "now", "-z", "noexecstack")
# --eh-frame-hdr, which compilers ask for: without it no exception of C++ passes through a function, as PyTorch's passes
# through our allocator where memory ends
_LD_FLAGS = (*_LINK_FLAGS, "--eh-frame-hdr", "-Bsymbolic")
LINKERS = (
    ("ld", *_LD_FLAGS),
    ("gcc", *_LINK_FLAGS, "-Wl,-Bsymbolic"),
    ("cc", *_LINK_FLAGS, "-Wl,-Bsymbolic"),
)
# Apple's ld wants to be told its own system's version and where its libraries are, which its compiler knows. What a
# kernel does not define is looked up when it is loaded.
MACOS_LINKERS = tuple((name, "-dynamiclib", "-Wl,-undefined,dynamic_lookup") for name in ("cc", "clang"))
_EMULATIONS = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}


class _Libraries:
    """Whether kernels are left as libraries. They are, until none could be loaded."""

    left = True


def leave_text() -> bool:
    """Leave kernels as LLVM text from now on, since the system loads no library; False where that was so before."""
    before, _Libraries.left = _Libraries.left, False
    return before


def find_linker() -> tuple[str, ...] | None:
    """The command of the first linker that is on PATH; None without one, and where libraries are of no use.

    On Windows there is none: what a linker there needs of the C library comes with compilers alone, and a program of
    the name, as MinGW has, takes other options.
    """
    if not _Libraries.left:
        return None
    own = {system.MACOS: MACOS_LINKERS, system.WINDOWS: ()}.get(system.name(), LINKERS)
    return next((command for command in own if (path := shutil.which(command[0])) and _works(path)), None)


def _works(path: str) -> bool:
    return system.has_developer_tools(path)


def find_cross_linker(target: Target) -> tuple[str, ...] | None:
    """The command of the first linker for Linux on another processor: on PATH, or in the package ``ziglang`` of PyPI;
    None without one, and for other systems.
    """
    if target.system != system.LINUX or target.architecture not in _EMULATIONS:
        return None
    return next(_cross_linkers(target.architecture), None)


def _cross_linkers(architecture: str) -> Iterator[tuple[str, ...]]:
    own, lld = f"{architecture}-linux-gnu", ("-m", _EMULATIONS[architecture], *_LD_FLAGS)
    for command in (
        (f"{own}-ld", *_LD_FLAGS),
        ("ld.lld", *lld),
        (f"{own}-gcc", "-nostdlib", *_LINK_FLAGS, "-Wl,-Bsymbolic"),
    ):
        if shutil.which(command[0]):
            yield command
    if importlib.util.find_spec("ziglang") is not None:
        yield sys.executable, "-m", "ziglang", "ld.lld", *lld


def linker_for(target: Target) -> tuple[str, ...] | None:
    """The command of the first linker for code of a target; None without one."""
    return find_linker() if target.machine == system.machine() else find_cross_linker(target)


def needed_linker(name: str, target: Target) -> tuple[str, ...]:
    """`linker_for` a target. Raises BuildError of this name, which says what to install, where there is none."""
    linker = linker_for(target)
    if linker is None:
        raise BuildError(name, _what_to_install(target))
    return linker


def _what_to_install(target: Target) -> str:
    arch = target.architecture
    if target.machine == system.machine():
        return {
            system.MACOS: "there is no linker: install Apple's command line tools (xcode-select --install)",
            system.WINDOWS: "kernels are not linked on Windows, where they are kept as LLVM text",
        }.get(target.system, "there is no linker on PATH: install ld (binutils), gcc or cc")
    if target.system != system.LINUX:
        return f"code for {target.machine} is linked on such a machine alone"
    return (
        f"there is no linker for {arch} on PATH: install {arch}-linux-gnu-ld (the package binutils-{arch}-linux-gnu), "
        "ld.lld (the package lld), or PyPI's package ziglang"
    )


def link(
    name: str,
    objects: Sequence[str],
    path: str | os.PathLike[str],
    target: Target,
    source: Callable[[], str] = str,
    inherited: tuple[int, ...] = (),
) -> None:
    """Link object files for a target into a shared object. inherited: the descriptors of those in memory.

    Raises BuildError, which names the kernel, has its ``source()``, and says what to install without a linker.
    """
    linker = needed_linker(name, target)
    command = [*linker, *objects, "-o", os.fspath(path)]
    done = subprocess.run(command, capture_output=True, text=True, pass_fds=inherited)
    if done.returncode:
        raise BuildError(name, f"{linker[0]} failed: {done.stderr.strip()}", source())
