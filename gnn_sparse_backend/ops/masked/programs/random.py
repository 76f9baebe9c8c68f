"""Random numbers for dropout: a function of (seed, head of a sequence, query, key), not of the order of computing.

So the passes of a gradient find again what the forward pass dropped, and nothing of it is stored (counter-based random
numbers: Salmon et al., 2011). Words of 32 bits are mixed by multiplications and shifted sums, which are vectors on any
machine; `dropout.py` beside this folder says the same with PyTorch. A query has a word and a key has one; a pair has
the mixed sum of both.
"""

from __future__ import annotations

from collections.abc import Callable

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, cast, number, select
from .items import Item, Items

PLANE, QUERY, KEY = 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F
ROUNDS = ((16, 0x7FEB352D), (15, 0x846CA68B))
LAST = 16


class Random:
    """Adds the parameters Seed, Least and Factor: two words, the least word that is kept, what kept weights grow by.

    Every step of a word is stored: an expression that names another twice would have it twice.
    """

    def __init__(self, items: Items) -> None:
        self.p, self.b, self.acc = items.p, items.blocks, items.spec.accumulator
        self.Seed = self.p.buffer("Seed", (self.b.axis(2),), "int64")
        self.Least = self.p.buffer("Least", (self.b.axis(1),), "int64")
        self.Factor = self.p.buffer("Factor", (self.b.axis(1),), self.acc)

    def of_lanes(self, item: Item, keys: bool) -> None:
        """Note the words of the rows of an item, which are keys or queries."""
        spec = self.b.spec
        self.words = self.b.local("Words", spec.line, "uint32")
        with self.b.each("words", spec.line // spec.lanes) as v, self.b.lanes("word") as c:
            lane = v * spec.lanes + c
            self._word(self.words, lane, item, item.row + lane, keys)
        self.keys = keys

    def each(self, name: str, item: Item, row: Expr, write: Callable[[Expr, Expr], None]) -> None:
        """``write(lane, factor)`` for the pairs of all lanes with a query, or a key where lanes are queries: what the
        weight of each is multiplied by, 0 or Factor.
        """
        spec = self.b.spec
        with self.b.each(name, 1):
            own = self.p.local(f"Own_{name}", (self.b.C,), "uint32")
            pair = self.p.local(f"Pair_{name}", (self.b.C,), "uint32")
            with self.b.lanes(f"{name}_own") as c:
                # alike in all lanes
                self._word(own, c, item, row, not self.keys)
            with self.b.each(f"{name}_vectors", spec.line // spec.lanes) as v, self.b.lanes(f"{name}_pair") as c:
                lane = v * spec.lanes + c
                pair[c] = _stored(_word(own[c]) + _word(self.words[lane]))
                _mix(pair, c)
                kept = _word(pair[c]) >= _word(self.Least[0])
                write(lane, select(kept, self.Factor[0], number(0.0, self.acc)))

    def _word(self, to: BufferHandle, at: Expr, item: Item, row: Expr, key: bool) -> None:
        """The word of a query or a key."""
        if key:
            to[at] = _stored(_word(row) * _constant(KEY) + _word(self.Seed[1]))
        else:
            to[at] = _stored(_word(item.plane) * _constant(PLANE) + _word(self.Seed[0]))
            _mix(to, at)
            to[at] = _stored(_word(to[at]) + _word(row) * _constant(QUERY))
        _mix(to, at)


def _word(x: Expr) -> Expr:
    return cast("uint32", x)


def _stored(x: Expr) -> Expr:
    """A word as loads and stores of integers have it."""
    return cast("int64", x)


def _constant(value: int) -> Expr:
    return number(value, "uint32")


def _mix(words: BufferHandle, at: Expr) -> None:
    for shift, factor in ROUNDS:
        word = _word(words[at])
        words[at] = _stored((word + word // _constant(1 << shift)) * _constant(factor))
    words[at] = _stored(_word(words[at]) + _word(words[at]) // _constant(1 << LAST))
