"""Interleaved timing of several callables that do the same work.

Timing one contender after the other compares them under different machine states (frequency, neighbours on the host,
page cache). Here every round runs each contender once, in rotating order, so that a disturbance falls on all of them.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one contender, over its samples.

    ``lower`` and ``upper`` are the quartiles, ``minimum`` the shortest sample, ``outliers`` how many samples lie beyond
    Tukey's fences (1.5 interquartile ranges outside the quartiles). They stay in the median, which they hardly move.
    ``calls`` is the number of back-to-back calls that one sample averages.
    """

    median: float
    lower: float
    upper: float
    minimum: float
    samples: int
    calls: int
    outliers: int

    @classmethod
    def of(cls, samples: list[float], calls: int = 1) -> Timing:
        if not samples:
            raise ValueError("no samples to summarise: time at least one call")
        lower, median, upper = (float(q) for q in np.quantile(samples, (0.25, 0.5, 0.75)))
        fence = 1.5 * (upper - lower)
        outliers = sum(s < lower - fence or s > upper + fence for s in samples)
        return cls(median, lower, upper, min(samples), len(samples), calls, outliers)

    @property
    def uncertainty(self) -> float:
        """Half-width of the 95 % interval of the median, relative to it.

        The asymptotic formula for notched box plots: 1.57 IQR / sqrt(n) (McGill, Tukey and Larsen, 1978).
        """
        return 1.57 * (self.upper - self.lower) / math.sqrt(self.samples) / self.median if self.median else 0.0

    def to_dict(self) -> dict:
        return {**asdict(self), "uncertainty": self.uncertainty}


@dataclass(frozen=True)
class Rules:
    """When to stop, and when a contender that cannot be the fastest any more stops costing time.

    budget_s: seconds for all contenders together; passed only to reach ``min_rounds``, of which a contender has
        ``long_rounds`` alone once its calls take more than ``long_s``.
    precision: stop early once the median of every contender still running is known to this relative uncertainty.
    sample_s: a sample repeats a call until it lasts about this long, so that the clock's resolution does not matter.
    settle_s: calls shorter than this are preceded by one untimed call of the same contender. It brings back the
        contender's own data and lets the spinning threads of the previous contender's pool go to sleep.
    hopeless: a contender this many times slower than the fastest in both of its first two samples keeps only those.
    slow: a contender whose shortest sample is this many times the fastest's median leaves after ``min_rounds`` samples.
    """

    budget_s: float = 2.0
    min_rounds: int = 5
    long_rounds: int = 3
    long_s: float = 1.0
    max_rounds: int = 300
    precision: float = 0.01
    sample_s: float = 1e-3
    settle_s: float = 5e-3
    hopeless: float = 6.0
    slow: float = 3.0

    def __post_init__(self) -> None:
        if self.long_rounds < 1:
            raise ValueError(f"need at least one round of long calls, got long_rounds {self.long_rounds}")
        if self.min_rounds < 1 or self.max_rounds < self.min_rounds:
            raise ValueError(f"need 1 <= min_rounds <= max_rounds, got {self.min_rounds} and {self.max_rounds}")
        if self.hopeless < 1 or self.slow < 1:
            raise ValueError(f"hopeless and slow are ratios of at least 1, got {self.hopeless} and {self.slow}")

    def least(self, samples: list[float]) -> int:
        """How many samples a contender has at least, by the seconds of those that it has."""
        return min(self.min_rounds, self.long_rounds) if min(samples) > self.long_s else self.min_rounds


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    rules: Rules = Rules(),
    *,
    warm: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time every contender of ``{name: callable}`` in rounds; return ``{name: Timing}`` in the same order.

    ``warm``: call each once untimed first; pass False when that has happened. The garbage collector is off during the
    rounds. ``clock`` gives seconds.
    """
    if not contenders:
        return {}
    names = list(contenders)
    start = clock()
    with collector_off():
        calls, samples = {}, {}
        for name in names:
            if warm:
                contenders[name]()
            samples[name] = [_sample(contenders[name], 1, clock) for _ in range(2)]
            calls[name] = min(1000, math.ceil(rules.sample_s / max(min(samples[name]), 1e-9)))
            if calls[name] > 1:
                samples[name] = [_sample(contenders[name], calls[name], clock)]
        fit = _without_slower(names, samples, rules.hopeless)
        active = [name for name in names if name in fit or len(samples[name]) < 2]
        for turn in range(1, rules.max_rounds):
            for name in rotated(active, turn):
                call = contenders[name]
                if samples[name][-1] < rules.settle_s:
                    call()
                samples[name].append(_sample(call, calls[name], clock))
            if any(len(samples[name]) < rules.least(samples[name]) for name in active):
                continue
            active = _without_slower(active, samples, rules.slow)
            if clock() - start >= rules.budget_s:
                break
            if all(Timing.of(samples[n]).uncertainty <= rules.precision for n in active):
                break
    return {name: Timing.of(samples[name], calls[name]) for name in names}


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect garbage now, and not again inside the block."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _sample(call: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    begin = clock()
    for _ in range(calls):
        call()
    return (clock() - begin) / calls


def rotated(names: list[str], turn: int) -> list[str]:
    """The names in the order of the given round: each goes first in turn."""
    shift = turn % len(names)
    return names[shift:] + names[:shift]


def _without_slower(names: list[str], samples: dict[str, list[float]], ratio: float) -> list[str]:
    fastest = min(float(np.median(samples[name])) for name in names)
    return [name for name in names if min(samples[name]) <= ratio * fastest]
