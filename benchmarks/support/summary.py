"""The numbers that summarise many cells: speed-up ratios, geometric means, worst cells."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

OURS = "gsb"
WORST = 5


def geometric_mean(ratios: Iterable[float]) -> float:
    """Geometric mean of positive numbers; NaN for none, ValueError for one that is not positive."""
    ratios = list(ratios)
    if any(not r > 0 for r in ratios):
        raise ValueError(f"the geometric mean needs positive numbers, got {[r for r in ratios if not r > 0][:3]}")
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def best(costs: Mapping[str, float], names: Collection[str]) -> str | None:
    """The name among ``names`` with the smallest cost, or None when none of them has one."""
    known = [name for name in costs if name in names]
    return min(known, key=costs.__getitem__) if known else None


def best_peer(costs: Mapping[str, float], ours: Collection[str] = (OURS,)) -> str | None:
    """The cheapest contender that is not one of ours, or None when there is none."""
    return best(costs, [name for name in costs if name not in ours])


def speedup(costs: Mapping[str, float], ours: Collection[str] = (OURS,)) -> float | None:
    """The cost of the best peer over that of the best of ours, seconds or bytes: above 1 we are better.

    None without a peer, without ours, or where either is not positive (a step too small for its memory to show).
    """
    peer, own = best_peer(costs, ours), best(costs, ours)
    if peer is None or own is None or not (costs[peer] > 0 and costs[own] > 0):
        return None
    return costs[peer] / costs[own]


def mean_or_none(ratios: Iterable[float | None]) -> float | None:
    """Geometric mean of those ratios that there are; None for none, which JSON can hold."""
    known = [ratio for ratio in ratios if ratio is not None]
    return geometric_mean(known) if known else None


def by_key(cells: Sequence[dict], key: str, ratio: str = "speedup") -> dict[str, float | None]:
    """Geometric mean of the cells' ``ratio`` for each value of ``key``, in order of appearance."""
    values = dict.fromkeys(cell[key] for cell in cells)
    return {str(value): mean_or_none(c[ratio] for c in cells if c[key] == value) for value in values}


def worst(cells: Iterable[dict], count: int = WORST) -> list[dict]:
    """The ``count`` cells with the smallest ``"speedup"``, smallest first; cells without one are left out."""
    return sorted((c for c in cells if c["speedup"] is not None), key=lambda c: c["speedup"])[:count]


def summarise(cells: Sequence[dict], keys: Sequence[str]) -> dict:
    """What every benchmark reports of its rated cells (``cells.rate``): means, overall and by key, and the worst
    cells.
    """
    return {
        "geometric_mean": mean_or_none(cell["speedup"] for cell in cells),
        **{f"by_{key}": by_key(cells, key) for key in keys},
        "cells": len(cells),
        "wrong": [{"where": cell["where"], "reason": cell["wrong"]} for cell in cells if cell["wrong"]],
        "worst": [place(cell) for cell in worst(cells)],
    }


def place(cell: dict) -> dict:
    """A rated cell in short: where it is, its ratio, both times in seconds, and its reason."""
    own, peer = (cell["timings"].get(cell[name], {}).get("median") for name in ("best_ours", "best_peer"))
    copied = {key: cell[key] for key in ("where", "speedup", "best_ours", "best_peer", "reason")}
    difference = own - peer if own is not None and peer is not None else None
    return copied | {"ours": own, "theirs": peer, "difference": difference}
