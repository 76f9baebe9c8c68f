"""The linker that makes a shared object of a kernel's machine code."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence

from ..packs.processor import machine
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
_EMULATIONS = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}


class _Libraries:
    """Whether kernels are left as libraries. They are, until none could be loaded."""

    left = True


def leave_text() -> bool:
    """Leave kernels as LLVM text from now on, since the system loads no library; False where that was so before."""
    before, _Libraries.left = _Libraries.left, False
    return before


def find_linker() -> tuple[str, ...] | None:
    """The command of the first linker that is on PATH; None without one, and where libraries are of no use."""
    if not _Libraries.left:
        return None
    return next((command for command in LINKERS if shutil.which(command[0])), None)


def find_cross_linker(architecture: str) -> tuple[str, ...] | None:
    """The command of the first linker on PATH for an architecture that is not this machine's; None without one."""
    own = f"{architecture}-linux-gnu"
    commands = (
        (f"{own}-ld", *_LD_FLAGS),
        ("ld.lld", "-m", _EMULATIONS[architecture], *_LD_FLAGS),
        (f"{own}-gcc", "-nostdlib", *_LINK_FLAGS, "-Wl,-Bsymbolic"),
    )
    return next((command for command in commands if shutil.which(command[0])), None)


def linker_for(target: Target) -> tuple[str, ...] | None:
    """The command of the first linker on PATH for code of a target; None without one."""
    architecture = target.triple.partition("-")[0]
    return find_linker() if architecture == machine() else find_cross_linker(architecture)


def needed_linker(name: str, target: Target) -> tuple[str, ...]:
    """`linker_for` a target. Raises BuildError of this name, which says what to install, where there is none."""
    linker = linker_for(target)
    if linker is None:
        arch = target.triple.partition("-")[0]
        raise BuildError(
            name,
            "there is no linker on PATH: install ld (binutils), gcc or cc"
            if arch == machine()
            else f"there is no linker for {arch} on PATH: install {arch}-linux-gnu-ld "
            f"(the package binutils-{arch}-linux-gnu) or ld.lld (the package lld)",
        )
    return linker


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
