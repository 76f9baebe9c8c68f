"""The rows of a result whose operands store only those that have elements.

A row is named by all indices of the result but the last. Which rows there may be follows from the first levels of the
operands: a statement of its own, of the operands cut behind their last level that matters, whose result has a row of
the other for each element. It may need rows in turn. So nothing is as long as all rows there could be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from ....frozen import dataclass
from ...storage.format import Format
from ...storage.stored import Stored
from ...storage.structure import Structure
from ..notation import Access, Call, Expression, Operation, Statement, accesses, product, written
from ..result import Kept, is_assembled, structure_of
from ..terms import Operand, Term, along, terms_of
from .order import Order


@dataclass(frozen=True)
class Cut:
    """The first levels of an operand, all elements of which count as ones."""

    name: str
    levels: int

    def of(self, stored: Stored) -> Stored:
        format, modes = self.format(stored.format)
        levels = stored.structure.levels[: self.levels]
        structure = Structure(format, tuple(stored.shape[mode] for mode in modes), levels)
        return Stored(structure, np.broadcast_to(np.ones(1, np.int8), (structure.positions,)))

    def format(self, whole: Format) -> tuple[Format, list[int]]:
        """(their format, the modes that they store)."""
        stored = whole.modes_in_order[: self.levels]
        modes = sorted(stored)
        return Format(whole.levels[: self.levels], tuple(modes.index(mode) for mode in stored)), modes


@dataclass(frozen=True)
class Rows:
    """The statement of the rows of a result.

    Attributes:
        terms: its products.
        operands: by name, what is known of them.
        cuts: by name, the levels that they are.
        kept: the operand whose elements the rows are, where they are those of one.
    """

    statement: Statement
    terms: tuple[Term, ...]
    operands: Mapping[str, Operand]
    cuts: Mapping[str, Cut]
    kept: Kept | None

    def given(self, operands: Mapping[str, Stored]) -> dict[str, Stored]:
        """Operands that are cut, by the names they have here."""
        return {name: cut.of(operands[cut.name]) for name, cut in self.cuts.items()}

    def of_kept(self, operands: Mapping[str, Stored]) -> Structure:
        """The rows, where they are the elements of an operand."""
        assert self.kept is not None
        found = self.cuts[self.kept.access.name].of(operands[self.cuts[self.kept.access.name].name]).structure
        return replace(found, format=self.kept.format, shape=tuple(level.extent for level in found.levels))


def rows_of(terms: Sequence[Term], operands: Mapping[str, Operand], order: Order) -> Rows | None:
    """The statement of the rows of a result. None where they are stored densely: all of them may have elements, or
    nothing that is stored sparse says which do."""
    indices = order.result[:-1]
    cutting = _Cutting(operands)
    found = [cutting.term(term, indices) for term in terms]
    there = [each for each in found if each is not None]
    if not indices or len(there) < len(found):
        return None
    total = reduce(lambda a, b: Operation("+", a, b), there)
    statement = Statement(Access("Rows", indices), total, f"the rows of {written(total)}")
    used = {access.name for access in accesses(total)}  # what was cut for an addend that tells nothing is not
    known = {name: operand for name, operand in cutting.operands.items() if name in used}
    cuts = {name: cut for name, cut in cutting.cuts.items() if name in used}
    parts = terms_of(statement, known)
    if not all(set(indices) <= set(part.indices) for part in parts):
        return None
    kept = structure_of(statement, parts, known, None)
    if kept is None and not is_assembled(statement, parts, known, None):
        return None
    return Rows(statement, parts, known, cuts, kept)


def listed(order: Order, terms: Sequence[Term], operands: Mapping[str, Operand]) -> Order:
    """The order, with rows listed where they can be: those that may have elements, one after the other."""
    return replace(order, listed=not order.is_cut and rows_of(terms, operands, order) is not None)


def natural_format(
    terms: Sequence[Term], operands: Mapping[str, Operand], order: Order, modes: Sequence[int] | None = None
) -> Format:
    """How a result is stored that is put together: levels above the last one are those of its rows; modes: which each
    of its levels stores."""
    rows = rows_of(terms, operands, order)
    above: tuple[str, ...] = ("dense",) * (len(order.result) - 1)
    if rows is not None:
        inner = replace(order, result=order.result[:-1])
        above = (natural_format(rows.terms, rows.operands, inner) if rows.kept is None else rows.kept.format).levels
    return Format((*above, "compressed"), None if modes is None else tuple(modes))


class _Cutting:
    """Products of the first levels of operands, where these tell which rows there may be."""

    def __init__(self, operands: Mapping[str, Operand]) -> None:
        self.whole = operands
        self.names: dict[Cut, str] = {}
        self.operands: dict[str, Operand] = {}
        self.numbers: dict[tuple[int, int], int] = {}

    @property
    def cuts(self) -> dict[str, Cut]:
        return {name: cut for cut, name in self.names.items()}

    def term(self, term: Term, rows: Sequence[str]) -> Expression | None:
        """What tells of a product; None if nothing does."""
        wanted, before = set(rows), -1
        while len(wanted) > before:  # what a row index stands under joins operands
            before = len(wanted)
            for access in term.accesses:
                wanted |= set(self.first(access, wanted))
        return self.all(self.part(factor.of, wanted) for factor in term.factors if not factor.inverse)

    def first(self, access: Access, wanted: Collection[str]) -> tuple[str, ...]:
        """The indices of an access as far as there is one that is wanted, along its levels."""
        if not self.whole[access.name].is_sparse:
            return ()
        stored = along(access, self.whole[access.name].format)
        return stored[: max((n for n, index in enumerate(stored, 1) if index in wanted), default=0)]

    def all(self, parts: Iterable[Expression | None]) -> Expression | None:
        found = [part for part in parts if part is not None]
        return product(found) if found else None

    def part(self, expression: Expression, wanted: Collection[str]) -> Expression | None:
        match expression:
            case Access():
                return self.access(expression, wanted)
            case Call():
                return self.part(expression.argument, wanted)
            case Operation("/"):
                return self.part(expression.a, wanted)
            case Operation():
                parts = [self.part(each, wanted) for each in (expression.a, expression.b)]
                if expression.sign in "*&":
                    return self.all(parts)
                a, b = parts
                return None if a is None or b is None else Operation("+", a, b)
        return None

    def access(self, access: Access, wanted: Collection[str]) -> Access | None:
        indices, operand = self.first(access, wanted), self.whole[access.name]
        cut = Cut(access.name, len(indices))
        if not indices:
            return None
        format, modes = cut.format(operand.format)
        if format.is_dense:
            return None
        if cut not in self.names:
            self.names[cut] = f"Cut{len(self.names)}"
            number = self.numbers.setdefault((operand.structure, cut.levels), len(self.numbers))
            self.operands[self.names[cut]] = Operand(format, "int8", operand.index_dtype, number, True)
        return Access(self.names[cut], tuple(access.indices[mode] for mode in modes))
