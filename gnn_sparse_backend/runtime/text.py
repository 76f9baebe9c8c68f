"""Tables and texts for people, the same in a terminal, a log and a notebook."""

from __future__ import annotations

import io

from ..deferred import console

WIDTH = 140


def render(*parts) -> str:
    """Rich tables and texts as plain text."""
    file = io.StringIO()
    written = console.Console(file=file, width=WIDTH, no_color=True)
    for part in parts:
        written.print(part, highlight=False, markup=False)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
