"""Calls of the contenders of ``benchmarks.rgcn``: first ones, whose answers are compared, then timed ones in turns."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.layers.contenders import BACKEND
from benchmarks.layers.layers import disagreement, gradient_disagreement
from benchmarks.layers.rgcn.graphs import RelationalGraph
from benchmarks.layers.rgcn.models import Network, context_of, framework_of
from benchmarks.support import reasons
from benchmarks.support.reasons import Evidence
from benchmarks.support.timing import Timing
from benchmarks.support.turns import Switched, in_turns

MODES = ("inference", "step")
# a contender so many times slower than the fastest keeps the one sample it has
HOPELESS = 3.0
# seconds of a call from which one sample is enough: what disturbs it for a moment is lost in it
LONG_CALL = 5.0
# seconds of a first call up to which a second one warms up: the memory that the backend's being switched on and off
# gave back
WARMED = 20.0


def first_calls(
    names: Iterable[str], graph: RelationalGraph, features: int, seed: int, modes: Sequence[str] = MODES
) -> tuple[dict, dict, dict, dict]:
    """(networks, seconds of their first call by mode, what is wrong by mode, evidence by mode), all by contender.

    The answers must agree with the first one's, by entry for the output and by norm for the gradients.
    """
    networks: dict[str, Network] = {}
    seconds, wrong, evidence = ({mode: {} for mode in modes} for _ in range(3))
    expected: dict[str, tuple] = {}
    for name in names:
        try:
            networks[name] = Network(name, graph, features, seed)
        except Exception as error:  # one contender's failure is a result, and must not cost the others theirs
            for mode in modes:
                wrong[mode][name] = f"{type(error).__name__}: {error}"
            continue
        for mode in modes:
            with context_of(name)():
                begin = time.perf_counter()
                try:
                    answer, ours, fallbacks = reasons.count_calls(framework_of(name), getattr(networks[name], mode))
                except Exception as error:
                    wrong[mode][name] = f"{type(error).__name__}: {error}"
                    continue
                seconds[mode][name] = time.perf_counter() - begin
            evidence[mode][name] = Evidence(ours=ours, fallbacks=fallbacks)
            mismatch = mismatch_of(answer, expected.setdefault(mode, answer))
            if mismatch is not None:
                wrong[mode][name] = mismatch
    return networks, seconds, wrong, evidence


def mismatch_of(answer: tuple, expected: tuple) -> str | None:
    names = Network.results
    return disagreement(names[:1], answer[:1], expected[:1]) or gradient_disagreement(
        names[1:], answer[1:], expected[1:]
    )


def timed(calls: Mapping[str, Switched], first: Mapping[str, float], budget: float) -> dict[str, dict]:
    """``{contender: timing}``: those that are far behind, and those that take many seconds, keep one sample; it is a
    warm one but where a call takes very long. first: seconds of the first calls."""
    begin = time.perf_counter()
    samples = {}
    for name, call in calls.items():
        with call.context():
            if first[name] < WARMED:
                call.call()
            start = time.perf_counter()
            call.call()
            samples[name] = time.perf_counter() - start
    if not samples:
        return {}
    fit = {name: call for name, call in calls.items() if samples[name] <= HOPELESS * min(samples.values())}
    # the fastest peer is half of the ratio
    peers = [name for name in calls if not name.endswith(BACKEND)]
    if peers:
        nearest = min(peers, key=samples.__getitem__)
        fit[nearest] = calls[nearest]
    fit = {name: call for name, call in fit.items() if samples[name] < LONG_CALL}
    left = max(0.0, budget - (time.perf_counter() - begin))
    slowest = max((samples[name] for name in fit), default=0.0)
    turns = in_turns(
        fit, budget_s=left, turn_s=0.02, calls=1 if slowest > 1 else 2 if slowest > 0.3 else 3, min_turns=2
    )
    found = {}
    for name in calls:
        timing = turns[name].timing if name in turns else Timing.of([samples[name]])
        opening = turns[name].opening if name in turns else samples[name]
        found[name] = timing.to_dict() | {"first_call": first[name], "opening": opening}
    return found
