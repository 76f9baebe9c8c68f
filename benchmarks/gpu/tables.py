"""The tables and the summary of a run, made of its lines: of a run that was cut off, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.gpu.registry import PARTS
from benchmarks.gpu.reports import contenders_of
from benchmarks.gpu.told import FAILED, OK, SKIPPED, STATES, WRONG
from benchmarks.support import report, summary

SUMMARY = "summary.txt"


@dataclass(frozen=True)
class Goal:
    """A geometric mean of the best peer's time over ours, of the cells of a part whose words contain ``mode``."""

    part: str
    mode: str
    least: float

    def holds(self, line: Mapping) -> bool:
        return line["part"] == self.part and self.mode in line["where"] and bool(line.get("ratio"))


LEAST_CELL = 0.8
"""No cell is to be under it."""
GOALS = (
    Goal("spmm", "", 1.2),
    Goal("sddmm", "", 1.5),
    Goal("rgcn", "inference", 4.0),
    Goal("rgcn", "step", 4.0),
    Goal("attention", "attention_layers", 1.5),
    Goal("convolution", "", 1.3),
)


def write(lines: Sequence[dict], ended: Mapping[str, str], out: Path, console: Console) -> Path:
    """Print the tables to the console and into ``out``/summary.txt; the path."""
    path = out / SUMMARY
    with path.open("w") as file:
        for target in (Console(file=file, width=220), console):
            show(lines, ended, target)
    return path


def show(lines: Sequence[dict], ended: Mapping[str, str], console: Console) -> None:
    """What failed comes last, where it is read first."""
    for part in dict.fromkeys(line["part"] for line in lines):
        measured = [line for line in lines if line["part"] == part and contenders_of(line)]
        if measured:
            console.print(_times(part, measured))
    console.print(_goals(lines))
    console.print(_parts(lines, ended))
    bad = [line for line in lines if line["state"] in (WRONG, FAILED)]
    for line in bad:
        console.print(f"{line['state'].upper()} {line['part']}: {line['where']}: {_why(line)}", markup=False)
    for name, words in ended.items():
        if words != "done":
            console.print(f"PART {name}: {words}", markup=False)
    if not bad and all(words == "done" for words in ended.values()):
        console.print("nothing failed, nothing hung, nothing was left out")


def _why(line: Mapping) -> str:
    if "why" in line:
        return str(line["why"])
    words = {name: found for name, found in contenders_of(line).items() if isinstance(found, str)}
    return "; ".join(f"{name}: {found}" for name, found in words.items()) or str(line.get("wrong", ""))


def _times(part: str, lines: Iterable[Mapping]):
    """Times of all contenders of each cell, cache warm and flushed, in ms; ratio and shares of the limits."""
    table = report.table(
        f"{part}: ms, cache warm / flushed", ("where", "contenders"), ("ratio", "of bandwidth", "of peak")
    )
    for line in lines:
        share = line.get("share") or {}
        table.add_row(
            line["where"],
            "; ".join(f"{name} {_shown(found)}" for name, found in contenders_of(line).items()),
            _pair(line.get("ratio") or [line.get("speedup")], report.ratio),
            *(_pair(share.get(key), report.percent) for key in ("memory", "arithmetic")),
        )
    return table


def _pair(values, written) -> str:
    return " / ".join(map(written, values)) if values else report.MISSING


def _shown(found) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, Mapping):
        found = [found[key] for key in ("warm", "flushed") if key in found]
    return " / ".join(map(report.milliseconds, found if isinstance(found, Sequence) else [found]))


def _goals(lines: Sequence[Mapping]):
    table = report.table(
        "Goals: the best peer's time over ours, cache flushed", ("part", "cells of"), ("goal", "mean", "least", "cells")
    )
    for goal in GOALS:
        ratios = [line["ratio"][-1] for line in lines if goal.holds(line)]
        table.add_row(
            goal.part,
            goal.mode or "all",
            f"{goal.least:.1f}, no cell under {LEAST_CELL}",
            report.ratio(summary.mean_or_none(ratios)),
            report.ratio(min(ratios, default=None)),
            str(len(ratios)) if ratios else "not measured",
        )
    return table


def _parts(lines: Sequence[Mapping], ended: Mapping[str, str]):
    table = report.table("Parts", ("part", "question", "ended"), STATES)
    for part in PARTS:
        if part.name not in ended:
            continue
        counts = Counter(line["state"] for line in lines if line["part"] == part.name)
        table.add_row(part.name, part.what, ended[part.name], *(str(counts[state]) for state in STATES))
    return table


def failed(lines: Iterable[Mapping], ended: Mapping[str, str]) -> bool:
    """Whether a result is not right, or a part did not come to its end."""
    good = {OK, SKIPPED}
    return any(line["state"] not in good for line in lines) or any(words != "done" for words in ended.values())
