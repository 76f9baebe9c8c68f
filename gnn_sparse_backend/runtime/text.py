"""Tables and texts for people, the same in a terminal, a log and a notebook."""

from __future__ import annotations

import io

from rich.console import Console

WIDTH = 140


def render(*parts) -> str:
    """Rich tables and texts as plain text."""
    console = Console(file=io.StringIO(), width=WIDTH, no_color=True)
    for part in parts:
        console.print(part, highlight=False, markup=False)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"
