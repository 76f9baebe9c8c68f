"""Covering arrays: few cases in which every value of a factor meets every value of every other.

What fails, fails nearly always by one parameter or by two that meet (Kuhn, Wallace and Gallo, "Software fault
interactions and implications for software testing", IEEE Transactions on Software Engineering 30(6), 2004).
"""

from __future__ import annotations

import itertools
import random as pyrandom
from collections.abc import Hashable, Mapping, Sequence

import pytest


def covering(factors: dict[str, list], seed: int = 0, as_one: bool = False) -> list:
    """Rows for ``parametrize`` in which every value of each factor meets every value of every other.

    Found by greedy choice among random cases. The short run takes as many of them as it needs to see every value once;
    the others are marked ``exhaustive``. as_one: a row is one parameter, the tuple of its values.
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
        cases.append(best)
    short = set(enough([dict(enumerate(case)) for case in cases], 1))
    rows = [tuple(factors[name][at] for name, at in zip(names, case)) for case in cases]
    return [
        pytest.param(*((row,) if as_one else row), marks=() if at in short else pytest.mark.exhaustive)
        for at, row in enumerate(rows)
    ]


def enough(cases: Sequence[Mapping[Hashable, Hashable]], strength: int) -> list[int]:
    """Positions of cases, factor -> value, that have every combination of ``strength`` values which any of them has.

    Greedy; of cases that add equally many combinations the first is taken, so the choice depends on the cases alone.
    """
    combinations = [
        {frozenset(some) for some in itertools.combinations(case.items(), min(strength, len(case)))} for case in cases
    ]
    kept: list[int] = []
    while True:
        # max takes the first of equals
        best = max(range(len(cases)), key=lambda at: len(combinations[at]), default=None)
        if best is None or not combinations[best]:
            return sorted(kept)
        kept.append(best)
        met = set(combinations[best])
        for some in combinations:
            some -= met
