"""How the result of an expression is stored: like an ordinary array, or on the first levels of its sparse operand."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterator, Mapping
from itertools import takewhile

import numpy as np

from ...compiler.language.types import ACCUMULATOR
from ...frozen import dataclass
from ..storage.format import Format
from ..storage.values import FLOATS, fits, promoted
from .notation import TRUTH, Access, Call, Expression, Number, Operation, Statement
from .terms import Operand, Term, along


@dataclass(frozen=True)
class Kept:
    """A result that is stored at the coordinates of a sparse operand.

    Attributes:
        access: of the operand.
        levels: how many of its levels, from the first one, the result has.
        dense: indices of dense levels below them, in the order of the result.
        format: of the result.
    """

    access: Access
    levels: int
    dense: tuple[str, ...]
    format: Format


def kept_of(statement: Statement, terms: tuple[Term, ...], operands: Mapping[str, Operand]) -> Kept | None:
    """The result on the structure of the sparse operand, where it can be there; None where it cannot.

    It can be there if every product has the same sparse operand, and the result has the indices of its first levels,
    each once, and of no others.
    """
    access = terms[0].sparse if terms else None
    if access is None:
        return None
    operand = operands[access.name]
    for term in terms:
        if term.sparse is None or term.sparse.indices != access.indices:
            return None
        if operands[term.sparse.name].structure != operand.structure:
            return None
    result, format = statement.result.indices, operand.format
    if len(set(access.indices)) < len(access.indices):
        return None
    dense = tuple(index for index in result if index not in access.indices)
    if set(access.indices) <= set(result) and not dense:
        order = tuple(map(result.index, along(access, format)))
        block = format.block
        if block is not None:
            block = block[access.indices.index(result[0])], block[access.indices.index(result[1])]
        return Kept(access, len(format.levels), (), Format(format.levels, order, block, format.diagonals))
    if format.masked or "compressed-nonunique" in format.levels:
        return None
    stored = along(access, format)
    levels = next((at for at, index in enumerate(stored) if index not in result), len(stored))
    if any(index in result for index in stored[levels:]) or set(format.levels[:levels]) <= {"dense"}:
        return None
    order = tuple(result.index(index) for index in (*stored[:levels], *dense))
    return Kept(access, levels, dense, Format((*format.levels[:levels], *("dense",) * len(dense)), order))


def structure_of(
    statement: Statement, terms: tuple[Term, ...], operands: Mapping[str, Operand], wanted: Format | None
) -> Kept | None:
    """The structure that the result has of an operand: where it is all of it, or another than an ordinary array's is
    wanted."""
    kept = kept_of(statement, terms, operands)
    if kept is None:
        return None
    whole = set(kept.access.indices) <= set(statement.result.indices)
    return None if (not whole if wanted is None else wanted.is_dense) else kept


def unread_levels(kept: Kept, terms: tuple[Term, ...], operands: Mapping[str, Operand]) -> int:
    """How many of the result's first levels have coordinates that nobody reads: their elements can be visited in one
    loop, in equal parts, however they lie under each other."""
    format = operands[kept.access.name].format
    if format.masked:
        return 0
    stored = along(kept.access, format)
    read = {i for term in terms for a in term.accesses if not operands[a.name].is_sparse for i in a.indices}
    able = (stored[at] not in read and format.levels[at] != "slots" for at in range(kept.levels))
    return sum(takewhile(bool, able))


def is_assembled(
    statement: Statement, terms: tuple[Term, ...], operands: Mapping[str, Operand], wanted: Format | None
) -> bool:
    """Whether the result is put together, element by element, since no operand has its structure.

    If not said otherwise, it is where several sparse operands, and no others, have the indices of the result.
    """
    if structure_of(statement, terms, operands, wanted) is not None:
        return False
    sparse = [[a for a in term.accesses if operands[a.name].is_sparse] for term in terms]
    if wanted is not None:
        return not wanted.is_dense and any(sparse)
    several = {(operands[a.name].structure, a.indices) for found in sparse for a in found}
    result = set(statement.result.indices)
    return (
        len(several) > 1 and bool(result) and all(result <= {i for a in found for i in a.indices} for found in sparse)
    )


def dtype_of(statement: Statement, terms: tuple[Term, ...], operands: Mapping[str, Operand]) -> str:
    """The type of the result: the operands' own, promoted as NumPy does; float64 for fractions of integers."""
    names = [operand.dtype for operand in operands.values()] or ["float64"]
    found = statement.semiring.dtype or promoted(names)
    found = "int64" if found == "bool" and not statement.semiring.dtype else found  # truth values are counted
    broken = any(
        not isinstance(term.coefficient, int) or any(f.inverse or _breaks(f.of) for f in term.factors) for term in terms
    )
    found = "float64" if broken and found not in FLOATS else found
    wide = ACCUMULATOR[found]
    inner = [number for term in terms for factor in term.factors for number in _numbers(factor.of)]
    outer = [(term.coefficient, found if isinstance(term.coefficient, int) else wide) for term in terms]
    for number, dtype in (*outer, *((each, wide) for each in inner)):
        if not _fits(number, dtype):
            statement.refuse(
                f"the number {reprlib.repr(number)} does not fit {dtype}, the type of the result; give an operand of "
                "another",
                statement.result.at,
                len(str(statement.result)),
            )
    return found


def _fits(number: float | int, dtype: str) -> bool:
    """Whether a type has the number, and not infinity in its place."""
    most = float(np.finfo(np.float32).max) if dtype == "float32" else sys.float_info.max
    return fits(number, dtype) and abs(number) <= most


def _numbers(expression: Expression) -> Iterator[float | int]:
    """The numbers in a function."""
    match expression:
        case Number():
            yield expression.value
        case Call():
            yield from _numbers(expression.argument)
        case Operation():
            yield from _numbers(expression.a)
            yield from _numbers(expression.b)


def _breaks(expression: Expression) -> bool:
    match expression:
        case Call():
            return expression.function not in ("abs", "relu", TRUTH) or _breaks(expression.argument)
        case Operation():
            return expression.sign == "/" or _breaks(expression.a) or _breaks(expression.b)
        case Number():
            return not isinstance(expression.value, int)
    return False
