"""What every benchmark says of a cell: who is fastest, how far that is from the roofline, and where its time goes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from benchmarks.operators.work import Work
from benchmarks.support import reasons, summary
from benchmarks.support.reasons import Evidence
from benchmarks.support.roofline import Roofline


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
