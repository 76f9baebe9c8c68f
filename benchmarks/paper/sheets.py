"""Tables that are printed, and written as Markdown beside their figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.support import machine, report


@dataclass(frozen=True)
class Sheet:
    """A table of words. left: how many columns are words, not numbers. notes: sentences below it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    notes: Sequence[str] = ()

    def show(self, console: Console) -> None:
        table = report.table(self.title, self.headings[: self.left], self.headings[self.left :])
        for row in self.rows:
            table.add_row(*row)
        console.print(table)
        for note in self.notes:
            console.print(note, highlight=False)

    def markdown(self) -> str:
        marks = ["---"] * self.left + ["---:"] * (len(self.headings) - self.left)
        lines = [f"## {self.title}", "", *(_row(cells) for cells in (self.headings, marks, *self.rows)), ""]
        return "\n".join([*lines, *(line for note in self.notes for line in (note, ""))])


def write(
    path: Path,
    title: str,
    command: str,
    about: str,
    described: Mapping,
    sheets: Iterable[Sheet],
    figure: Path | None,
    *,
    timed: bool = True,
) -> Path:
    """Write a page. Returns its path.

    command: what made it. about: sentences below the title. described: the machine (``machine.describe``). figure:
    beside the page, shown at its end. timed: whether it matters that the machine was busy.
    """
    when = f"`{command}`, {described['date'][:10]}, Python {described['python']}."
    head = [f"# {title}", "", about, "", when, "", f"{machine.one_line(described)}.", ""]
    if timed and (warning := machine.busy(described)) is not None:
        head += [f"**{warning[0].upper()}{warning[1:]}.**", ""]
    tail = [f"![{title}]({figure.name})", ""] if figure is not None else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*head, *(sheet.markdown() for sheet in sheets), *tail]).rstrip() + "\n")
    return path


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
