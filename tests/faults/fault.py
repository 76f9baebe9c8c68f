"""A fault: one line of the package that is wrong, and the tests of its area.

    Subject: memory that was handed out is handed out again
    File: gnn_sparse_backend/runtime/memory.py
    Tests: tests/runtime/test_memory.py

    -            return held.pop()
    +            return held[-1]

Behind the headers is the hunk of a unified diff, without numbers: a line is found by its text, wherever in the file it
stands, so that edits elsewhere do not touch the fault. Neighbours are in the hunk only where the text alone is there
several times. ``Tests`` are files, folders or tests as pytest takes them, with white space between.
"""

from __future__ import annotations

import email
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
PACKAGE = "gnn_sparse_backend"


@dataclass(frozen=True)
class Fault:
    """``path`` is where it is written down: the stem is its name."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def group(self) -> str:
        """The folder of the fault: "cli", "ops/core"."""
        return self.path.parent.relative_to(FOLDER).as_posix()

    @cached_property
    def _parts(self) -> email.message.Message:
        return email.message_from_string(self.path.read_text(encoding="utf-8"))

    @property
    def subject(self) -> str:
        """What is wrong once the fault is planted, in one line."""
        return self._parts["Subject"] or ""

    @property
    def file(self) -> str:
        """The file that it is in, from the root of the repository."""
        return self._parts["File"] or ""

    @property
    def room(self) -> str:
        """Where in the package that is, two folders deep: "cli", "ops/core"; "package" for a file beside them."""
        return "/".join(Path(self.file).parent.parts[1:3]) or "package"

    @property
    def tests(self) -> tuple[str, ...]:
        """Arguments for pytest."""
        return tuple((self._parts["Tests"] or "").split())

    @property
    def hunk(self) -> list[str]:
        """Lines of the file, each behind " ", those that it takes away behind "-", and those that it puts in behind
        "+".
        """
        return self._parts.get_payload().strip("\n").splitlines()

    def planted(self, source: str) -> str:
        """The text of the file with the fault in it. Raises ValueError where the lines are not there exactly once."""
        right = [line[1:] for line in self.hunk if not line.startswith("+")]
        wrong = [line[1:] for line in self.hunk if not line.startswith("-")]
        lines = source.split("\n")
        found = [at for at in range(len(lines)) if lines[at : at + len(right)] == right]
        if len(found) != 1:
            raise ValueError(f"{self.group}/{self.name}: its lines are in {self.file} {len(found)} times, not once")
        (at,) = found
        return "\n".join([*lines[:at], *wrong, *lines[at + len(right) :]])


def all_faults() -> list[Fault]:
    """Every planted fault, by group and name."""
    return [Fault(path) for path in sorted(FOLDER.rglob("*.fault"), key=lambda path: (path.parent, path))]


__all__ = ["PACKAGE", "ROOT", "Fault", "all_faults"]
