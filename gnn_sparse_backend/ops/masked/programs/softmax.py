"""A softmax over keys that come block by block: what the lanes, which are queries, know so far."""

from __future__ import annotations

from collections.abc import Callable

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, as_expr, equal, exp, log, maximum, number, select
from .items import Items
from .products import Range, Reach
from .spec import MaskedSpec

LOWEST = -3.4e38
"""Stands for a maximum before there is any: minus infinity less itself would not be a number."""

BRIEF = "brief"
"""What the names of iterations begin with whose exponentials need no more digits than bfloat16 has."""
TOGETHER = 4
"""Vectors."""
LEAST = {"float32": -87.0, "float64": -708.0}
"""Scores that are so much below the largest one weigh nothing: exponentials of less are below the smallest normal
number, which processors compute in a hundred times the time, and hidden scores are minus infinity."""


def in_vectors(keys: Range, spec: MaskedSpec) -> Range:
    """The vectors that have a range of keys: their numbers."""
    low, high = keys
    return (low, high) if spec.fold == 1 else (low // spec.fold, (high + (spec.fold - 1)) // spec.fold)


def inverse(total: Expr) -> Expr:
    """What sums of weighted values are multiplied by, given the sum of weights; 0 where there was none."""
    nothing = number(0.0, total.dtype)
    return select(equal(total, nothing), nothing, 1.0 / total)


def logarithm(most: Expr, total: Expr) -> Expr:
    """Logarithm of a sum of exponentials, which is relative to the largest score; infinity where there was none."""
    return select(equal(total, number(0.0, total.dtype)), number(float("inf"), total.dtype), most + log(total))


class OnlineSoftmax:
    """Maxima and sums of the lanes, and Shrink: what all that was summed up before a block is multiplied by. Where a
    vector has several keys, a query has a lane for each of them, with the maximum of all and a sum of its own.
    """

    def __init__(self, items: Items) -> None:
        self.p, self.b, self.spec = items.p, items.blocks, items.spec
        self.line = self.spec.padded(self.spec.line)
        self.max, self.sum, self.shrink = (self.b.local(name, self.line) for name in ("Max", "Sum", "Shrink"))
        self.count = 0
        self.zero = number(0.0, self.spec.accumulator)
        self.least = number(LEAST[self.spec.accumulator], self.spec.accumulator)

    def begin(self) -> None:
        self.b.vectors("no_sum", self.line, self._start)

    def _start(self, c: Expr) -> None:
        self.max[c], self.sum[c] = LOWEST, 0.0

    def weigh(self, scores: BufferHandle, reach: Reach) -> None:
        """Weights in the place of the scores of a block, (keys, queries), for the keys that a group of queries reaches;
        0 of minus infinity.
        """
        for group in range(self.spec.groups):
            first = group * self.spec.vectors
            vectors = min(self.spec.vectors, self.line // self.spec.lanes - first)
            new, within = self._old(first, vectors), in_vectors(reach(as_expr(group)), self.spec)
            self._most(scores, new, first, within)
            for own in new:
                self._fold(own, maximum)
            if self.spec.dtype == "bfloat16":
                self._weigh(scores, new, first, BRIEF, exp, lambda _, power: power, within)
            else:
                self._weigh(scores, new, first, "power", self._power, self._weight, within)

    def weigh_scaled(
        self, scores: BufferHandle, scale: Expr, hide: Callable[[], None], hidden: Callable[[], Expr] | None
    ) -> None:
        """`weigh` of products that are to be scaled first, to the digits of bfloat16. hide() hides scores where
        hidden() holds, always where that is None.
        """
        p, b, lanes = self.p, self.b, self.spec.lanes
        groups = [(first, self._old(first, vectors)) for first, vectors in self._groups()]
        for first, new in groups:
            with b.each("scale", self.spec.block, "R") as j:
                for n, own in enumerate(new):
                    with b.lanes("scale_lane") as c:
                        at = j * self.spec.line + ((first + n) * lanes + c)
                        scores[at] = scores[at] * scale
                        own[c] = maximum(own[c], scores[at])
        hide()
        with b.each("again", 1):  # the largest of those that are left
            if hidden is not None:
                p.where(hidden())
            for first, new in groups:
                with b.lanes("again_old") as c:
                    for n, own in enumerate(new):
                        own[c] = self.max[(first + n) * lanes + c]
                self._most(scores, new, first)
        for first, new in groups:
            # exact zeros of minus infinity, and no slow path: see `brief_exponentials`
            self._weigh(scores, new, first, BRIEF, exp, lambda _, power: power)

    def _groups(self) -> list[tuple[int, int]]:
        """(first, how many) of vectors that are looked at together: one by one they would wait for each other."""
        vectors = self.spec.line // self.spec.lanes
        return [(first, min(TOGETHER, vectors - first)) for first in range(0, vectors, TOGETHER)]

    def _old(self, first: int, vectors: int) -> list[BufferHandle]:
        """The maxima so far, in buffers of a vector."""
        self.count += 1
        new = [self.p.local(f"New{self.count}_{n}", (self.b.C,), self.spec.accumulator) for n in range(vectors)]
        with self.b.lanes("old") as c:
            for n, own in enumerate(new):
                own[c] = self.max[(first + n) * self.spec.lanes + c]
        return new

    def _most(self, scores: BufferHandle, new: list[BufferHandle], first: int, within: Range | None = None) -> None:
        with self.b.each("maximum", self.spec.block // self.spec.fold, "R", within) as j, self.b.lanes("most") as c:
            for n, own in enumerate(new):
                own[c] = maximum(own[c], scores[j * self.line + ((first + n) * self.spec.lanes + c)])

    def _fold(self, vector: BufferHandle, combine: Callable[[Expr, Expr], Expr]) -> None:
        """Combine the lanes of each query with each other."""
        lanes, step = self.spec.lanes, self.spec.lanes
        while step > self.spec.line:
            step //= 2
            self.count += 1
            other = self.p.local(f"Other{self.count}", (self.b.C,), self.spec.accumulator)
            with self.b.lanes("other") as c:
                other[c] = vector[(c + step) % lanes]
            with self.b.lanes("fold") as c:
                vector[c] = combine(vector[c], other[c])

    def _power(self, less: Expr) -> Expr:
        return exp(select(less < self.least, self.least, less))

    def _weight(self, less: Expr, power: Expr) -> Expr:
        return select(less < self.least, self.zero, power)

    def _weigh(
        self, scores, new, first: int, name: str, power: Callable, weight: Callable, within: Range | None = None
    ) -> None:
        """Weights for scores, and their sums."""
        p, b, spec, lanes = self.p, self.b, self.spec, self.spec.lanes
        totals, powers = (
            [p.local(f"{what}{self.count}_{first}_{n}", (b.C,), spec.accumulator) for n in range(len(new))]
            for what in ("Total", "Power")
        )
        for n, (own, total) in enumerate(zip(new, totals)):
            with b.lanes("shrink") as c:
                lane = (first + n) * lanes + c
                self.shrink[lane] = exp(self.max[lane] - own[c])
                self.max[lane] = own[c]
                total[c] = self.sum[lane] * self.shrink[lane]
        with b.each("weigh", spec.block // spec.fold, "R", within) as j:
            for n, (own, total, powered) in enumerate(zip(new, totals, powers)):
                first_lane = j * self.line + (first + n) * lanes
                # a choice between a number and an exponential would be a branch for each lane: powers come before it
                with b.lanes(name) as c:
                    powered[c] = power(scores[first_lane + c] - own[c])
                with b.lanes("weight") as c:
                    scores[first_lane + c] = weight(scores[first_lane + c] - own[c], powered[c])
                    total[c] = total[c] + scores[first_lane + c]
        for n, total in enumerate(totals):
            with b.lanes("total") as c:
                self.sum[(first + n) * lanes + c] = total[c]

    def settle(self) -> None:
        """Give all lanes of a query its sum."""
        if self.spec.fold > 1:
            self._fold(self.sum, lambda a, b: a + b)

    def finish(self) -> None:
        """Make Shrink what sums of weighted values are multiplied by at last."""
        self.settle()
        self.b.vectors("inverse", self.line, self._inverse)

    def _inverse(self, c: Expr) -> None:
        self.shrink[c] = inverse(self.sum[c])

    def logarithm(self, lane: Expr) -> Expr:
        """Logarithm of the sum of exponentials; infinity where there was none."""
        return logarithm(self.max[lane], self.sum[lane])
