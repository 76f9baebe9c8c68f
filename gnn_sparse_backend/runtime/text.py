"""Tables and texts for people, the same in a log and a notebook, and no wider than a terminal."""

from __future__ import annotations

import io
import shutil

from ..deferred import console

WIDTH = 140


def width(most: int = WIDTH) -> int:
    """The columns of the terminal, or of the variable COLUMNS; ``most`` where there are more or there is none."""
    return min(most, shutil.get_terminal_size((most, 24)).columns)


def render(*parts) -> str:
    """Rich tables and texts as plain text."""
    file = io.StringIO()
    written = console.Console(file=file, width=width(), no_color=True)
    for part in parts:
        written.print(part, highlight=False, markup=False)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
