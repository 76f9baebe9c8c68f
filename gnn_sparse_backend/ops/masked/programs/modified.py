"""Scores that become others before the softmax, in programs on the blocks of a mask."""

from __future__ import annotations

from collections.abc import Sequence

from ....compiler.language.expr import Expr, as_expr, maximum, minimum, number, select
from .items import Item, Items
from .modifier import Modifier, Node, lower

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

    def _load(self, which: int, indices: Sequence[Expr]) -> Expr:
        buffer, sizes, steps = self.captured[which]
        at = as_expr(0)
        for index, size, step in zip(indices, sizes, steps):
            index = select(index < number(0), index + size, index)
            at = at + minimum(maximum(index, number(0)), size - 1) * step
        return buffer[at]

    def of(self, node: Node, score: Expr, item: Item, query: Expr, key: Expr) -> Expr:
        """The node of one pair."""
        batch_step, batches, head_step, heads = self.planes
        leaves = {
            "score": score,
            "batch": item.plane // batch_step % batches,
            "head": item.plane // head_step % heads,
            "query": query,
            "key": key,
        }
        return lower(node, self.items.spec.accumulator, leaves, self._load)
