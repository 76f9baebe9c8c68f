"""Where the frameworks of this package's extras can be installed, and what to do about one that is not.

The Makefile runs this file before anything is installed: ``python gnn_sparse_backend/extras.py`` prints the extras of
these frameworks that its Python can have, a comma behind each.
"""

from __future__ import annotations

import sys
import sysconfig
from typing import NamedTuple


class Wheels(NamedTuple):
    """For what a framework has wheels. pythons: the oldest and the newest. systems and machines: the first and the last
    word that `sysconfig` has for a platform.
    """

    name: str
    pythons: tuple[tuple[int, int], tuple[int, int]]
    systems: dict[str, str]
    machines: tuple[str, ...]

    def are_here(self) -> bool:
        """Whether this Python has one."""
        oldest, newest = self.pythons
        system, *_, machine = sysconfig.get_platform().split("-")
        return oldest <= sys.version_info[:2] <= newest and system in self.systems and machine in self.machines

    def __str__(self) -> str:
        oldest, newest = (f"{major}.{minor}" for major, minor in self.pythons)
        systems, machines = " and ".join(self.systems.values()), ", ".join(self.machines)
        return f"{self.name} has wheels for Python {oldest} to {newest} on {systems} ({machines})"


WHEELS = {
    "dgl": Wheels("DGL", ((3, 10), (3, 12)), {"linux": "Linux", "macosx": "macOS"}, ("x86_64", "aarch64", "arm64")),
    "spconv": Wheels("spconv", ((3, 10), (3, 13)), {"linux": "Linux"}, ("x86_64",)),
}
"""Extra: what limits it. Frameworks in Python alone have no entry."""


def how_to_install(extra: str) -> str:
    """The command that installs a framework, or why none does on this machine."""
    if extra == "flex_attention":
        return "pip install 'torch>=2.5'"
    wheels = WHEELS.get(extra)
    if wheels is None or wheels.are_here():
        return f"pip install 'gnn-sparse-backend[{extra}]'"
    here = ".".join(map(str, sys.version_info[:2]))
    return f"there is none for Python {here} on {sysconfig.get_platform()}: {wheels}"


if __name__ == "__main__":
    print("".join(f"{extra}," for extra, wheels in WHEELS.items() if wheels.are_here()))
