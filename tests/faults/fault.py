"""A fault: a patch of one line, what it breaks, and the tests of its area.

The patch is a unified diff behind two headers, which ``git apply`` skips as it skips the head of a mail:

    Subject: memory that was handed out is handed out again
    Tests: tests/runtime/test_memory.py

    diff --git a/gnn_sparse_backend/runtime/memory.py b/gnn_sparse_backend/runtime/memory.py
    ...

``Tests`` are files, folders or tests as pytest takes them, with white space between.
"""

from __future__ import annotations

import email
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent


@dataclass(frozen=True)
class Fault:
    """``path`` is the patch: its folder is the fault's group, its stem the name."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def group(self) -> str:
        return self.path.parent.name

    @cached_property
    def _parts(self) -> email.message.Message:
        return email.message_from_string(self.path.read_text(encoding="utf-8"))

    @property
    def subject(self) -> str:
        """What is wrong once the patch is applied, in one line."""
        return self._parts["Subject"] or ""

    @property
    def tests(self) -> tuple[str, ...]:
        """Arguments for pytest."""
        return tuple((self._parts["Tests"] or "").split())

    @property
    def lines(self) -> tuple[list[str], list[str]]:
        """The lines that the patch takes away, and those that it puts in."""
        body = [line for line in self._parts.get_payload().splitlines() if not line.startswith(("---", "+++"))]
        return [line[1:] for line in body if line.startswith("-")], [line[1:] for line in body if line.startswith("+")]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the patch changes, from the root of the repository."""
        lines = self._parts.get_payload().splitlines()
        return tuple(line.removeprefix("+++ b/") for line in lines if line.startswith("+++ "))


def all_faults() -> list[Fault]:
    """Every planted fault, by group and name."""
    return [Fault(path) for path in sorted(PATCHES.glob("*/*.patch"))]


__all__ = ["ROOT", "Fault", "all_faults"]
