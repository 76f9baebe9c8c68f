"""Where the time of a call goes, told from measurements: the reason that goes with a cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

# Parts below this share of the time are not worth a word.
NOTABLE = 0.25
# Medians known less well than this say little.
DOUBTFUL = 0.2


@dataclass(frozen=True)
class Evidence:
    """What was measured beside a call, in seconds; None where it was not.

    overhead: the same call on a graph of one edge: what calling costs, whatever the size.
    rest: the same call on the same nodes without edges: dense products, element-wise operators, the optimiser.
    ours, fallbacks: operator calls that ran on our kernels, and ``{operator: reason}`` -> calls that did not.
    """

    overhead: float | None = None
    rest: float | None = None
    ours: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict:
        return asdict(self) | {"fallbacks": dict(self.fallbacks)}


def explain(evidence: Evidence, distance: Mapping, ours: float, theirs: float | None, uncertainty: float = 0.0) -> str:
    """A sentence or two on a call of ``ours`` seconds, its largest part first.

    distance: ``Roofline.distance`` of the call. theirs: the best peer's seconds. uncertainty: relative, of ``ours``.
    """
    parts: list[tuple[float, str]] = []
    if evidence.overhead is not None:
        parts.append(
            (
                evidence.overhead / ours,
                f"calling alone (one edge) takes {duration(evidence.overhead)} of {duration(ours)}",
            )
        )
    if evidence.rest is not None and (evidence.overhead is None or evidence.rest > 2 * evidence.overhead):
        text = f"what has no edges (dense products, element-wise) takes {duration(evidence.rest)} of {duration(ours)}"
        if evidence.rest > ours:
            text += ", more than the call itself: one of the two was disturbed"
        elif theirs is not None:
            text += f": with free message passing the ratio would be {theirs / evidence.rest:.2f}"
        parts.append((evidence.rest / ours, text))
    parts.append(_roofline(distance, ours))
    notable = sorted((part for part in parts if part[0] >= NOTABLE), reverse=True)
    said = [text for _, text in notable] or [
        f"none of what was measured apart explains it: {ours / distance['bound_compulsory']:.0f} times the bound by "
        f"{distance['binds']}, {ours / distance['bound_gather']:.0f} times that of a row per edge"
    ]
    if uncertainty > DOUBTFUL:
        said.append(f"the median is known to {100 * uncertainty:.0f} % only: the machine was disturbed")
    if evidence.fallbacks:
        calls = sum(evidence.fallbacks.values())
        said.append(
            f"{calls} of {calls + evidence.ours} operator calls were the framework's own ("
            + "; ".join(sorted(evidence.fallbacks))
            + ")"
        )
    return "; ".join(said)


def _roofline(distance: Mapping, ours: float) -> tuple[float, str]:
    """The share of the time that the roofline accounts for; without a cache at most, which caches can make exceed 1."""
    if distance["binds"] == "arithmetic":
        share = distance["roofline_compulsory"]
        return share, f"binds by arithmetic at {100 * share:.0f} % of the measured peak"
    compulsory, gather = distance["roofline_compulsory"], distance["roofline_gather"]
    return min(gather, 1.0), (
        f"binds by memory: {100 * compulsory:.0f} % of the measured bandwidth for the bytes that "
        f"must move, {100 * gather:.0f} % counting a row per edge"
    )


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def count_calls(framework: str, call: Callable[[], object]) -> tuple[object, int, dict[str, int]]:
    """The result of ``call()``, the operators of ``framework`` that it ran on our kernels, and its fallbacks with
    their reasons.
    """
    before = _counts(framework)
    result = call()
    after = _counts(framework)
    ours = after.pop(None) - before.pop(None)
    fallbacks = {what: count - before.get(what, 0) for what, count in after.items()}
    return result, ours, {what: count for what, count in fallbacks.items() if count}


def _counts(framework: str) -> dict[str | None, int]:
    """Calls so far: on our kernels under None, fallbacks under ``operator: reason``."""
    import gnn_sparse_backend as gsb

    rows = [row for row in gsb.status().rows if row.framework == framework]
    counts: dict[str | None, int] = {None: sum(row.ours for row in rows)}
    for row in rows:
        for reason, count in row.fallbacks.items():
            counts[f"{row.operator}: {reason}"] = count
    return counts
