"""A softmax over keys that come block by block: what the lanes, which are queries, know so far."""

from __future__ import annotations

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, equal, exp, log, maximum, number, select
from .items import Items

LOWEST = -3.4e38
"""Stands for a maximum before there is any: minus infinity less itself would not be a number."""

LEAST = {"float32": -87.0, "float64": -708.0}
"""Scores that are so much below the largest one weigh nothing: exponentials of less are below the smallest normal
number, which processors compute in a hundred times the time, and hidden scores are minus infinity."""


class OnlineSoftmax:
    """Maxima and sums of the lanes, and Shrink: what all that was summed up before a block is multiplied by."""

    def __init__(self, items: Items) -> None:
        self.p, self.b, self.spec = items.p, items.blocks, items.spec
        self.max, self.sum, self.shrink = (self.b.local(name, self.spec.line) for name in ("Max", "Sum", "Shrink"))
        self.zero = number(0.0, self.spec.accumulator)
        self.least = number(LEAST[self.spec.accumulator], self.spec.accumulator)

    def begin(self) -> None:
        self.b.vectors("no_sum", self.spec.line, self._start)

    def _start(self, c: Expr) -> None:
        self.max[c], self.sum[c] = LOWEST, 0.0

    def weigh(self, scores: BufferHandle) -> None:
        """Weights in the place of the scores of a block, (keys, queries); 0 of minus infinity."""
        p, b, spec, lanes = self.p, self.b, self.spec, self.spec.lanes
        with b.each("softmax", spec.line // lanes) as vector:
            New = p.local("New", (b.C,), spec.accumulator)
            with b.lanes("old") as c:
                New[c] = self.max[vector * lanes + c]
            with b.each("maximum", spec.block, "R") as j, b.lanes("most") as c:
                New[c] = maximum(New[c], scores[j * spec.line + (vector * lanes + c)])
            with b.lanes("shrink") as c:
                lane = vector * lanes + c
                self.shrink[lane] = exp(self.max[lane] - New[c])
                self.max[lane] = New[c]
            with b.each("weigh", spec.block) as j, b.lanes("weight") as c:
                at = j * spec.line + (vector * lanes + c)
                less = scores[at] - New[c]
                weight = exp(select(less < self.least, self.least, less))
                scores[at] = select(less < self.least, self.zero, weight)
        with b.each("sum", spec.line // lanes) as vector:
            Total = p.local("Total", (b.C,), spec.accumulator)
            with b.lanes("before") as c:
                Total[c] = self.sum[vector * lanes + c] * self.shrink[vector * lanes + c]
            with b.each("sum_keys", spec.block, "R") as j, b.lanes("sum_lane") as c:
                Total[c] = Total[c] + scores[j * spec.line + (vector * lanes + c)]
            with b.lanes("total") as c:
                self.sum[vector * lanes + c] = Total[c]

    def finish(self) -> None:
        """Make Shrink what sums of weighted values are multiplied by at last."""
        self.b.vectors("inverse", self.spec.line, self._inverse)

    def _inverse(self, c: Expr) -> None:
        self.shrink[c] = select(equal(self.sum[c], self.zero), self.zero, 1.0 / self.sum[c])

    def logarithm(self, lane: Expr) -> Expr:
        """Of the sum of exponentials; infinity where there was none."""
        infinity = number(float("inf"), self.spec.accumulator)
        return select(equal(self.sum[lane], self.zero), infinity, self.max[lane] + log(self.sum[lane]))
