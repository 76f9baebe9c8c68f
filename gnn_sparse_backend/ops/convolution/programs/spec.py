"""What is static in programs of sparse convolution, and what all of them have in common.

Numbers of rows, pairs, offsets, channels and groups are run-time sizes: a kernel serves every layer of its types. A
program is written for a block of `block` rows by a tile of `vectors` vectors of columns, whose sums are registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....compiler.language.axes import Axis, StageIError
from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, cast
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from ...core.tiles.tiles import STEP

LAYER = "offsets", "column_tiles", "group_tiles", "in_features", "wide_in", "wide_out"
"""Sizes of a layer, as programs of products take them."""


@dataclass(frozen=True)
class ConvSpec:
    """What is static. block: rows of the block of sums. vectors: of a row of it, of ``lanes`` each: its columns.

    rows: most rows of a task, where sums wait in a local buffer (`conv_offsets`); elements of a local buffer of rows
    (`conv_sums`). dtype: of x and of matrices; results have its accumulation type. bf16_pairs: terms come two at a
    time, and matrices have them side by side (`primitives.cpu.bf16_pair_dot`).
    """

    block: int
    vectors: int
    lanes: int
    rows: int = 1
    dtype: str = "float32"
    index_dtype: str = "int32"
    bf16_pairs: bool = False

    def __post_init__(self) -> None:
        if min(self.block, self.vectors, self.lanes, self.rows) < 1:
            raise StageIError(f"convolution: a block wants a row, a vector and a lane at least, got {self}")

    @property
    def tile(self) -> int:
        """Columns of a block."""
        return self.vectors * self.lanes

    @property
    def accumulator(self) -> str:
        return ACCUMULATOR[self.dtype]


class Block:
    """A block of sums, row by row in vectors: each is a local buffer of its own, which becomes a register.

    Statements go through a row before the next one, so that what a row is multiplied by lives for one row: with the
    sums and a row of the matrix it fits the registers.
    """

    def __init__(self, p: ProgramBuilder, spec: ConvSpec, columns: Axis) -> None:
        self.p, self.columns, self.firsts = p, columns, range(0, spec.tile, spec.lanes)
        self.sums = [
            [p.local(f"Sum{m}_{first}", (columns,), spec.accumulator) for first in self.firsts]
            for m in range(spec.block)
        ]

    def each(self, name: str) -> Iterator[tuple[int, BufferHandle, Expr, Expr]]:
        """(row, vector, its lane, column of the block) of every vector, inside an iteration over lanes."""
        with self.p.iterate(name, (self.columns,), "S", (f"c_{name}",)) as (c,):
            for m, row in enumerate(self.sums):
                for vector, first in zip(row, self.firsts):
                    yield m, vector, c, c + first

    def clear(self) -> None:
        for _, vector, c, _ in self.each("zero"):
            vector[c] = 0.0

    def multiply(
        self,
        spec: ConvSpec,
        steps: Axis,
        step: Axis | None,
        left: Callable[[int, Expr], Expr],
        right: Callable[[Expr, Expr], Expr],
    ) -> None:
        """Add the products of ``left(row, term)`` by ``right(step, place of a column)`` over all terms."""
        axes = (steps,) if step is None else (steps, step)
        with self.p.iterate("sum", axes, "R" * len(axes), ("f", "two")[: len(axes)]) as at:
            width = 1 if step is None else step.static_length
            term = at[0] if step is None else at[0] * width + at[1]
            for m, vector, c, column in self.each("step"):
                place = column if step is None else column * width + at[1]
                vector[c] = vector[c] + cast(spec.accumulator, left(m, term)) * cast(
                    spec.accumulator, right(at[0], place)
                )


def terms_of(p: ProgramBuilder, spec: ConvSpec, name: str) -> tuple[Axis, Axis | None]:
    """The axes of the terms of a product: steps, of which ``name`` is the number, and the terms of one."""
    steps = p.dense_fixed("F", p.size(name))
    return steps, p.dense_fixed(STEP, 2) if spec.bf16_pairs else None
