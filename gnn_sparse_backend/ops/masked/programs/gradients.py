"""What programs of the gradients of attention have in common: parameters, changed scores, and where sums belong."""

from __future__ import annotations

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr
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
        self.flat = self.modified is not None and self.slope_of is None
        """Whether scores do not depend on operands at all."""
        self.Lse, self.Delta = (
            p.buffer(name, (p.dense_fixed(f"{name}_axis", queries),), acc) for name in ("Lse", "Delta")
        )
        self.DQ = p.buffer("DQ", (p.dense_fixed("DQ_axis", sums), b.axis(spec.padded(spec.width))), acc)
        self.DK, self.DV = w.result("DK", spec.dtype, spec.width), w.result("DV", spec.dtype, spec.value_width)

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
        slopes: BufferHandle | None,
        item: Item,
        block: Block,
        scale: Expr | None = None,
    ) -> None:
        """Change scores of a block, times ``scale`` where that is given, and note their slopes."""
        modified, line = self.modified, self.items.spec.line

        def change(i: Expr, lane: Expr) -> None:
            at, pair = i * line + lane, (item, block, i, lane)
            score = scores[at] if scale is None else scores[at] * scale
            if slopes is not None:
                slopes[at] = modified.of(1, score, *pair)
            scores[at] = modified.of(0, score, *pair)

        modified.each(block, change)
