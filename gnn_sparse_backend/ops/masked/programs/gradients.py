"""What programs of the gradients of attention have in common: parameters, changed scores, and where sums belong."""

from __future__ import annotations

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, number
from .items import Block, Item, Items
from .modified import Modified
from .modifier import const
from .modifier import slope as slope_by_score
from .random import Random
from .spec import MaskedSpec


class Gradients:
    """A program on the transposed mask. Parameters: those of `Items`, then Q, K, V, G, Scale, [those of `Random`, those
    of `Modified`,] Lse, Delta, DQ, DK, DV.

    Lse and Delta are (batch * heads, queries); G is the gradient of the result. DQ is (parts, batch * heads, block_cols
    * block, width filled up to vectors), which is added to, DK and DV as K and V.
    """

    def __init__(self, name: str, spec: MaskedSpec) -> None:
        self.items = w = Items(name, spec, lanes_padded=True)
        p, b, acc = w.p, w.blocks, spec.accumulator
        self.Q, self.K, self.V, self.G = (w.operand(name) for name in "QKVG")
        self.parts, self.planes, self.block_cols, sums, queries = p.sizes(
            "parts", "planes", "block_cols", "num_sums", "num_queries"
        )
        self.Scale = p.buffer("Scale", (b.axis(1),), acc)
        self.random = Random(w) if spec.dropout else None
        self.modified, self.slope_of = None, None
        if spec.modifier is not None:
            self.slope_of = slope_by_score(spec.modifier.node)
            self.modified = Modified(w, spec.modifier, "key", [spec.modifier.node, self.slope_of or const(0.0)])
        self.sloping = self.slope_of not in (None, const(1.0))
        self.constant = self.modified is not None and self.slope_of is None
        """Whether scores do not depend on operands at all."""
        self.Lse, self.Delta = (
            p.buffer(name, (p.dense_fixed(f"{name}_axis", queries),), acc) for name in ("Lse", "Delta")
        )
        self.DQ = p.buffer("DQ", (p.dense_fixed("DQ_axis", sums), b.axis(spec.padded(spec.width))), acc)
        self.DK, self.DV = w.result("DK", spec.dtype, spec.width), w.result("DV", spec.dtype, spec.value_width)

    def begin(self, item: Item) -> None:
        """Compute what is the same for all blocks of the item, and have buffers for those numbers of a block that are
        needed beside its weights.
        """
        w, size = self.items, self.items.spec.block * self.items.spec.line
        w.lanes_allowed(item)
        if self.modified is not None:
            self.modified.begin(item)
        self.slopes = w.blocks.local("Slopes", size) if self.sloping else None
        if self.random is not None:
            self.kept, self.dropped = (w.blocks.local(name, size) for name in ("Kept", "Dropped"))
            self.random.of_lanes(item, keys=True)

    def drop(self, weights: BufferHandle, item: Item, block: Block) -> BufferHandle:
        """Weights of a block without those that dropout takes away, in a buffer of their own; themselves without it."""
        if self.random is None:
            return weights
        w, line = self.items, self.items.spec.line
        with w.blocks.each("drop", w.spec.block) as i:

            def drop(c: Expr, factor: Expr) -> None:
                self.kept[i * line + c] = factor
                self.dropped[i * line + c] = weights[i * line + c] * factor

            self.random.each("drop_lane", item, w.column(block, i), drop)
        return self.dropped

    def slope(
        self,
        weights: BufferHandle,
        value: Expr,
        item: Item,
        block: Block,
        i: Expr,
        lane: Expr,
        scale: Expr | None = None,
    ) -> Expr:
        """The gradient of a score, given that of its weight; times ``scale`` where that is given."""
        at = i * self.items.spec.line + lane
        if self.constant:
            return number(0.0, self.items.spec.accumulator)
        if self.random is not None:
            value = value * self.kept[at]
        found = weights[at] * (value - self.of_query(self.Delta, item, block, i))
        if scale is not None:
            found = found * scale
        return found if self.slopes is None else found * self.slopes[at]

    def of_query(self, buffer: BufferHandle, item: Item, block: Block, i: Expr) -> Expr:
        """What Lse or Delta has of a column of a block, which is a query."""
        return buffer[item.plane * self.items.size["cols"] + self.items.column(block, i)]

    def first(self, item: Item, block: Block) -> Expr:
        """The row of DQ that the first query of a block has, in the part of the keys of the item."""
        w = self.items
        part = item.row // w.spec.block * self.parts // w.size["block_rows"]
        return (part * self.planes + item.plane) * self.block_cols * w.spec.block + block.column

    def change(
        self,
        scores: BufferHandle,
        item: Item,
        block: Block,
        scale: Expr | None = None,
    ) -> None:
        """Change scores of a block, times ``scale`` where that is given, and note their slopes."""
        modified, line = self.modified, self.items.spec.line

        def change(i: Expr, lane: Expr) -> None:
            at, pair = i * line + lane, (item, block, i, lane)
            score = scores[at] if scale is None else scores[at] * scale
            if self.slopes is not None:
                self.slopes[at] = modified.of(1, score, *pair)
            scores[at] = modified.of(0, score, *pair)

        modified.each(block, change)
