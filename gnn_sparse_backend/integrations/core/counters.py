"""How often an operator of a framework ran here, how often it fell back, and why."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator
from dataclasses import asdict, field
from io import StringIO

from ...compiler.packs import packs
from ...frozen import dataclass
from ...log import first_at_info
from ...runtime import without_kernels
from ...runtime.text import width
from .registry import enabled_frameworks
from .remedies import remedy_of
from .room import lost, reset_lost

NO_KERNEL = "no kernel can be made or loaded here, see gsb doctor"
"""The reason of calls, and of gradients, that somebody else computes for want of a kernel."""

_log = logging.getLogger(__name__)
_lock = threading.Lock()


class _Tally:
    """A number that several threads add to. Adding is one call of `itertools.count`, which no other thread comes in
    between: a lock costs three times as much, at every call of an operator.
    """

    __slots__ = ("_read", "add")

    def __init__(self) -> None:
        self.add = itertools.count().__next__
        self._read = 0

    def read(self) -> int:
        """How often it was added to: reading adds too. The lock is held."""
        self._read += 1
        return self.add() - self._read + 1


_ours: dict[tuple[str, str], _Tally] = {}
_fallbacks: dict[tuple[str, str, str], _Tally] = {}
_first: dict[tuple[str, str, str], str] = {}  # what was found in the first call that fell back for a reason


class _OfThread(threading.local):
    counting = True


_now = _OfThread()


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Calls inside are nobody's: what is found out by them is done again."""
    before, _now.counting = _now.counting, False
    try:
        yield
    finally:
        _now.counting = before


def ours(framework: str, operator: str) -> None:
    """Count one call of `operator` that ran on this package's kernels."""
    key = (framework, operator)
    if _now.counting:
        (_ours.get(key) or _new(_ours, key)).add()


def _new(tallies: dict, key: tuple) -> _Tally:
    with _lock:
        return tallies.setdefault(key, _Tally())


def fallback(framework: str, operator: str, reason: str, found: str = "") -> None:
    """Count one call of `operator` that the framework ran itself, and log it with what the user can do about it.

    `reason` must come from a small fixed set (no sizes or values in it): each distinct one is kept, with what was
    `found` in its first call.
    """
    key = (framework, operator, reason)
    if not _now.counting:
        return
    (_fallbacks.get(key) or _new(_fallbacks, key)).add()
    if found:
        _first.setdefault(key, found)
    if _log.isEnabledFor(logging.INFO):
        remedy = remedy_of(reason)
        told = ": ".join(filter(None, (reason, found)))
        told = told if remedy is None else f"{told} ({remedy})"
        first_at_info(_log, key, "%s runs %s itself: %s", framework, operator, told)


def reset_status() -> None:
    """Set every count to zero."""
    with _lock:
        _ours.clear()
        _fallbacks.clear()
        _first.clear()
    without_kernels.reset_counts()
    reset_lost()


@dataclass(frozen=True)
class OperatorCounts:
    """Calls of one operator of one framework since the counts were last reset."""

    framework: str
    operator: str
    ours: int
    fallbacks: dict[str, int]  # reason -> calls
    found: dict[str, str] = field(default_factory=dict)  # reason -> what its first call had, where that was quoted


@dataclass(frozen=True)
class PackUse:
    """A pack of kernels that is loaded: its file, how many kernels it has, and how many of them this process took."""

    path: str
    kernels: int
    used: int


@dataclass(frozen=True, repr=False)
class Status:
    """Which frameworks are enabled, what became of the calls they sent, and which packs of kernels are loaded; prints
    as a table. lost: how often graphs made of edge indices were dropped because they are larger than
    ``GSB_PYG_CACHE_BYTES``, and had to be made again where they were wanted.
    """

    enabled: tuple[str, ...]
    rows: tuple[OperatorCounts, ...]
    packs: tuple[PackUse, ...] = ()
    lost: int = 0

    def to_dict(self) -> dict:
        """{"enabled": [framework], "calls": {framework: {operator: {"ours": n, "fallbacks": {reason: n}}}},
        "packs": [{"path": file, "kernels": n, "used": n}], "lost": n}
        """
        calls: dict[str, dict] = {}
        for row in self.rows:
            calls.setdefault(row.framework, {})[row.operator] = {"ours": row.ours, "fallbacks": dict(row.fallbacks)}
        packs = [asdict(each) for each in self.packs]
        return {"enabled": list(self.enabled), "calls": calls, "packs": packs, "lost": self.lost}

    def __str__(self) -> str:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        heading = f"enabled: {', '.join(self.enabled) or 'none'}"
        for each in self.packs:
            heading += f"\npack {each.path}: {each.used} of {each.kernels} kernels taken"
        if self.lost:
            heading += f"\ngraphs dropped for want of room (GSB_PYG_CACHE_BYTES): {self.lost:,} times"
        if not self.rows:
            return f"{heading}\nno calls yet"
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("framework", "operator"):
            table.add_column(column)
        for column in ("ours", "fell back"):
            table.add_column(column, justify="right")
        table.add_column("reasons", overflow="fold")
        for row in self.rows:
            by_count = sorted(row.fallbacks.items(), key=lambda item: (-item[1], item[0]))
            table.add_row(
                row.framework,
                row.operator,
                f"{row.ours:,}",
                f"{sum(row.fallbacks.values()):,}",
                "\n".join(_told(reason, count, row.found.get(reason)) for reason, count in by_count),
            )
        # plain text, the same in a log and a notebook
        text = StringIO()
        Console(file=text, width=width(110), color_system=None, markup=False).print(table)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return "\n".join([heading, *(line for line in lines if line)])

    __repr__ = __str__


def _told(reason: str, count: int, found: str | None) -> str:
    return f"{reason}: {count:,}" if found is None else f"{reason}: {count:,}, at first {found}"


def status() -> Status:
    """A snapshot of the counts, with the frameworks that are enabled now, and the packs of kernels that are loaded.

    Raises PackError where a pack that ``GSB_PACK`` names cannot be used.
    """
    with _lock:
        ran = {key: tally.read() for key, tally in _ours.items()}
        fell_back = {key: tally.read() for key, tally in _fallbacks.items()}
        first = dict(_first)
    for operator, count in without_kernels.counts().items():
        fell_back["torch", operator, NO_KERNEL] = count
    rows = {
        key: OperatorCounts(*key, ours=ran.get(key, 0), fallbacks={})
        for key in sorted({*ran, *(key[:2] for key in fell_back)})
    }
    for (framework, operator, reason), count in fell_back.items():
        row = rows[framework, operator]
        row.fallbacks[reason] = count
        if (found := first.get((framework, operator, reason))) is not None:
            row.found[reason] = found
    loaded = (PackUse(str(pack.path), len(pack.kernels), packs.used(pack)) for pack in packs.loaded)
    return Status(enabled_frameworks(), tuple(rows.values()), tuple(loaded), lost())
