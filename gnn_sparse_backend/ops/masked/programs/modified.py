"""Scores that become others before the softmax, in programs on the blocks of a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, as_expr, cast, maximum, minimum, number, select
from .items import Block, Item, Items
from .lower import NARROW, WIDE, Index, lower
from .modifier import Modifier, Node
from .places import DISTANCES, LANES, apart

PLANES = "batch_step", "all_batches", "head_step", "all_heads"
"""A step between planes of neighbouring batches, their number, and both of heads."""


class Modified:
    """Adds the parameters of `PLANES`, by which the number of a plane says batch and head; and, of each captured tensor
    n, ``C{n}_span``, its sizes ``C{n}_size{d}``, its strides ``C{n}_step{d}``, and ``C{n}``, its elements.

    Indices that a tensor has not, of pairs that the mask has not, find an element that it has: negative ones count from
    the end, as PyTorch has it.

    lanes: which place differs from lane to lane, "query" or "key". nodes: what is computed of pairs.
    """

    def __init__(self, items: Items, modifier: Modifier, lanes: str, nodes: Sequence[Node]) -> None:
        self.items, self.modifier, self.lanes = items, modifier, lanes
        p = items.p
        self.planes = [as_expr(each) for each in p.sizes(*PLANES)]
        self.captured = []
        for n, (dtype, dims) in enumerate(modifier.captured):
            span = p.size(f"C{n}_span")
            sizes = [as_expr(p.size(f"C{n}_size{d}")) for d in range(dims)]
            steps = [as_expr(p.size(f"C{n}_step{d}")) for d in range(dims)]
            self.captured.append((p.buffer(f"C{n}", (p.dense_fixed(f"C{n}_axis", span),), dtype), sizes, steps))
        self.kept: list[tuple[str, Node]] = []
        self.nodes = [apart(node, lanes, self.kept) for node in nodes]

    def _load(self, which: int, indices: Sequence[Index]) -> Expr:
        buffer, sizes, steps = self.captured[which]
        at = as_expr(0)
        for (index, bounds), size, step in zip(indices, sizes, steps):
            none, size = number(0, index.dtype), cast(index.dtype, size)
            if bounds is None or bounds[0] < 0:
                index = select(index < none, index + size, index)
            at = at + cast(WIDE, minimum(maximum(index, none), size - 1)) * step
        return buffer[at]

    def begin(self, item: Item) -> None:
        """Compute what is the same for all pairs of a lane of the item."""
        b, spec = self.items.blocks, self.items.spec
        lengths = {LANES: spec.line, DISTANCES: spec.line + spec.padded(spec.block)}
        self.buffers = [b.local(f"Kept{n}", lengths[of]) for n, (of, _) in enumerate(self.kept)]
        self._keep(LANES, spec.line, item, lambda lane: (self._row(item, lane), number(0, NARROW)))

    def prepare(self, item: Item, block: Block) -> None:
        """Compute what is the same for all pairs of the block that are as far apart."""
        spec = self.items.spec
        last = cast(NARROW, block.column) + number(spec.block - 1, NARROW)
        length = spec.line + spec.padded(spec.block)
        self._keep(DISTANCES, length, item, lambda n: (cast(NARROW, item.row) + cast(NARROW, n), last))

    def _keep(self, of: str, length: int, item: Item, places: Callable[[Expr], tuple[Expr, Expr]]) -> None:
        for n, (own, node) in enumerate(self.kept):
            if own == of:

                def keep(c: Expr, n: int = n, node: Node = node) -> None:
                    self.buffers[n][c] = self._of(node, {}, item, *places(c))

                self.items.blocks.vectors(f"keep{n}", length, keep)

    def change(self, scores: BufferHandle, item: Item, block: Block) -> None:
        """Change the scores of a block, a row for each of its columns."""
        self.prepare(item, block)
        line = self.items.spec.line

        def change(j: Expr, lane: Expr) -> None:
            scores[j * line + lane] = self.of(0, scores[j * line + lane], item, block, j, lane)

        self.each(block, change)

    def each(self, block: Block, write: Callable[[Expr, Expr], None], name: str = "change_lane") -> None:
        """``write(column of the block, lane)``, one vector after the other: expressions may be long, and stand in the
        code once.
        """
        b, spec = self.items.blocks, self.items.spec
        with b.each("change", spec.block, within=self.items.reached(block)) as j:
            with b.each("change_vectors", spec.line // spec.lanes) as v, b.lanes(name) as c:
                write(j, v * spec.lanes + c)

    def of(self, which: int, score: Expr, item: Item, block: Block, j: Expr, lane: Expr) -> Expr:
        """A node of one pair: of a column of the block, and a lane."""
        leaves = {"score": score}
        for n, (of, _) in enumerate(self.kept):
            leaves[f"kept{n}"] = self.buffers[n][lane if of == LANES else lane + (self.items.spec.block - 1) - j]
        column = cast(NARROW, self.items.column(block, j))
        return self._of(self.nodes[which], leaves, item, self._row(item, lane), column)

    def _row(self, item: Item, lane: Expr) -> Expr:
        """The row of a lane; the last one in the place of those beyond it."""
        return minimum(cast(NARROW, item.row) + cast(NARROW, lane), cast(NARROW, item.rows - 1))

    def _of(self, node: Node, leaves: dict[str, Expr], item: Item, of_lane: Expr, of_column: Expr) -> Expr:
        batch_step, batches, head_step, heads = self.planes
        places = {
            "batch": cast(NARROW, item.plane // batch_step % batches),
            "head": cast(NARROW, item.plane // head_step % heads),
            "query": of_lane if self.lanes == "query" else of_column,
            "key": of_column if self.lanes == "query" else of_lane,
        }
        return lower(self.modifier, node, self.items.spec.accumulator, leaves | places, self._load)
