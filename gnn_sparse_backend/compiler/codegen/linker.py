"""The linker that makes a shared object of a kernel's machine code."""

from __future__ import annotations

import shutil

# -Bsymbolic: the launch pointer of a module is its own even if another module is loaded with global visibility
_LINK_FLAGS = ("-shared", "-z", "now", "-z", "noexecstack")
LINKERS = (
    ("ld", *_LINK_FLAGS, "-Bsymbolic"),
    ("gcc", *_LINK_FLAGS, "-Wl,-Bsymbolic"),
    ("cc", *_LINK_FLAGS, "-Wl,-Bsymbolic"),
)


def find_linker() -> tuple[str, ...] | None:
    """The command of the first linker that is on PATH; None without one."""
    return next((command for command in LINKERS if shutil.which(command[0])), None)
