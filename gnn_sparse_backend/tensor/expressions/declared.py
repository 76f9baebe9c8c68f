"""What a program declares: axes of indices and structures, buffers of operands, and names that nothing has."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...compiler import Axis, Program, ProgramBuilder, Size
from ...compiler.language.builder import BufferHandle
from ...compiler.language.expr import Expr, ExprLike
from ...compiler.language.program import WORDS
from ...compiler.language.types import ACCUMULATOR
from ...frozen import dataclass
from ..storage.values import buffer_dtype
from .arithmetic import Element, constant, product
from .axes import LevelAxes, axes
from .notation import Access, Statement, accesses
from .result import Kept
from .terms import Nest, Operand, Term


@dataclass(frozen=True)
class Written:
    """A program and what its parameters are.

    Attributes:
        sizes: by name of a size: ("index", index), or (structure, level, what) as `LevelAxes` has it, or (what,) of one
            that is given at each call, or ("extent", expression) of what follows from others.
        arrays: by name of an index array: (structure, level, what); structure -1 of one that is given at each call.
        buffers: by name of a buffer: the operand, or "" for the result, or what else is given at each call.
        masks: by name of a buffer: the structure whose mask it is.
        nests: sums and dot products that have buffers of their own.
    """

    program: Program
    sizes: dict[str, tuple[Any, ...]]
    arrays: dict[str, tuple[int, int, str]]
    buffers: dict[str, str]
    masks: dict[str, int]
    nests: tuple[Nest, ...] = ()


class Declared:
    """A program that is being written, and what it has so far.

    Args:
        dtype: of the result; sums are in its accumulator.
        static: indices whose extent is compiled in.
        kept: the structure of the result; None of an ordinary array, or of one that is put together.
    """

    result: BufferHandle

    def __init__(
        self,
        name: str,
        statement: Statement,
        operands: Mapping[str, Operand],
        dtype: str,
        static: Mapping[str, int],
        kept: Kept | None = None,
    ) -> None:
        self.p, self.statement, self.operands = ProgramBuilder(name), statement, operands
        self.dtype, self.static, self.kept = ACCUMULATOR[dtype], static, kept
        self.semiring = statement.semiring
        self.zero = self.constant(self.semiring.zero(dtype))
        self.used = {name, statement.result.name, *operands}
        self.sizes: dict[str, tuple[Any, ...]] = {}
        self.arrays: dict[str, tuple[int, int, str]] = {}
        self.masks: dict[str, int] = {}
        self.index_axes: dict[str, Axis] = {}
        self.structures: dict[int, LevelAxes] = {}
        self.mask_of: dict[int, Any] = {}
        self.buffers: dict[str, BufferHandle] = {}
        self.names: dict[str, str] = {}
        self.operand_of: dict[str, str] = {}
        self.nests: list[Nest] = []
        self._one: Axis | None = None
        self.merged = 1

    def declare(self, terms: tuple[Term, ...], walked: bool = False) -> None:
        """The axes of the indices, and the operands but those that are walked: all sparse ones, if `walked`."""
        found = [access for term in terms for access in term.accesses]
        for index in dict.fromkeys([*self.statement.result.indices, *(i for access in found for i in access.indices)]):
            self.index_axes[index] = self.dense_axis(index)
        for term in terms:
            for access in term.accesses:
                operand = self.operands[access.name]
                if access.name in self.buffers or (operand.is_sparse and (walked or term.together)):
                    continue
                if not operand.pattern:
                    self.buffers[access.name] = self.buffer(access.name, self.operand_axes(access))
                elif operand.is_sparse:
                    self.structure(access.name)

    def begin_result(self, structure: LevelAxes | None) -> None:
        """Declare the result: on the first levels of a structure, or like an ordinary array."""
        result, where = self.statement.result, tuple[Axis, ...]()
        if structure is not None and self.kept is not None:
            where = structure.first(self.kept.levels)
        dense = result.indices if self.kept is None else self.kept.dense
        self.result = self.p.buffer(result.name, (*where, *(self.index_axes[index] for index in dense)), self.dtype)

    def buffer(self, operand: str, where: tuple[Axis, ...]) -> BufferHandle:
        """A buffer of the values of an operand, of which there may be several."""
        name = operand if operand not in self.operand_of else self.fresh(operand)
        self.operand_of[name] = operand
        return self.p.buffer(name, where, buffer_dtype(self.operands[operand].dtype))

    @property
    def one(self) -> Axis:
        """An axis of one element."""
        if self._one is None:
            self._one = self.p.dense_fixed(self.fresh("One"), 1)
        return self._one

    @contextmanager
    def once(self, condition: Expr | None = None, name: str = "once") -> Iterator[None]:
        """What is done once, and only where a condition holds if there is one."""
        with self.p.iterate(self.fresh(name), (self.one,), "S", (self.fresh("o"),)):
            if condition is not None:
                self.p.where(condition)
            yield

    def clear(self, buffer: BufferHandle, zero: ExprLike = 0) -> None:
        """Set a whole buffer to zero, that of the semiring if it is given."""
        axes = buffer.value.axes
        visited = axes or (self.one,)
        names = [self.fresh("z") for _ in visited]
        roots = [found.root for found in self.structures.values()]
        fused = (visited[:2],) if len(visited) > 1 and visited[0] in roots else ()
        with self.p.iterate(self.fresh("clear"), visited, "S" * len(visited), names, fused) as variables:
            buffer[tuple(variables) if axes else ()] = zero

    def fresh(self, wanted: str) -> str:
        """A name that nothing has."""
        name = wanted if wanted.isascii() else "x"
        while name in self.used or keyword.iskeyword(name) or name in WORDS:
            name += "_"
        self.used.add(name)
        return name

    def prefix(self, wanted: str) -> str:
        """What no name begins with."""
        read = (self.statement.result, *accesses(self.statement.expression))
        indices = {index for access in read for index in access.indices}
        while any(name.startswith(wanted) for name in self.used | indices):
            wanted += "_"
        return self.fresh(wanted)

    def variable(self, index: str) -> str:
        """What the loops over an index are called."""
        if index not in self.names:
            self.names[index] = self.fresh(index)
        return self.names[index]

    def dense_axis(self, index: str) -> Axis:
        length: int | Size
        if index in self.static:
            length = self.static[index]
        else:
            length = self.p.size(self.fresh(f"n_{index}" if index.isascii() else "n"))
            self.sizes[length.name] = ("index", index)
        return self.p.dense_fixed(self.fresh(f"X_{index}" if index.isascii() else "X"), length)

    def structure(self, name: str) -> LevelAxes:
        operand = self.operands[name]
        number = operand.structure
        if number not in self.structures:
            block = operand.format.block
            sides = block and [block[mode] for mode in operand.format.modes_in_order]

            def extent(level: int) -> int | None:
                return sides[level - 2] if sides and level > 1 else None

            prefix = self.prefix(f"S{number}_")
            made = axes(self.p, prefix, operand.format, operand.index_dtype, operand.widths, extent, self.merged)
            self.structures[number] = made
            self.take(number, made)
            if operand.format.masked:
                mask = self.fresh(f"M{number}")
                self.mask_of[number] = self.p.buffer(mask, made.all, "uint8")
                self.masks[mask] = number
        return self.structures[number]

    def take(self, structure: int, made: LevelAxes) -> None:
        """Keep in mind what the sizes and index arrays of these axes are."""
        self.sizes |= {size: (structure, *what) for size, what in made.sizes.items()}
        self.arrays |= {array: (structure, *what) for array, what in made.arrays.items()}

    def operand_axes(self, access: Access) -> tuple[Axis, ...]:
        operand = self.operands[access.name]
        if operand.is_sparse:
            return self.structure(access.name).all
        made: list[Axis] = []
        for mode in operand.format.modes_in_order:
            axis = self.index_axes[access.indices[mode]]
            made.append(self.dense_axis(access.indices[mode]) if axis in made else axis)
        return tuple(made)

    def constant(self, value: float) -> Expr:
        return constant(value, self.dtype)

    def product(self, term: Term, element: Element, summed: Expr | None = None) -> Expr:
        """The factors of a term multiplied; summed: what stands for those that are not in it."""
        return product(term, self.dtype, element, summed, self.semiring.multiply)

    def accumulate(self, buffer: BufferHandle, where: Any, x: Expr) -> None:
        """Add a value to an element of a buffer."""
        buffer[where] = self.semiring.add(buffer[where], x)

    def written(self, others: Mapping[str, str]) -> Written:
        """The finished program; others: what its buffers are beside operands."""
        return Written(
            self.p.finish(), self.sizes, self.arrays, self.operand_of | dict(others), self.masks, tuple(self.nests)
        )
