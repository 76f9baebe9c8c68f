"""A set-associative cache of two levels that replaces the least recently used line, for some of its sets exactly.

What a set holds depends on the accesses to its own lines alone. A simulation of a few sets is exact for these, and they
stand for the others (set sampling: Puzak, 1985; Kessler, Hill and Wood, 1994). Sets of the second level are chosen by
the same bits of the address, so that all misses of a chosen set of the first level go to chosen sets of the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_DEFAULT = {1: (64, 8), 2: (1024, 16)}


@dataclass(frozen=True)
class Caches:
    """Sets and ways of the first level and of the second, and bytes of a line."""

    levels: tuple[tuple[int, int], tuple[int, int]] = (_DEFAULT[1], _DEFAULT[2])
    line: int = 64

    def __post_init__(self) -> None:
        sets = [count for count, _ in self.levels]
        if sets[1] % sets[0] or any(ways < 1 for _, ways in self.levels):
            raise ValueError(f"sets of the second level must be a multiple of those of the first, got {self.levels}")

    def __str__(self) -> str:
        sizes = (f"{sets * ways * self.line >> 10} KiB of {ways} ways" for sets, ways in self.levels)
        return f"{' and '.join(sizes)}, lines of {self.line} bytes"

    def sampled(self, count: int) -> np.ndarray:
        """(sets of the first level,) bool: ``count`` of them, spread evenly over all offsets within a row."""
        sets = self.levels[0][0]
        chosen = np.zeros(sets, bool)
        chosen[np.unique(np.arange(count) * sets // count + np.arange(count) % max(sets // count, 1))] = True
        return chosen

    def misses(self, lines: np.ndarray) -> tuple[int, int]:
        """Count the accesses, each to the line of that number, that miss the first level, and those that miss both."""
        first = _missed(lines, *self.levels[0])
        return len(first), len(_missed(first, *self.levels[1]))


def _missed(lines: np.ndarray, sets: int, ways: int) -> np.ndarray:
    """The accesses that find their line in none of the ways of its set."""
    held: list[list[int]] = [[] for _ in range(sets)]
    missed: list[int] = []
    for line, which in zip(lines.tolist(), (lines % sets).tolist()):
        lines_of_set = held[which]
        if line in lines_of_set:
            lines_of_set.remove(line)
        else:
            missed.append(line)
            if len(lines_of_set) == ways:
                del lines_of_set[0]
        lines_of_set.append(line)
    return np.array(missed, np.int64)


def of_machine(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> Caches:
    """The data caches of the first core, as Linux reports them, and those of a server where it does not."""
    found: dict[int, tuple[int, int]] = dict(_DEFAULT)
    line = 64
    for index in sorted(folder.glob("index*")):
        said = _said(index)
        if said is not None and said["level"] in found:
            found[said["level"]] = said["number_of_sets"], said["ways_of_associativity"]
            line = said["coherency_line_size"]
    return Caches((found[1], found[2]), line)


def _said(index: Path) -> Mapping[str, int] | None:
    names = "level", "number_of_sets", "ways_of_associativity", "coherency_line_size"
    try:
        if (index / "type").read_text().strip() == "Instruction":
            return None
        return {name: int((index / name).read_text()) for name in names}
    except (OSError, ValueError):
        return None
