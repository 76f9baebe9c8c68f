"""What programs on the blocks of a mask begin with: a row of blocks, of one head of one sequence, is an item.

Items are in the order of (group, head of the mask, row of blocks): a mask of one head has a group for each head of each
sequence, one of several has a group for each sequence. Threads have items of equal cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, both, cast, differ, equal, minimum, number, select
from ....frozen import dataclass
from .products import Blocks, Range, Reach
from .spec import MaskedSpec

SIZES = (
    "num_tasks num_items num_item_blocks num_blocks num_tiles num_reach lines block_rows mask_heads heads rows cols "
    "num_rows"
)


@dataclass(frozen=True)
class Item:
    """row, rows: first of the block, and how many there are. plane: which head of which sequence. task: who has it."""

    first: Expr
    row: Expr
    rows: Expr
    plane: Expr
    batch: Expr
    head: Expr
    task: Expr


@dataclass(frozen=True)
class Block:
    """number: of the mask. column: its first key. tile: -1 where all pairs are allowed."""

    number: Expr
    column: Expr
    tile: Expr


class Items:
    """A program over items. Parameters: `SIZES`, sizes and strides of operands, task_ptr, block_ptr, First, Indices,
    Tile, Tiles, Reach, Some[, SomeRow][, Padding], operands.

    Task t has items task_ptr[t] .. task_ptr[t + 1], item p as many blocks as block_ptr says, from First[p % lines] on,
    whose columns are Indices and tiles Tile. Tiles are (num_tiles, block * line), columns of a block by rows: 1 where
    a pair is allowed; Some (num_tiles, block) 1 where a column is in any pair, SomeRow where a row is. Reach tells, of
    a block without a tile and then of each tile, from which column up to which the pairs are that each group of
    `vectors` vectors of rows has, and then those of all rows.
    Padding is (batch, cols), or (batch, rows) where ``lanes_padded``: there it is of the rows of items.
    """

    def __init__(self, name: str, spec: MaskedSpec, lanes_padded: bool = False) -> None:
        self.spec, self.lanes_padded = spec, lanes_padded
        self.p = p = ProgramBuilder(name)
        self.size = dict(zip(SIZES.split(), p.sizes(*SIZES.split())))
        if spec.shared_out:
            self.size["shares"] = p.size("shares")
        self.strides: dict[str, list[Expr]] = {}
        self.blocks = Blocks(p, spec)
        size = self.size
        self.T = p.dense_fixed("T", size["num_tasks"])
        self.P = p.dense_variable("P", self.T, (size["num_items"], size["num_items"]), "task_ptr")
        blocks = size["num_item_blocks"]
        self.J = p.dense_variable("J", self.P, (blocks, blocks), "block_ptr")
        self.Z = Z = p.dense_fixed("Z", size["num_blocks"])
        N = p.dense_fixed("N", size["num_tiles"])
        self.FirstItem = p.buffer("FirstItem", (self.T,), "int32")
        self.First = p.buffer("First", (p.dense_fixed("Lines", size["lines"]),), "int32")
        self.Indices, self.Tile = p.buffer("Indices", (Z,), "int32"), p.buffer("Tile", (Z,), "int32")
        self.Tiles = p.buffer("Tiles", (N, self.blocks.axis(spec.block * spec.line)), "uint8")
        self.Reach = p.buffer("Reach", (p.dense_fixed("ReachAxis", size["num_reach"]),), "int32")
        self.Some = p.buffer("Some", (N, self.blocks.axis(spec.block)), "uint8")
        if lanes_padded:
            self.SomeRow = p.buffer("SomeRow", (N, self.blocks.axis(spec.block)), "uint8")
        if spec.padding:
            length = p.size("padded")
            self.Padding = p.buffer("Padding", (p.dense_fixed("Padded", length),), "uint8")

    def operand(self, name: str) -> BufferHandle:
        """(batch, heads, length, width) in any strides but that of the last dimension, which is 1."""
        span, *strides = self.p.sizes(*(f"{name}_{what}" for what in ("span", "batch", "head", "row")))
        self.strides[name] = [as_expr(s) for s in strides]
        return self.p.buffer(name, (self.p.dense_fixed(f"{name}_axis", span),), self.spec.dtype)

    def result(self, name: str, dtype: str, width: int) -> BufferHandle:
        """(batch * heads * rows, width)."""
        if not hasattr(self, "R"):
            self.R = self.p.dense_fixed("R", self.size["num_rows"])
        return self.p.buffer(name, (self.R, self.blocks.axis(width)), dtype)

    def at(self, name: str, item: Item, row: Expr) -> Expr:
        """Where a row of an operand begins."""
        batch, head, step = self.strides[name]
        return item.batch * batch + item.head * head + row * step

    @contextmanager
    def items(self) -> Iterator[Item]:
        size = {name: as_expr(each) for name, each in self.size.items()}
        with self.p.iterate("tasks", (self.T,), "S", ("t",)) as (t,):
            with self.p.iterate("items", (self.P,), "S", ("p",)) as (q,):
                whole = self.FirstItem[t] + q
                group, line = whole // size["lines"], whole % size["lines"]
                of_mask, row = line // size["block_rows"], line % size["block_rows"]
                plane = group * size["mask_heads"] + of_mask
                head = plane % size["heads"]
                yield Item(
                    self.First[line],
                    row * self.spec.block,
                    size["rows"],
                    plane,
                    plane // size["heads"],
                    head // size["shares"] if self.spec.shared_out else head,
                    t,
                )

    @contextmanager
    def blocks_of(self, item: Item) -> Iterator[Block]:
        with self.p.iterate("blocks", (self.J,), "R", ("j",)) as (j,):
            number = item.first + j
            yield Block(number, self.Indices[number] * self.spec.block, self.Tile[number])

    @contextmanager
    def rows_of(self, item: Item, name: str) -> Iterator[tuple[Expr, Expr]]:
        """(row of the block, row of a result), of rows that there are."""
        with self.blocks.each(name, self.spec.queries or self.spec.block) as ii:
            self.p.where(item.row + ii < item.rows)
            yield ii, item.plane * item.rows + item.row + ii

    def reach(self, block: Block) -> Reach:
        """The columns of a block that are in any pair of a group of rows, all between the first and the last."""
        first = (block.tile + 1) * (2 * (self.spec.groups + 1))
        return lambda group: (self.Reach[first + group * 2], self.Reach[first + group * 2 + 1])

    def reached(self, block: Block) -> Range:
        """The range that all rows reach."""
        return self.reach(block)(as_expr(self.spec.groups))

    def column(self, block: Block, j: Expr) -> Expr:
        """A column of a block; the last one in the place of those beyond it."""
        return minimum(block.column + j, as_expr(self.size["cols"]) - 1)

    def copy(
        self,
        name: str,
        source: BufferHandle,
        target: BufferHandle,
        width: int,
        item: Item,
        block: Block,
        step: int | None = None,
    ) -> None:
        """The rows of an operand that the columns of a block stand for, in the type of the target, a ``step`` apart.
        Those before and behind all pairs may be anything.
        """
        b, dtype = self.blocks, target.value.dtype
        with b.each(f"copy_{name}", self.spec.block, within=self.reached(block)) as j:
            first = self.at(name, item, self.column(block, j))
            b.row(
                f"copy_{name}_row",
                width,
                lambda d: target.__setitem__(j * (step or width) + d, cast(dtype, source[first + d])),
            )

    def clean(self, target: BufferHandle, width: int, item: Item, block: Block) -> None:
        """Zeros in the place of copied rows that no pair of the block has: these may be anything, and 0 times infinity
        would not be 0.
        """
        b = self.blocks

        self.clean_by(self.Some, target, width, block)
        if self.spec.padding and not self.lanes_padded:
            with b.each("clean_padded", self.spec.block) as j:
                self.p.where(self.padded(item, block, j))
                self._clear("clean_padded_row", target, width, j)

    def clean_by(self, some: BufferHandle, target: BufferHandle, width: int, block: Block) -> None:
        """Zeros in the place of rows of which ``some`` says that no pair of the tile has them."""
        b = self.blocks
        with b.each("clean", 1):
            self.p.where(block.tile >= 0)
            with b.each("clean_rows", self.spec.block) as j:
                self.p.where(equal(some[block.tile, j], number(0)))
                self._clear("clean_row", target, width, j)

    def _clear(self, name: str, target: BufferHandle, width: int, row: Expr) -> None:
        b = self.blocks
        if target.value.dtype == self.spec.accumulator:
            b.row(name, width, lambda d: target.__setitem__(row * width + d, 0.0))
            return
        with b.each(name, width) as d:  # TVM has no vectors of constants in half types
            target[row * width + d] = 0.0

    def padded(self, item: Item, block: Block, j: Expr) -> Expr:
        """Whether the column is taken away from the sequence."""
        return equal(self.Padding[item.batch * self.size["cols"] + self.column(block, j)], number(0))

    def row_is_there(self, item: Item, j: Expr) -> Expr:
        """Whether a row of the item exists, and is not taken away."""
        there = item.row + j < item.rows
        if not (self.spec.padding and self.lanes_padded):
            return there
        at = item.batch * self.size["rows"] + minimum(item.row + j, item.rows - 1)
        return both(there, differ(self.Padding[at], number(0)))

    def clear_missing(self, target: BufferHandle, width: int, item: Item) -> None:
        """Zeros in the place of rows that are not there."""
        with self.blocks.each("clear_missing", self.spec.line) as j:
            self.p.where(equal(select(self.row_is_there(item, j), number(1), number(0)), number(0)))
            self._clear("clear_missing_row", target, width, j)

    def lanes_allowed(self, item: Item) -> None:
        """Note which rows of the item, its lanes, are not taken away."""
        if self.spec.padding:
            self.allowed = self.blocks.local("Allowed", self.spec.line)
            with self.blocks.each("allow", self.spec.line) as j:
                self.allowed[j] = select(self.row_is_there(item, j), number(1.0, self.spec.accumulator), 0.0)

    def hide(self, scores: BufferHandle, low: Expr, item: Item, block: Block) -> None:
        """``low`` in the place of scores that are not allowed."""
        b, line = self.blocks, self.spec.line
        with b.each("hide", 1):
            self.p.where(block.tile >= 0)

            def hide(c):
                scores[c] = select(equal(self.Tiles[block.tile, c], number(0)), low, scores[c])

            b.vectors("hide_tile", self.spec.block * line, hide)
        if self.spec.padding and self.lanes_padded:
            with b.each("hide_lanes", self.spec.block) as i, b.each("hide_vector", line // self.spec.lanes) as v:
                with b.lanes("hide_lane") as c:
                    lane = v * self.spec.lanes + c
                    at = i * line + lane
                    scores[at] = select(self.allowed[lane] > 0.0, scores[at], low)
        elif self.spec.padding:
            with b.each("hide_padded", self.spec.block) as j:
                self.p.where(self.padded(item, block, j))
                b.row("hide_column", line, lambda c: scores.__setitem__(j * line + c, low))
