"""What every benchmark says of a cell: who is fastest, how far that is from the roofline, and where its time goes.

And how cells are measured one after another into one report (`Series`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from torch import Tensor

from benchmarks.operators.work import Work
from benchmarks.support import machine, merging, reasons, report, summary
from benchmarks.support.reasons import Evidence
from benchmarks.support.roofline import Roofline


class Unable(Exception):
    """The contender cannot compute this; the message says why."""


@dataclass
class Answers:
    """What contenders of a cell did at first, by name.

    calls: of those whose answer is right. prepared: seconds until a call was there. wrong, unable: of the others, why.
    """

    calls: dict[str, Callable] = field(default_factory=dict)
    prepared: dict[str, float] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    unable: dict[str, str] = field(default_factory=dict)


def answers(
    names: Iterable[str], call_of: Callable[[str], Callable], mismatch: Callable[[tuple[Tensor, ...]], str | None]
) -> Answers:
    """Every contender's call, made and checked. What ``call.in_our_order`` makes of an answer is compared, where it is.

    mismatch: what is wrong with an answer; None if it is right.
    """
    found = Answers()
    for name in names:
        try:
            begin = time.perf_counter()
            call = call_of(name)
            found.prepared[name] = time.perf_counter() - begin
            wrong = mismatch(getattr(call, "in_our_order", lambda answer: answer)(call()))
        except Unable as error:
            found.unable[name] = str(error)
        except Exception as error:  # one contender's failure is a result, and must not cost the others theirs
            said = str(error).partition("\n")[0]
            found.unable[name] = f"{type(error).__name__}: {said[:160]}"
        else:
            if wrong is None:
                found.calls[name] = call
            else:
                found.wrong[name] = wrong
    return found


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """The largest difference to float64, relative to the largest number that is wanted."""
    return float((found.detach().double() - wanted).abs().max()) / max(float(wanted.abs().max()), 1e-30)


@dataclass(frozen=True)
class Series:
    """What a benchmark measures one cell after another, and how its report is made.

    name: of the files. head: what the report says beside its cells, read anew at each cell. wanted: the place of each
    cell, said in words by ``str``. measure: a place to its cell, None where that is skipped. line: a cell in a line.
    show: prints the report. panels, axis: keys of cells for ``report.panels_of`` and the label below; without them no
    figure is drawn. joined: what becomes of a cell that an earlier report has, given the earlier one and the new one.
    """

    name: str
    head: Mapping
    wanted: Sequence
    measure: Callable[[Any], dict | None]
    summarise: Callable[[Sequence[dict]], dict]
    line: Callable[[Mapping], str]
    show: Callable[[Mapping, Console], None]
    panels: tuple[str, str, str] | None = None
    axis: str = ""
    joined: Callable[[dict, dict], dict] = lambda earlier, now: now


def measured(series: Series, options: argparse.Namespace, console: Console) -> dict:
    """The report, as plain values, in which cells of an earlier one are kept where the options ask for that. It is
    written after each cell: a long run that is stopped leaves what it has measured.
    """
    path = options.out / f"{series.name}.json"
    before = merging.read(path) if options.append else None
    earlier = {cell["where"]: cell for cell in (before or {}).get("cells", ())}
    found: list[dict] = []

    def so_far() -> dict:
        merged = merging.merge(before, {**series.head, "cells": list(found)})
        return merged | {"summary": series.summarise(merged["cells"])}

    with report.progress(console, len(series.wanted)) as begin:
        for place in series.wanted:
            begin(str(place))
            cell = series.measure(place)
            if cell is None:
                continue
            if cell["where"] in earlier:
                cell = series.joined(earlier[cell["where"]], cell)
            found.append(cell)
            machine.write_json(path, so_far())
            console.print(series.line(cell), highlight=False)
    return so_far()


def reported(series: Series, options: argparse.Namespace, console: Console) -> int:
    """Measure, print the tables, write ``name``.json and, where there are panels, ``name``.png. 1 if an answer was
    wrong, else 0.
    """
    results = measured(series, options, console)
    series.show(results, console)
    if series.panels is None:
        console.print(f"written: {machine.write_json(options.out / f'{series.name}.json', results)}")
    else:
        panels = report.panels_of(results["cells"], *series.panels)
        report.finish(results, panels, series.name, series.axis, options.out, console)
    return 1 if results["summary"]["wrong"] else 0


def rate(
    where: str,
    timings: Mapping[str, dict],
    ours: Collection[str],
    limits: Roofline,
    work: Work | Mapping[str, Work],
    *,
    wrong: Mapping[str, str] | None = None,
    evidence: Evidence | Mapping[str, Evidence] = Evidence(),
) -> dict:
    """The keys that all cells share, as plain values.

    where: the cell in words. timings: ``{contender: {"median": seconds, ...}}``. ours: the names of our contenders.
    work, evidence: of our contenders, each its own where given by name.
    wrong: ``{contender: reason}``; those have no timings.

    ``speedup`` is the best peer's median over the best of ours. ``roofline_*`` and ``binds``: of the best of ours
    (``Roofline.distance``). ``reason``: what that one's time goes into.
    """
    medians = {name: timing["median"] for name, timing in timings.items()}
    own, peer = summary.best(medians, ours), summary.best_peer(medians, ours)
    shown = own if own is not None else next(iter(ours))
    distance = limits.distance(_of(work, shown), medians.get(own))
    cell = {
        "where": where,
        "timings": dict(timings),
        "wrong": dict(wrong or {}),
        "best_ours": own,
        "best_peer": peer,
        "speedup": summary.speedup(medians, ours),
        **distance,
    }
    found = _of(evidence, shown)
    reason = None
    if own is not None:
        reason = reasons.explain(found, distance, medians[own], medians.get(peer), timings[own].get("uncertainty", 0.0))
    return cell | {"evidence": found.to_dict(), "reason": reason}


def _of(given, name: str):
    return given[name] if isinstance(given, Mapping) else given
