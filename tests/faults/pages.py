"""What found each fault, as the tables of docs/testing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from .fault import ROOT, Fault, all_faults

NOT_FOUND = "**NOT FOUND**"
FOLDER = ROOT / "docs" / "testing"
# Of each page: its title goes on so, and the faults of which part of the package it has.
_PLANS = ("planner", "tensor", "tuning")
_APART = ("compiler", "integrations", "ops", *_PLANS)
PAGES = {
    "faults-compiler.md": ("compiler", lambda fault: fault.room.startswith("compiler")),
    "faults-frameworks.md": ("frameworks", lambda fault: fault.room.startswith("integrations")),
    "faults-operators.md": ("operators", lambda fault: fault.room.startswith("ops")),
    "faults-tensor.md": ("tensor algebra, planner and tuning", lambda fault: fault.room.startswith(_PLANS)),
    "faults-structures.md": ("structures and the rest", lambda fault: not fault.room.startswith(_APART)),
}
HEAD = """\
# Planted faults: {title}

Each row is a fault of one line in `tests/faults/` and the test of the short run that found it, the first in the tests
of its area. `python -m tests.faults --docs` plants them anew and writes this page.
"""


def table(faults: Iterable[Fault], found_by: Mapping[str, str]) -> str:
    """The faults by group. found_by: by the name of each fault the test, "" where none noticed."""
    lines = []
    for group, members in itertools.groupby(faults, lambda fault: fault.group):
        lines += ["", f"## {group}", "", "| the fault | found by |", "| --- | --- |"]
        lines += [f"| {fault.subject} | {_test(found_by[fault.name])} |" for fault in members]
    return "\n".join(lines[1:])


def write(found_by: Mapping[str, str]) -> None:
    """Write the pages, for which there must be an outcome of every fault."""
    for name, (title, has) in PAGES.items():
        text = "\n".join([HEAD.format(title=title), table(filter(has, all_faults()), found_by), ""])
        (FOLDER / name).write_text(text, encoding="utf-8")


def _test(name: str) -> str:
    if not name:
        return NOT_FOUND
    name = name.removeprefix("tests/").replace(".py::", "::").replace("|", "\\|")
    return f"`{name}`" if "::" in name else name
