"""Covering arrays: few cases in which every value of a factor meets every value of every other."""

from __future__ import annotations

import itertools
import random as pyrandom


def covering(factors: dict[str, list], seed: int = 0) -> list[tuple]:
    """Cases in which every value of each factor meets every value of every other, by greedy choice among random
    cases.
    """
    rng = pyrandom.Random(seed)
    names = list(factors)
    wanted = {
        (a, x, b, y)
        for a, b in itertools.combinations(range(len(names)), 2)
        for x in range(len(factors[names[a]]))
        for y in range(len(factors[names[b]]))
    }
    cases = []
    while wanted:
        best, most = None, set()
        a0, x0, b0, y0 = min(wanted)
        for _ in range(40):
            case = [rng.randrange(len(factors[name])) for name in names]
            case[a0], case[b0] = x0, y0
            met = {(a, case[a], b, case[b]) for a, b in itertools.combinations(range(len(names)), 2)} & wanted
            if len(met) > len(most):
                best, most = case, met
        wanted -= most
        cases.append(tuple(factors[name][at] for name, at in zip(names, best)))
    return cases
