"""The numbers that summarise many cells: speed-up ratios, geometric means, worst cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

OURS = "gsb"


def geometric_mean(ratios: Iterable[float]) -> float:
    """Geometric mean of positive numbers; NaN for none, ValueError for one that is not positive."""
    ratios = list(ratios)
    if any(not r > 0 for r in ratios):
        raise ValueError(f"the geometric mean needs positive numbers, got {[r for r in ratios if not r > 0][:3]}")
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def best_peer(medians: Mapping[str, float], ours: str = OURS) -> str | None:
    """The name of the fastest contender other than ours, or None when there is none."""
    peers = {name: seconds for name, seconds in medians.items() if name != ours}
    return min(peers, key=peers.__getitem__) if peers else None


def speedup(medians: Mapping[str, float], ours: str = OURS) -> float | None:
    """Seconds of the best peer over our seconds: above 1 we are faster. None without a peer or without ours."""
    peer = best_peer(medians, ours)
    if peer is None or ours not in medians:
        return None
    return medians[peer] / medians[ours]


def worst(cells: Iterable[dict], count: int = 5) -> list[dict]:
    """The ``count`` cells with the smallest ``"speedup"``, smallest first; cells without one are left out."""
    return sorted((c for c in cells if c["speedup"] is not None), key=lambda c: c["speedup"])[:count]
