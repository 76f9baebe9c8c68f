"""Which cases of a parametrised test the short run takes: a covering array of the grid."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
import torch

from tests.covering import enough

LEFT_OUT = "exhaustive", "slow", "layers", "wheel"
"""The markers of what ``make test`` leaves out: such a case stands for no value of the short run."""


MOST = 2
"""How many cases the short run takes of a test that computes something, at most."""

EACH = {"docs", "faults", "packaging", "public_face"}
"""The folders, and with them the files of ``tests`` itself, of whose tests each case is a page, a name or a refusal
that somebody may break alone, and takes no time.
"""


def part_of(text: str) -> tuple[int, int]:
    """(N, M) of "N/M", for the Nth of M parts. Raises ValueError for anything else."""
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise ValueError(text)
    return number, parts


def in_part(nodeid: str, number: int, parts: int) -> bool:
    """Whether a case is in the Nth of M parts, whatever other cases there are."""
    return crc32(nodeid.encode()) % parts == number - 1


def mark_exhaustive(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of each grid that the short run leaves out with ``exhaustive``.

    A grid of two parameters is covered by cases with every value of both, one of more by cases with every pair of
    values of any two. Of these one runs, and another far from it if it has a type, a size or a switch that no other
    case of the folder has; or as many as ``@pytest.mark.short(n)`` says. Tests begin at different cases, so that a
    structure or a type that many tests go through is not left out by all of them. Cases that find a planted fault
    (docs/testing/faults-*.md) run. Cases that ``make test-all`` has for itself are marked where they are written.
    """
    tests = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not any(map(item.get_closest_marker, LEFT_OUT)):
            tests[item.nodeid.partition("[")[0]].append(item)
    kept = {name: _covering(name, cases) for name, cases in tests.items()}
    rooms = defaultdict(list)
    for name, cases in tests.items():
        if _most(cases[0]) is not None:
            rooms[name.partition("::")[0].rpartition("/")[0]].append([tests[name][at] for at in kept[name]])
    left_out = {case for chosen in rooms.values() for case in _adding_nothing(chosen)}
    finders = _finders()
    for name, cases in tests.items():
        for at, case in enumerate(cases):
            if (at not in kept[name] or case in left_out) and case.nodeid not in finders:
                case.add_marker(pytest.mark.exhaustive)


def _finders() -> set[str]:
    """The cases that find a planted fault, as the pages on faults name them."""
    pages = Path(__file__).parents[1].joinpath("docs", "testing").glob("faults-*.md")
    found = (row for page in pages for row in re.findall(r"(?m)\| `([\w/]+)::(.+)` \|$", page.read_text()))
    return {f"tests/{file}.py::{case}" for file, case in found}


def _covering(name: str, cases: list[pytest.Item]) -> list[int]:
    """Positions of cases that cover the grid of a test, or of as many of these as the short run takes at most."""
    factors = _varying([_factors(item) for item in cases])
    kept = enough(factors, min(2, max(1, len(factors[0]) - 1)))
    if (most := _most(cases[0])) is not None and most < len(kept):
        begin = crc32(name.encode()) % len(kept)
        kept = [kept[(begin + at * len(kept) // most) % len(kept)] for at in range(most)]
    return kept


def _adding_nothing(chosen: list[list[pytest.Item]]) -> Iterator[pytest.Item]:
    """The second cases of a folder's tests whose values other cases have; the first of two that have one keeps it."""
    twice = [cases for cases in chosen if len(cases) == MOST and cases[0].get_closest_marker("short") is None]
    second = {cases[1]: _values(cases[1]) for cases in twice}
    seen = set().union(*(_values(case) for cases in chosen for case in cases if case not in second))
    for case, found in second.items():
        if found <= seen:
            yield case
        seen |= found


def _values(item: pytest.Item) -> set[tuple[str, str]]:
    """Types, sizes and switches of a case, by parameter; those in tuples, too."""
    return {
        (name, repr(part))
        for name, value in item.callspec.params.items()
        for part in (value if isinstance(value, tuple) else (value,))
        if part is None or isinstance(part, bool | int | float | torch.dtype)
    }


def _most(item: pytest.Item) -> int | None:
    """How many cases of a test the short run takes; None for all that cover its grid."""
    marked = item.get_closest_marker("short")
    if marked is not None:
        return marked.args[0]
    rooms = item.nodeid.partition("::")[0].split("/")[1:-1]
    return MOST if rooms and not EACH & set(rooms) else None


def _varying(cases: list[dict[tuple[str, ...], Hashable]]) -> list[dict[tuple[str, ...], Hashable]]:
    """The cases without factors that have one value in all of them, as fixtures whose others are exhaustive."""
    names = [name for name in cases[0] if len({case[name] for case in cases}) > 1]
    return [{name: case[name] for name in names} for case in cases]


def _factors(item: pytest.Item) -> dict[tuple[str, ...], Hashable]:
    """What varies from case to case: each ``parametrize`` of a test, and each fixture with parameters.

    Names of one ``parametrize`` are one factor, for its rows are cases that somebody chose. The same value is the same
    object in all cases.
    """
    params = item.callspec.params
    rows = [marker.args[0] for marker in item.iter_markers("parametrize")]
    rows = [tuple(name.strip() for name in row.split(",")) if isinstance(row, str) else tuple(row) for row in rows]
    alone = params.keys() - {name for row in rows for name in row}
    return {row: tuple(id(params[name]) for name in row) for row in [*rows, *((name,) for name in sorted(alone))]}
