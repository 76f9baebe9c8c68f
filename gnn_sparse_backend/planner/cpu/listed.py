"""When the edges of a graph are brought into rows, and when each pass goes over them as they are listed.

A graph that is used once need not be converted: a pass over its list costs little more than one over its rows, as long
as the result stays in the processor's caches. With every pass what rows would have saved is added up; once that is what
they cost, they are made. So nobody pays more than twice what knowing the future would cost. A graph of which a single
pass would lose that much is converted at once.

Constants are of one core of a Zen 3.
"""

from __future__ import annotations

from typing import Any

CONVERSION = 25.0
"""Nanoseconds for each edge: check, count, sort, and as much again for the transpose."""

FIXED = 60_000.0
"""Nanoseconds of a conversion, however small."""

RESULT_IN_CACHE, FAR = 0.03, 0.5
"""Nanoseconds that a feature of an edge costs more on a list: where the result stays in the first two caches, and
where each edge waits for its row."""

NEAR = 256 * 1024
"""Bytes of a result that stay near."""

IN_ROWS = 0.25
"""Nanoseconds of a feature of an edge in rows, which threads share."""

ALONE = 40_000
"""Features of edges up to which one thread is as fast as several."""

ROWS_PER_EDGE = 4
"""Products of nodes and relations for each edge up to which all of them are made, on a graph that is new."""

TINY, USUAL = 1 << 12, 1 << 21

LEFT = {"sum": (1 << 14, 1 << 14), "mean": (0, 1 << 13), "max": (1 << 13, TINY), "min": (1 << 13, TINY)}
"""Features of edges up to which PyTorch's own reduction takes no longer than a call of ours: where no gradient is
asked for, and where one is. They are of edges with `WIDE` features or more; of others it is a quarter. Steps lie
between two machines: a sum's takes as long as ours at 4,000 features on a Zen 3, and at 150,000 on a Xeon.
"""

WIDE = 16
"""Features of a row from which on PyTorch reduces them together."""


class Few:
    """What few edges are: nothing that is computed on them is followed, and they are read as they are listed.

    features: of edges, over all of an operation. edges: where it is not known what for. tiny: features up to which an
    autograd function in Python takes longer than the framework's own few; 0: none are left to it. often: features up to
    which that holds of a graph that comes again and again, and would have been brought into rows by now.
    """

    __slots__ = ("edges", "features", "often", "tiny")

    def __init__(self, features: int):
        self.set(features)

    def set(self, features: int) -> None:
        """0: no edges are few."""
        self.features, self.edges = features, features // 32
        self.often, self.tiny = features // 4, min(features, TINY)

    def leaves(self, kind: str | None, rows: int, features: int, recorded: bool) -> bool:
        """Whether the reduction of this many rows, with this many features in all, is faster in PyTorch. kind: of
        a `Reduction`, or anything else. recorded: whether a gradient may be asked for.
        """
        if not self.tiny:
            return False
        most = min(LEFT.get(kind or "", (0, TINY))[recorded], self.features)
        return features <= (most if features >= WIDE * rows else most >> 2)


FEW = Few(USUAL)
"""The limit in this process."""


def loss(rows: int, edges: int, features: int, threads: int) -> float:
    """Nanoseconds that a pass over listed edges takes longer than one over rows."""
    work = edges * features
    lost = work * (RESULT_IN_CACHE if rows * features * 4 <= NEAR else FAR)
    if threads > 1 and work > ALONE:
        lost += work * IN_ROWS * (1 - 1 / threads)
    return lost


def conversion(edges: int) -> float:
    """Nanoseconds to bring edges into rows."""
    return FIXED + CONVERSION * edges


def pays_to_convert(edges: Any, rows: int, columns: int, features: int, threads: int) -> bool:
    """Whether rows pay for themselves from this pass on. edges: a list, with its ``lost`` so far, which is added to."""
    count = edges.row.shape[0]
    edges.lost += loss(rows, count, features, threads)
    return bool(edges.lost > conversion(count))


def told(rows: int, edges: int, features: int, threads: int) -> str:
    """What happens to a graph of this size that a framework hands over for the first time, in words."""
    lost, whole = loss(rows, edges, features, threads), conversion(edges)
    passes = int(whole // lost) if lost else 0
    if edges * features > FEW.features or not passes:
        return f"new graphs of this size are brought into rows at once ({whole / 1e3:,.0f} µs)"
    return (
        f"new graphs of this size: the first {passes:,} passes read the edges as they are listed, each of them "
        f"{lost / 1e3:,.1f} µs longer than over rows, which take {whole / 1e3:,.0f} µs to make"
    )
