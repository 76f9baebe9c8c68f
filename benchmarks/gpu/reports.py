"""Reports of the benchmarks that a part runs, as lines of results: each cell as soon as it is in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu.told import FAILED, OK, WRONG, write_line

# Keys of a cell that say what was found; the others say where.
FOUND = {
    "times",
    "contenders",
    "result",
    "ratio",
    "memory_ratio",
    "share",
    "timings",
    "speedup",
    "seconds",
    "best_ours",
}
OURS = "gnn_sparse_backend"
BACKEND = "+gsb"
BESIDE = "device", "precision", "roofline", "threads"
"""Keys of a report that go with each of its cells."""


@dataclass
class Reports:
    """The ``*.json`` reports in a part's folder, which benchmarks write anew after each cell."""

    part: str
    work: Path
    lines: Path
    seen: dict[Path, int] = field(default_factory=dict)

    def collect(self) -> None:
        """Write a line for each cell that is new."""
        for path in sorted(self.work.rglob("*.json")):
            try:
                report = json.loads(path.read_text())
            except ValueError:  # half written
                continue
            cells = report.get("cells", ()) if isinstance(report, dict) else ()
            for cell in cells[self.seen.get(path, 0) :]:
                name = str(path.relative_to(self.work).with_suffix(""))
                write_line(self.lines, {"part": self.part, **line_of(name, report, cell)})
            self.seen[path] = len(cells)


def line_of(name: str, report: Mapping, cell: Mapping) -> dict:
    """A cell as a line: where it is, whether ours was right, and all that was found."""
    words = [str(cell[key]) for key in cell if key not in FOUND and isinstance(cell[key], (str, int, float))]
    precision = report.get("precision")
    where = cell.get("where") or ", ".join([*words, *([precision] if precision and precision not in words else [])])
    beside = {key: report[key] for key in BESIDE if report.get(key) is not None}
    return {**beside, **cell, "where": f"{name}: {where}", "state": state_of(cell)}


def contenders_of(cell: Mapping) -> dict:
    """By contender its times, or words."""
    if timings := cell.get("timings"):
        return {name: timing["median"] for name, timing in timings.items()}
    result = cell.get("result")
    return dict(
        cell.get("times") or cell.get("contenders") or (result["seconds"] if isinstance(result, Mapping) else {})
    )


def state_of(cell: Mapping) -> str:
    """Whether what is ours of a cell was right, was wrong, or failed."""
    words = list(_words(cell))
    if any(each.startswith("wrong") for each in words):
        return WRONG
    return FAILED if words else OK


def _words(cell: Mapping) -> Iterator[str]:
    """What is said in the place of our times."""
    result = cell.get("result")
    if isinstance(result, str):
        yield result
    for name, found in contenders_of(cell).items():
        ours = name == OURS or name.endswith(BACKEND) or isinstance(result, Mapping)
        if ours and isinstance(found, str):
            yield found
    wrong = cell.get("wrong")
    for name in wrong if isinstance(wrong, Mapping) else ():
        if name == "gsb" or name.endswith(BACKEND):
            yield f"wrong: {wrong[name]}"
