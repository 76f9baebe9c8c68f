"""Few queries against the keys of a block: the lanes of vectors are features, and keys and values are read in place.

A lane for each query would leave most of a vector empty, and a copy of the rows would wait for memory while no product
runs. Here a key meets all queries as soon as it is read, so that a long cache of keys is read at the rate of memory.
"""

from __future__ import annotations

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import (
    Expr,
    as_expr,
    both,
    cast,
    differ,
    either,
    maximum,
    minimum,
    number,
    select,
)
from .items import Block, Item, Items
from .products import cuts

SUMS = 8
"""Vectors of sums that registers hold beside what they are added up from."""
AHEAD = "ahead"
"""What the names of iterations begin with that are there to fetch the rows of an operand: ``ahead_K``, ``ahead_V``."""
LINE = 64
"""Bytes that are fetched at a time."""
ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


class FewQueries:
    """The products of a forward pass for ``spec.queries`` queries. Scores are (keys, lanes of queries), as those of a
    block are; sums of weighted values (queries, features).
    """

    def __init__(self, items: Items) -> None:
        self.w, self.p, self.b, self.spec = items, items.p, items.blocks, items.spec
        self.queries, self.lanes = self.spec.queries, self.spec.lanes

    def begin(self, Q: BufferHandle, Scale: BufferHandle, scores: BufferHandle, item: Item) -> None:
        """Read the queries, and clear the sums and the scores of lanes without a query, which are seen by nobody."""
        b, spec = self.b, self.spec
        width, value_width = spec.width, spec.value_width
        self.first = {name: b.local(f"First{name}", 1, "int64") for name in "KV"}
        for name, first in self.first.items():  # the divisions that a plane takes are done once
            with b.each("first", 1):
                first[0] = self.w.at(name, item, as_expr(0))
        self.present = b.local("Present", spec.block)
        self.rows = b.local("Rows", self.queries * width)
        self.sums = b.local("Sums", self.queries * value_width)
        with b.each("pack_query", self.queries) as r:
            first = self.w.at("Q", item, minimum(item.row + r, item.rows - 1))
            b.row(
                "pack",
                width,
                lambda d: self.rows.__setitem__(r * width + d, cast(self.spec.accumulator, Q[first + d]) * Scale[0]),
            )
        b.vectors("no_value", self.queries * value_width, lambda c: self.sums.__setitem__(c, 0.0))
        b.vectors("no_score", self.spec.block * self.spec.line, lambda c: scores.__setitem__(c, 0.0))

    def score(self, K: BufferHandle, V: BufferHandle, scores: BufferHandle, item: Item, block: Block) -> None:
        """Scores of the keys that any query may attend. Meanwhile their values are fetched."""
        b, spec = self.b, self.spec
        with b.each("score", spec.block, within=self.w.reached(block)) as j:
            first = self._row("K", block, j)
            self._fetch(V, "V", spec.value_width, self._row("V", block, j), as_expr(0), 1)
            dots = [self.p.local(f"Dot{r}", (b.C,), spec.accumulator) for r in range(self.queries)]
            with b.lanes("no_dot") as c:
                for dot in dots:
                    dot[c] = 0.0
            with b.each("dot_terms", spec.width // self.lanes, "R") as v:
                with b.lanes("dot") as c:
                    for r, dot in enumerate(dots):
                        at = v * self.lanes + c
                        dot[c] = dot[c] + cast(spec.accumulator, K[first + at]) * self.rows[r * spec.width + at]
            with b.each("dot_sum", 1):
                for r, dot in enumerate(dots):
                    scores[j * spec.line + r] = _across([dot[n] for n in range(self.lanes)])

    def weigh_values(
        self, V: BufferHandle, K: BufferHandle, weights: BufferHandle, shrink: BufferHandle, item: Item, block: Block
    ):
        """Add the values times their weights to the sums, which shrink before. Values of keys that no query may attend
        are not looked at. Meanwhile the keys of the next block are fetched.
        """
        b, spec = self.b, self.spec
        with b.each("present", spec.block, within=self.w.reached(block)) as j:
            attended = self._attended(item, block, j)
            self.present[j] = select(attended, number(1.0, spec.accumulator), number(0.0, spec.accumulator))
        number_of_next = minimum(block.number + 1, as_expr(self.w.size["num_blocks"]) - 1)
        following = Block(number_of_next, self.w.Indices[number_of_next] * spec.block, block.tile)
        vectors = spec.value_width // self.lanes
        wide = max(n for n in range(1, vectors + 1) if n == 1 or n * self.queries <= SUMS)
        for first_vector, size, times in cuts(vectors, wide):
            with b.each("values_across", times) as turn:
                begin = (first_vector + turn * size) * self.lanes
                own = [
                    [self.p.local(f"Own{first_vector}_{r}_{n}", (b.C,), spec.accumulator) for n in range(size)]
                    for r in range(self.queries)
                ]

                def every(c: Expr, own=own, begin=begin):
                    for r, sums in enumerate(own):
                        for n, vector in enumerate(sums):
                            yield r, vector, begin + (c + n * self.lanes)

                with b.lanes("values_start") as c:
                    for r, vector, at in every(c):
                        vector[c] = self.sums[r * spec.value_width + at] * shrink[r]
                with b.each("values", spec.block, "R", self.w.reached(block)) as j:
                    first = self._row("V", block, j)
                    if not first_vector:
                        self._fetch(K, "K", spec.width, self._row("K", following, j), turn, times)
                    with b.lanes("value") as c:
                        for r, vector, at in every(c):
                            value = cast(spec.accumulator, V[first + at])
                            value = select(self.present[j] > 0.0, value, number(0.0, spec.accumulator))
                            vector[c] = vector[c] + weights[j * spec.line + r] * value
                with b.lanes("values_end") as c:
                    for r, vector, at in every(c):
                        self.sums[r * spec.value_width + at] = vector[c]

    def _fetch(self, operand: BufferHandle, name: str, width: int, first: Expr, turn: Expr, turns: int) -> None:
        """Have a row fetched, a part of it in each of several turns."""
        step = LINE // ITEM_BYTES[self.spec.dtype]
        lines = -(-width // step)
        each = -(-lines // turns)
        sink = self.p.local(f"Sink{name}", (self.b.axis(1),), self.spec.dtype)
        with self.b.each(f"{AHEAD}_{name}", each) as n:
            line = turn * each + n
            if lines % each or lines // each < turns:
                self.p.where(line < lines)
            sink[0] = operand[first + line * step]

    def _row(self, name: str, block: Block, j: Expr) -> Expr:
        """Where the row of a key of the block begins."""
        return self.first[name][0] + self.w.column(block, j) * self.w.strides[name][2]

    def _attended(self, item: Item, block: Block, j: Expr) -> Expr:
        """Whether any query may attend a key of the block."""
        w = self.w
        found = either(block.tile < 0, differ(w.Some[maximum(block.tile, 0), j], number(0)))
        if not self.spec.padding:
            return found
        return both(found, differ(w.Padding[item.batch * w.size["cols"] + w.column(block, j)], number(0)))


def _across(numbers: list[Expr]) -> Expr:
    """The sum of the lanes of a vector, its halves added to each other as vectors are."""
    while len(numbers) > 1:
        half = len(numbers) // 2
        numbers = [numbers[n] + numbers[n + half] for n in range(half)]
    return numbers[0]
