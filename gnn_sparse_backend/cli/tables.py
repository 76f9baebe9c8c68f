"""Tables on the terminal: as wide as it is, the last column folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Cell: TypeAlias = "str | tuple[str, str]"
"""A text, or a text and its style."""


def show(
    rows: Iterable[Sequence[Cell]], headings: Sequence[str] = (), title: str = "", right: Sequence[str] = ()
) -> None:
    """Print a table within the width of the terminal, 80 columns where there is none. Columns before the last are as
    wide as what is in them, while there is room, and the last is folded.

    right: headings of columns of numbers.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    width = max([len(headings), *map(len, rows)])
    table = Table(title=title or None, title_justify="left", title_style="", box=None, pad_edge=False)
    table.show_header = bool(headings)
    for number in range(width):
        last = number == width - 1
        heading = headings[number] if headings else ""
        table.add_column(
            Text(heading, style="bold"),
            justify="right" if heading in right else "left",
            overflow="fold" if last else "ellipsis",
            no_wrap=not last,
            ratio=None,
        )
    for row in rows:
        table.add_row(*(Text(*cell) if isinstance(cell, tuple) else Text(cell) for cell in row))
    Console(highlight=False).print(table)
