"""Random numbers for dropout: a function of (seed, head of a sequence, query, key), not of the order of computing.

So the passes of a gradient find again what the forward pass dropped, and nothing of it is stored (counter-based random
numbers: Salmon et al., 2011). Words of 32 bits are mixed by multiplications and shifted sums, which are vectors on any
machine; `keep_mask` in `dropout.py` says the same with PyTorch.
"""

from __future__ import annotations

from ....compiler.language.expr import Expr, cast, number, select
from .items import Items

PLANE, QUERY, KEY = 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F
ROUNDS = ((16, 0x7FEB352D), (15, 0x846CA68B))
LAST = 16


class Random:
    """Adds the parameters Seed, Least and Factor: two words, the least word that is kept, what kept weights grow by."""

    def __init__(self, items: Items) -> None:
        p, b = items.p, items.blocks
        self.Seed = p.buffer("Seed", (b.axis(2),), "int64")
        self.Least = p.buffer("Least", (b.axis(1),), "int64")
        self.Factor = p.buffer("Factor", (b.axis(1),), items.spec.accumulator)
        self.accumulator = items.spec.accumulator

    def factor(self, plane: Expr, query: Expr, key: Expr) -> Expr:
        """What the weight of a pair is multiplied by: 0 or Factor."""
        seeds = [cast("uint32", self.Seed[n]) for n in range(2)]
        row = _mixed(_mixed(_word(plane) * _constant(PLANE) + seeds[0]) + _word(query) * _constant(QUERY))
        column = _mixed(_word(key) * _constant(KEY) + seeds[1])
        kept = _mixed(row + column) >= cast("uint32", self.Least[0])
        return select(kept, self.Factor[0], number(0.0, self.accumulator))


def _word(x: Expr) -> Expr:
    return cast("uint32", x)


def _constant(value: int) -> Expr:
    return number(value, "uint32")


def _mixed(x: Expr) -> Expr:
    for shift, factor in ROUNDS:
        x = (x + x // _constant(1 << shift)) * _constant(factor)
    return x + x // _constant(1 << LAST)
