"""Scores that become others before the softmax, in programs on the blocks of a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import (
    Expr,
    as_expr,
    both,
    call,
    cast,
    differ,
    either,
    equal,
    maximum,
    minimum,
    number,
    select,
)
from .items import Block, Item, Items
from .modifier import CONDITION, INTEGER, NUMBER, Modifier, Node
from .places import DISTANCES, LANES, Bounds, apart, bounds_of
from .softmax import in_vectors

NARROW, WIDE = "int32", "int64"
Index = tuple[Expr, Bounds | None]
"""An index, and its bounds where 32 bits hold it."""
Load = Callable[[int, Sequence[Index]], Expr]
"""From a captured tensor and an index for each of its dimensions to its element there."""
_FUNCTIONS = ("exp", "log", "sqrt", "tanh", "sigmoid", "abs", "sin", "cos")
_LOWERED: dict[str, Callable[..., Expr]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "floor_div": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "neg": lambda x: -x,
    "min": minimum,
    "max": maximum,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "equal": equal,
    "differ": differ,
    "and": both,
    "or": either,
    "where": select,
    **{name: lambda x, name=name: call(name, x) for name in _FUNCTIONS},
}
OPERATIONS = frozenset(_LOWERED)
"""What a `Node` may do to its parts."""
SHORT = 2
"""Operations of a change that is made where scores are written, in the code once for each vector of a tile of sums."""
PLANES = "batch_step", "all_batches", "head_step", "all_heads"
"""A step between planes of neighbouring batches, their number, and both of heads."""


def _steps(node: Node) -> int:
    """How many operations a change is, loads among them."""
    return bool(node.parts) + sum(_steps(part) for part in node.parts if isinstance(part, Node))


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
        self.short = _steps(self.nodes[0]) <= SHORT

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
        line = spec.padded(spec.line)
        lengths = {LANES: line, DISTANCES: line + spec.padded(spec.block)}
        self.buffers = [b.local(f"Kept{n}", lengths[of]) for n, (of, _) in enumerate(self.kept)]
        self._keep(LANES, line, item, lambda lane: (self._row(item, lane), number(0, NARROW)))

    def prepare(self, item: Item, block: Block) -> None:
        """Compute what is the same for all pairs of the block that are as far apart."""
        spec = self.items.spec
        last = cast(NARROW, block.column) + number(spec.block - 1, NARROW)
        length = spec.padded(spec.line) + spec.padded(spec.block)
        self._keep(DISTANCES, length, item, lambda n: (cast(NARROW, item.row) + cast(NARROW, n), last))

    def _keep(self, of: str, length: int, item: Item, places: Callable[[Expr], tuple[Expr, Expr]]) -> None:
        for n, (own, node) in enumerate(self.kept):
            if own == of:

                def keep(c: Expr, n: int = n, node: Node = node) -> None:
                    self.buffers[n][c] = self._of(node, {}, item, *places(c))

                self.items.blocks.vectors(f"keep{n}", length, keep)

    def change(self, scores: BufferHandle, item: Item, block: Block) -> None:
        """Change the scores of a block, a row for each of its columns."""
        line = self.items.spec.line

        def change(j: Expr, lane: Expr) -> None:
            scores[j * line + lane] = self.of(0, scores[j * line + lane], item, block, j, lane)

        self.each(block, change)

    def each(self, block: Block, write: Callable[[Expr, Expr], None], name: str = "change_lane") -> None:
        """``write(column of the block, lane)``, one vector after the other: expressions may be long, and stand in the
        code once.
        """
        b, spec = self.items.blocks, self.items.spec
        within = in_vectors(self.items.reached(block), spec)
        with b.each("change", spec.block // spec.fold, within=within) as j:
            with b.each("change_vectors", max(1, spec.line // spec.lanes)) as v, b.lanes(name) as c:
                if spec.fold == 1:
                    write(j, v * spec.lanes + c)
                else:
                    write(j * spec.fold + c // spec.line, c % spec.line)

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


def lower(modifier: Modifier, node: Node, accumulator: str, leaves: dict[str, Expr], load: Load) -> Expr:
    """The node as an expression of coordinate space. leaves: score and places, by name, these in 32 bits."""

    def type_of(each: Node) -> str:
        if each.kind == NUMBER:
            return accumulator
        return WIDE if bounds_of(each, modifier.captured) is None else NARROW

    def of(each: Node) -> Expr:
        if each.op in leaves:
            return leaves[each.op]
        if each.op == "const":
            if each.kind == CONDITION:
                return equal(number(int(each.parts[0])), number(1))
            return number(each.parts[0], type_of(each))
        if each.op == "load":
            which, *at = each.parts
            found = load(which, [(of(index), bounds_of(index, modifier.captured)) for index in at])
            return differ(found, number(0)) if each.kind == CONDITION else cast(type_of(each), found)
        if each.op == "to":
            return _converted(of(each.parts[0]), each.parts[0].kind, each.kind, type_of(each))
        parts = [of(part) for part in each.parts]
        whole = [n for n, part in enumerate(each.parts) if part.kind == INTEGER]
        if any(parts[n].dtype == WIDE for n in whole) or (whole and each.kind == INTEGER and type_of(each) == WIDE):
            parts = [cast(WIDE, part) if n in whole else part for n, part in enumerate(parts)]
        return _LOWERED[each.op](*parts)

    return of(node)


def _converted(value: Expr, kind: str, to: str, dtype: str) -> Expr:
    if to == CONDITION:
        return differ(value, number(0, value.dtype))
    if kind == CONDITION:
        return select(value, number(1, dtype), number(0, dtype))
    return cast(dtype, value)
