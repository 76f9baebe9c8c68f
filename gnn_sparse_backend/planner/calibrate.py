"""The constants of the cost model, from the times of a few small problems on this machine.

Non-negative least squares of relative errors, held near the defaults where the probes say little (Lawson and Hanson,
"Solving Least Squares Problems", 1974, chapter 23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..frozen import dataclass
from .cost import DEFAULT_UNITS, predicted_seconds
from .cpu.rows import CpuPlan, RowPlan, ScatteredPlan
from .cpu.spmm import GROUPS_PER_THREAD
from .problem import Problem

# A default counts as much as a probe that is off by this factor.
_TRUST = 0.15
# Seconds.
MOST_OVERHEAD = 1e-4


@dataclass(frozen=True)
class Probe:
    """A problem on uniformly random columns, and a plan to run it with."""

    problem: Problem
    plan: CpuPlan


def probes(threads: int) -> tuple[Probe, ...]:
    """What to measure: eleven kernels on structures inside a core's cache, inside the last level, and beyond both.

    With several threads each problem is there twice, on one thread and on all.
    """
    several = (1, GROUPS_PER_THREAD * threads) if threads > 1 else (1,)
    found: list[Probe] = []
    rows_in_turn = RowPlan(1)

    def add(
        rows: int,
        cols: int,
        degree: int,
        features: int,
        groups: Sequence[int] = several,
        plan: CpuPlan = rows_in_turn,
    ) -> None:
        problem = Problem("sum:column", rows, cols, rows * degree, features, "float32", threads, cols)
        found.extend(Probe(problem, replace(plan, groups=each)) for each in groups)

    for degree, rows in ((8, 1000), (64, 1000), (1, 20_000)):
        add(rows, 1000, degree, 16)
    for degree in (8, 64):
        add(1000, 400, degree, 128)
    for degree in (4, 200):
        for plan in (rows_in_turn, RowPlan(1, in_lanes=True), ScatteredPlan(1)):
            add(2000, 1000, degree, 1, groups=(1,), plan=plan)
    for plan in (rows_in_turn, RowPlan(1, prefetch=8)):
        add(20_000, 60_000, 10, 16, plan=plan)
        add(150_000, 1_000_000, 4, 16, plan=plan)
        add(1000, 8000, 20, 128, plan=plan)
        add(10_000, 150_000, 10, 128, plan=plan)
    return tuple(found)


def undisturbed(measured: Sequence[tuple[Probe, float]]) -> list[tuple[Probe, float]]:
    """Drop the probes on several threads that waited for a core that was busy with something else: a parallel region
    that costs ``MOST_OVERHEAD`` more than the same work on one thread.
    """
    alone = {
        (probe.problem, replace(probe.plan, groups=1)): seconds for probe, seconds in measured if probe.plan.groups == 1
    }
    return [
        (probe, seconds)
        for probe, seconds in measured
        if seconds <= alone[probe.problem, replace(probe.plan, groups=1)] + MOST_OVERHEAD
    ]


def fit(measured: Sequence[tuple[Probe, float]]) -> dict[str, float]:
    """Units as ``DEFAULT_UNITS`` that explain the measured seconds of the probes best.

    Raises ValueError for a time that is not positive.
    """
    for probe, seconds in measured:
        if not seconds > 0:
            raise ValueError(f"a probe took {seconds} s: {probe}")
    from scipy.optimize import nnls

    names = list(DEFAULT_UNITS)
    default = np.array([DEFAULT_UNITS[name] for name in names])
    rows = [
        np.array([probe.plan.counts(probe.problem)[name] for name in names]) * default / seconds
        for probe, seconds in measured
    ]
    matrix = np.vstack([*rows, _TRUST * np.eye(len(names))])
    target = np.concatenate([np.ones(len(measured)), np.full(len(names), _TRUST)])
    factors, _ = nnls(matrix, target)
    return {name: float(factor * unit) for name, factor, unit in zip(names, factors, default)}


def errors(measured: Sequence[tuple[Probe, float]], units: Mapping[str, float]) -> list[float]:
    """Predicted over measured time of each probe."""
    return [predicted_seconds(probe.problem, probe.plan, units) / seconds for probe, seconds in measured]
