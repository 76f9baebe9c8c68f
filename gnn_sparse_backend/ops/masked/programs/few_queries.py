"""Few queries against a long cache of keys, which is read at the rate of memory.

`FewQueries`: a lane for each query would leave most of a vector empty, and a copy of the rows would wait for memory
while no product runs. So lanes are features, rows are read in place, and a key meets all queries as soon as it is read.
`Parts`: where heads are fewer than threads, the keys of a head are several items (flash decoding, Dao et al., 2023).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import (
    Expr,
    as_expr,
    both,
    cast,
    differ,
    either,
    exp,
    maximum,
    minimum,
    number,
)
from ....compiler.language.types import BYTES
from .items import Block, Item, Items
from .products import Range, cuts
from .softmax import LEAST, LOWEST, OnlineSoftmax, in_vectors, inverse, logarithm

SUMS = 8
"""Vectors of sums that registers hold beside what they are added up from."""
AHEAD = "ahead"
"""What the names of iterations begin with that are there to fetch the rows of an operand: ``ahead_K``, ``ahead_V``."""
ACROSS = "across"
"""What the name of an iteration begins with that turns vectors, so that the sums of their lanes are one vector."""
PAIRS = "pairs"
"""What the name of an iteration begins with that multiplies two features at a time."""
LINE = 64
"""Bytes that are fetched at a time."""


class FewQueries:
    """The products of a forward pass for ``spec.queries`` queries. Scores are (keys, lanes of queries), as those of a
    block are; sums of weighted values (queries, features).
    """

    def __init__(self, items: Items) -> None:
        self.w, self.p, self.b, self.spec = items, items.p, items.blocks, items.spec
        self.queries, self.lanes = self.spec.queries, self.spec.lanes

    def begin(self, Q: BufferHandle, Scale: BufferHandle, item: Item) -> None:
        """Read the queries, and clear the sums."""
        b, spec = self.b, self.spec
        width, value_width = spec.width, spec.value_width
        self.first, self.here, self.sink = (
            {name: b.local(f"{what}{name}", 1, dtype) for name in "KV"}
            for what, dtype in (("First", "int64"), ("Here", "int64"), ("Sink", spec.dtype))
        )
        self.next = b.local("Next", 1, "int64")
        for name, first in self.first.items():  # the divisions that a plane takes are done once
            with b.each("first", 1):
                first[0] = self.w.at(name, item, as_expr(0))
        self.Q, self.Scale = Q, Scale
        self.sums = b.local("Sums", self.queries * value_width)
        if spec.by_pairs:
            self.first_query = b.local("FirstQuery", self.queries, "int64")
        else:
            self.rows = b.local("Rows", self.queries * width)
        with b.each("pack_query", self.queries) as r:
            first = self.w.at("Q", item, minimum(item.row + r, item.rows - 1))
            if spec.by_pairs:
                self.first_query[r] = first
            else:
                b.row(
                    "pack",
                    width,
                    lambda d: self.rows.__setitem__(r * width + d, cast(spec.accumulator, Q[first + d]) * Scale[0]),
                )
        self.square = tuple(self.p.dense_fixed(f"Across{n}", self.lanes) for n in range(2))
        self.dots, self.turned = (self.p.local(name, self.square, spec.accumulator) for name in ("Dots", "Turned"))
        with b.each("no_dots", self.lanes) as r, b.lanes("no_dots_lane") as c:  # of lanes without a query
            self.dots[r, c] = 0.0
        b.vectors("no_value", self.queries * value_width, lambda c: self.sums.__setitem__(c, 0.0))

    def score(self, K: BufferHandle, V: BufferHandle, scores: BufferHandle, item: Item, block: Block) -> None:
        """Scores of the keys that any query may attend. Meanwhile their values are fetched."""
        b, spec = self.b, self.spec
        following = minimum(block.number + 1, as_expr(self.w.size["num_blocks"]) - 1)
        with b.each("here", 1):  # read once: no compiler knows that a fetch writes nothing
            for name, here in self.here.items():
                here[0] = self.first[name][0] + block.column * self.w.strides[name][2]
            self.next[0] = self.first["K"][0] + self.w.Indices[following] * spec.block * self.w.strides["K"][2]
        each, last = spec.fold, self._keys(block)[1] - 1
        with b.each("score", spec.block // each, within=in_vectors(self._keys(block), spec)) as n:
            keys = [minimum(n * each + k, last) if each > 1 else n for k in range(each)]
            rows = [self._row("K", j) for j in keys]
            for j in keys:
                self._fetch(V, "V", spec.value_width, self._row("V", j), as_expr(0), 1)
            dots = [
                [self.p.local(f"Dot{k}_{r}", (b.C,), spec.accumulator) for r in range(self.queries)]
                for k in range(each)
            ]
            with b.lanes("no_dot") as c:
                for dot in itertools.chain(*dots):
                    dot[c] = 0.0
            with self._terms() as (at, c):
                for first, of_key in zip(rows, dots):
                    for r, dot in enumerate(of_key):
                        dot[c] = dot[c] + cast(spec.accumulator, K[first + at]) * self._query(r, at)
            with b.lanes("dot_keep") as c:
                for k, of_key in enumerate(dots):
                    for r, dot in enumerate(of_key):
                        self.dots[k * spec.line + r, c] = dot[c]
            with self.p.iterate(ACROSS, self.square, "SS", ("across_r", "across_n")) as (r, lane):
                self.turned[lane, r] = self.dots[r, lane]
            with b.lanes("dot_sum") as c:
                total = _sum([self.turned[lane, c] for lane in range(self.lanes)])
                scores[n * self.lanes + c] = total * self.Scale[0] if spec.by_pairs else total

    @contextmanager
    def _terms(self) -> Iterator[tuple[Expr, Expr]]:
        """(feature, lane) of the terms of dot products."""
        b, width = self.b, self.spec.width
        if not self.spec.by_pairs:
            with b.each("dot_terms", width // self.lanes, "R") as v, b.lanes("dot") as c:
                yield v * self.lanes + c, c
            return
        axes = [self.p.dense_fixed(f"Pairs{n}", length) for n, length in enumerate((width // (2 * self.lanes), 2))]
        with self.p.iterate(PAIRS, axes, "RR", ("pairs_v", "pairs_q")) as (v, q), b.lanes("dot") as c:
            yield v * (2 * self.lanes) + (2 * c + q), c

    def _query(self, r: int, feature: Expr) -> Expr:
        """A feature of a query: scaled, but where pairs of bfloat16 are multiplied as they are stored."""
        if self.spec.by_pairs:
            return cast(self.spec.accumulator, self.Q[self.first_query[r] + feature])
        return self.rows[r * self.spec.width + feature]

    def weigh_values(
        self, V: BufferHandle, K: BufferHandle, weights: BufferHandle, shrink: BufferHandle, item: Item, block: Block
    ):
        """Add the values times their weights to the sums, which shrink before. Values of keys that no query may attend
        are not looked at. Meanwhile the keys of the next block are fetched.
        """
        b, spec = self.b, self.spec
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
                with b.each("values", spec.block, "R", self._keys(block)) as j:
                    self.p.where(self._attended(item, block, j))
                    first = self._row("V", j)
                    if not first_vector:
                        self._fetch(K, "K", spec.width, self.next[0] + j * self.w.strides["K"][2], turn, times)
                    with b.lanes("value") as c:
                        for r, vector, at in every(c):
                            value = cast(spec.accumulator, V[first + at])
                            vector[c] = vector[c] + weights[j * spec.line + r] * value
                with b.lanes("values_end") as c:
                    for r, vector, at in every(c):
                        self.sums[r * spec.value_width + at] = vector[c]

    def _fetch(self, operand: BufferHandle, name: str, width: int, first: Expr, turn: Expr, turns: int) -> None:
        """Have a row fetched, a part of it in each of several turns."""
        step = LINE // BYTES[self.spec.dtype]
        lines = -(-width // step)
        each = -(-lines // turns)
        with self.b.each(f"{AHEAD}_{name}", each) as n:
            line = turn * each + n
            if lines % each or lines // each < turns:
                self.p.where(line < lines)
            self.sink[name][0] = operand[first + line * step]

    def _row(self, name: str, j: Expr) -> Expr:
        """Where the row of a key of the block begins."""
        return self.here[name][0] + j * self.w.strides[name][2]

    def _keys(self, block: Block) -> Range:
        """The range of keys that the queries reach, none beyond the last."""
        low, high = self.w.reached(block)
        return low, minimum(high, as_expr(self.w.size["cols"]) - block.column)

    def _attended(self, item: Item, block: Block, j: Expr) -> Expr:
        """Whether any query may attend a key of the block, of those in `_keys`."""
        w = self.w
        found = either(block.tile < 0, differ(w.Some[maximum(block.tile, 0), j], number(0)))
        if not self.spec.padding:
            return found
        return both(found, differ(w.Padding[item.batch * w.size["cols"] + (block.column + j)], number(0)))


def _sum(numbers: list[Expr]) -> Expr:
    """The sum of a power of two of numbers, halves added to each other."""
    while len(numbers) > 1:
        half = len(numbers) // 2
        numbers = [numbers[n] + numbers[n + half] for n in range(half)]
    return numbers[0]


class Parts:
    """Adds the parameters num_results, PartSums, PartMost and PartTotal: of each part, for each row of a plane, the
    sums of weighted values, the largest score and the sum of weights. Nothing is divided before parts are put together.
    """

    def __init__(self, items: Items) -> None:
        self.w, self.p, self.b, self.spec = items, items.p, items.blocks, items.spec
        self.R = self.p.dense_fixed("Results", self.p.size("num_results"))
        acc = self.spec.accumulator
        self.sums = items.result("PartSums", acc, self.spec.value_width)
        self.most, self.totals = (items.result(name, acc, 1) for name in ("PartMost", "PartTotal"))

    def result(self, name: str, dtype: str, width: int) -> BufferHandle:
        """(batch * heads * queries, width)."""
        return self.p.buffer(name, (self.R, self.b.axis(width)), dtype)

    def store(self, item: Item, softmax: OnlineSoftmax, total: Callable[[Expr, Expr], Expr]) -> None:
        """Keep what an item has summed up. total(query, feature): of weighted values."""
        softmax.settle()
        with self.w.rows_of(item, "part") as (ii, row):
            self.b.row("part_row", self.spec.value_width, lambda d: self.sums.__setitem__((row, d), total(ii, d)))
            with self.b.each("part_softmax", 1):
                self.most[row, 0] = softmax.max[ii]
                self.totals[row, 0] = softmax.sum[ii]

    def put_together(self, out: BufferHandle, lse: BufferHandle) -> None:
        """Write the results of all parts."""
        b, spec, width = self.b, self.spec, self.spec.value_width
        rows, shares = self.w.size["rows"], self.w.size["shares"]
        least = number(LEAST[spec.accumulator], spec.accumulator)
        with self.p.iterate("together", (self.R,), "S", ("row",)) as (row,):
            most, total, weight = (b.local(f"All{what}", 1) for what in ("Most", "Total", "Weight"))
            sums = b.local("AllSums", width)
            first = row // rows * shares * rows + row % rows

            def every(name: str):
                return self.p.iterate(name, (self.p.dense_fixed(f"{name}_axis", shares),), "R", (f"{name}_n",))

            with b.each("together_start", 1):
                most[0], total[0] = LOWEST, 0.0
            b.row("together_none", width, lambda d: sums.__setitem__(d, 0.0))
            with every("largest") as (n,):
                most[0] = maximum(most[0], self.most[first + n * rows, 0])
            with every("add") as (n,):
                own = first + n * rows
                with b.each("add_weight", 1):
                    weight[0] = exp(maximum(self.most[own, 0] - most[0], least))
                    total[0] = total[0] + weight[0] * self.totals[own, 0]
                b.row("add_row", width, lambda d: sums.__setitem__(d, sums[d] + weight[0] * self.sums[own, d]))
            with b.each("together_end", 1):
                weight[0] = inverse(total[0])
                lse[row, 0] = logarithm(most[0], total[0])
            b.row("together_row", width, lambda d: out.__setitem__((row, d), cast(spec.dtype, sums[d] * weight[0])))
