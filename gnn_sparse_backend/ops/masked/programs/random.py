"""Random numbers for dropout: a function of (seed, head of a sequence, query, key), not of the order of computing.

So the passes of a gradient find again what the forward pass dropped, and nothing of it is stored (counter-based random
numbers: Salmon et al., 2011). A query has a word of 31 bits and a key has one; a pair has the middle bits of their
product. All are mixed by middle squares (Widynski, 2020), as products fit 63 bits and are vectors on any machine; sums
with shifts, without an exclusive or, are next to linear and left neighbours 4 % correlated. `write_word` and
`write_pair` are the function, of expressions in programs and of tensors in `dropout.py` beside this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, number, select
from .items import Block, Item, Items

WORDS = 1 << 31
MIDDLE = 1 << 15
PLANE, QUERY, KEY = 0x05EBCA6B, 0x42B2AE35, 0x27D4EB2F
ADDED = (0x7FEB352D, 0x6C8E9CF5)


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
            write_word(self.words, lane, item.plane, item.row + lane, self.Seed, keys)
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
                write_word(own, c, item.plane, row, self.Seed, not self.keys)
            with self.b.each(f"{name}_vectors", spec.line // spec.lanes) as v:
                with self.b.lanes(f"{name}_pair") as c:
                    write_pair(pair, c, own[c], self.words[v * spec.lanes + c])
                # a loop of its own: TVM makes one number of a buffer that a single vector loop stands around
                with self.b.lanes(f"{name}_write") as c:
                    kept = pair[c] >= self.Least[0]
                    write(v * spec.lanes + c, select(kept, self.Factor[0], number(0.0, self.acc)))

    def drop(self, weights: BufferHandle, item: Item, block: Block) -> None:
        """Multiply weights of a block, (keys, queries): lanes are queries."""
        line = self.b.spec.line
        with self.b.each("drop", self.b.spec.block) as j:

            def write(lane: Expr, factor: Expr) -> None:
                weights[j * line + lane] = weights[j * line + lane] * factor

            self.each("drop_lane", item, block.column + j, write)


def write_word(to: Any, at: Any, plane: Any, row: Any, seed: Any, key: bool) -> None:
    """Write the word of a key, or of a query, to ``to[at]``, step by step. to: a buffer, or a dict of tensors."""
    if key:
        to[at] = _low(row * KEY + seed[1])
    else:
        to[at] = _low(plane * PLANE + seed[0])
        _mix(to, at)
        to[at] = _low(to[at] + row * QUERY)
    _mix(to, at)


def write_pair(to: Any, at: Any, first: Any, second: Any) -> None:
    """Write the word of a pair, from those of its query and its key in any order."""
    to[at] = _low(first * second // MIDDLE)
    _mix(to, at)


def _low(x: Any) -> Any:
    """The low bits of a number of 63: a word."""
    return x % WORDS


def _mix(words: Any, at: Any) -> None:
    for added in ADDED:
        words[at] = _low(words[at] * words[at] // MIDDLE + added)
