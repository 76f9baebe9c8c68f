"""Scores that become others before the softmax, in programs on the blocks of a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, as_expr, cast, maximum, minimum, number, select
from .items import Block, Item, Items
from .lower import NARROW, WIDE, Index, lower
from .modifier import Modifier, Node

PLANES = "batch_step", "all_batches", "head_step", "all_heads"
"""A step between planes of neighbouring batches, their number, and both of heads."""


class Modified:
    """Adds the parameters of `PLANES`, by which the number of a plane says batch and head; and, of each captured tensor
    n, ``C{n}_span``, its sizes ``C{n}_size{d}``, its strides ``C{n}_step{d}``, and ``C{n}``, its elements.

    Indices that a tensor has not, of pairs that the mask has not, find an element that it has: negative ones count from
    the end, as PyTorch has it.
    """

    def __init__(self, items: Items, modifier: Modifier) -> None:
        self.items, self.modifier = items, modifier
        p = items.p
        self.planes = [as_expr(each) for each in p.sizes(*PLANES)]
        self.captured = []
        for n, (dtype, dims) in enumerate(modifier.captured):
            span = p.size(f"C{n}_span")
            sizes = [as_expr(p.size(f"C{n}_size{d}")) for d in range(dims)]
            steps = [as_expr(p.size(f"C{n}_step{d}")) for d in range(dims)]
            self.captured.append((p.buffer(f"C{n}", (p.dense_fixed(f"C{n}_axis", span),), dtype), sizes, steps))

    def _load(self, which: int, indices: Sequence[Index]) -> Expr:
        buffer, sizes, steps = self.captured[which]
        at = as_expr(0)
        for (index, bounds), size, step in zip(indices, sizes, steps):
            none, size = number(0, index.dtype), cast(index.dtype, size)
            if bounds is None or bounds[0] < 0:
                index = maximum(select(index < none, index + size, index), none)
            at = at + cast(WIDE, minimum(index, size - 1)) * step
        return buffer[at]

    def change(self, scores: BufferHandle, item: Item, block: Block) -> None:
        """Change the scores of a block, (keys, queries): lanes are queries."""
        line = self.items.spec.line

        def change(j: Expr, lane: Expr) -> None:
            pair = self.row(item, lane), self.items.column(block, j)
            scores[j * line + lane] = self.of(self.modifier.node, scores[j * line + lane], item, *pair)

        self.each(block, change)

    def row(self, item: Item, lane: Expr) -> Expr:
        """The row of a lane; the last one in the place of those beyond it."""
        return minimum(cast(NARROW, item.row) + cast(NARROW, lane), cast(NARROW, item.rows - 1))

    def each(self, block: Block, write: Callable[[Expr, Expr], None]) -> None:
        """``write(column of the block, lane)``, one vector after the other: expressions may be long, and stand in the
        code once.
        """
        b, spec = self.items.blocks, self.items.spec
        with b.each("change", spec.block, within=self.items.reached(block)) as j:
            with b.each("change_vectors", spec.line // spec.lanes) as v, b.lanes("change_lane") as c:
                write(j, v * spec.lanes + c)

    def of(self, node: Node, score: Expr, item: Item, query: Expr, key: Expr) -> Expr:
        """The node of one pair."""
        batch_step, batches, head_step, heads = self.planes
        leaves = {
            "score": score,
            "batch": cast(NARROW, item.plane // batch_step % batches),
            "head": cast(NARROW, item.plane // head_step % heads),
            "query": cast(NARROW, query),
            "key": cast(NARROW, key),
        }
        return lower(self.modifier, node, self.items.spec.accumulator, leaves, self._load)
