"""A statement as a sum of products, and what of each product is sparse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...frozen import dataclass
from ..storage.format import Format
from .notation import TRUTH, Access, Call, Expression, Number, Operation, Statement, accesses

KEEP_ZERO = ("sqrt", "tanh", "abs", "relu", TRUTH)
"""Functions that are zero at zero."""


@dataclass(frozen=True)
class Operand:
    """What a program has to know of an operand.

    Attributes:
        structure: a number; operands of the same one have their elements at the same coordinates, stored alike.
        pattern: its elements count as ones, and its values are not read.
        widths: of each level of slots, how many there are.
    """

    format: Format
    dtype: str
    index_dtype: str = "int32"
    structure: int = 0
    pattern: bool = False
    widths: tuple[int, ...] = ()

    @property
    def is_sparse(self) -> bool:
        return not self.format.is_dense


def along(access: Access, format: Format) -> tuple[str, ...]:
    """The index of each level of an access."""
    return tuple(access.indices[mode] for mode in format.modes_in_order)


@dataclass(frozen=True)
class Factor:
    """A part of a product: an access or a function of an expression; `inverse`: divided by."""

    of: Access | Call
    inverse: bool = False

    @property
    def indices(self) -> frozenset[str]:
        return frozenset(index for access in accesses(self.of) for index in access.indices)


@dataclass(frozen=True)
class Term:
    """A product, summed over the indices that the result has not.

    Attributes:
        sparse: the access whose coordinates are visited; others of the same structure have the same indices. None where
            all is dense, and where there are several.
        together: sparse accesses with elements at different coordinates, which are walked together; none if fewer than
            two.
    """

    coefficient: float | int
    factors: tuple[Factor, ...]
    sparse: Access | None = None
    together: tuple[Access, ...] = ()

    @property
    def accesses(self) -> tuple[Access, ...]:
        """Every access, in the order of appearance."""
        return tuple(access for factor in self.factors for access in accesses(factor.of))

    @property
    def indices(self) -> tuple[str, ...]:
        """Every index, in the order of appearance."""
        return tuple(dict.fromkeys(index for access in self.accesses for index in access.indices))


def sparse_accesses(terms: Iterable[Term], operands: Mapping[str, Operand]) -> tuple[Access, ...]:
    """The sparse accesses of terms, each once."""
    found = (access for term in terms for access in term.accesses if operands[access.name].is_sparse)
    return tuple(dict.fromkeys(found))


def terms_of(statement: Statement, operands: Mapping[str, Operand]) -> tuple[Term, ...]:
    """The products of a statement, each with its sparse accesses.

    Raises NotationError for what cannot be computed.
    """
    return tuple(_with_sparse(term, statement, operands) for term in products_of(statement))


def products_of(statement: Statement) -> tuple[Term, ...]:
    """The products of a statement. Raises NotationError for what cannot be computed."""
    return tuple(_products(statement.expression, statement))


def _products(expression: Expression, statement: Statement) -> list[Term]:
    match expression:
        case Number():
            return [Term(expression.value, ())]
        case Access() | Call():
            return [Term(1, (Factor(expression),))]
        case Operation("+" | "-"):
            second = _products(expression.b, statement)
            if expression.sign == "-":
                second = [replace(term, coefficient=-term.coefficient) for term in second]
            return _products(expression.a, statement) + second
        case Operation("*"):
            pairs = [(a, b) for a in _products(expression.a, statement) for b in _products(expression.b, statement)]
            return [Term(a.coefficient * b.coefficient, a.factors + b.factors) for a, b in pairs]
    assert isinstance(expression, Operation)
    below = _products(expression.b, statement)
    if len(below) > 1:
        statement.refuse("the divisor is a sum; give it a name of its own, computed before", expression.at)
    divisor = below[0]
    if divisor.coefficient == 0:
        statement.refuse("division by 0", expression.at)
    turned = tuple(replace(factor, inverse=not factor.inverse) for factor in divisor.factors)
    factor = 1 / divisor.coefficient if divisor.coefficient != 1 else 1
    return [Term(term.coefficient * factor, term.factors + turned) for term in _products(expression.a, statement)]


def _with_sparse(term: Term, statement: Statement, operands: Mapping[str, Operand]) -> Term:
    found: dict[tuple[int, tuple[str, ...]], Access] = {}
    # what multiplies an element of an operand is nowhere asked for where that stores nothing
    multiplied = {(f.of.name, f.of.indices) for f in term.factors if isinstance(f.of, Access) and not f.inverse}
    for factor in term.factors:
        for access in accesses(factor.of):
            if operands[access.name].is_sparse:
                if factor.inverse or (access.name, access.indices) not in multiplied:
                    _keeps_zero(factor, access, statement, operands)
                found.setdefault((operands[access.name].structure, access.indices), access)
    if len(found) > 1:
        return replace(term, together=tuple(found.values()))
    return replace(term, sparse=next(iter(found.values()), None))


def _keeps_zero(factor: Factor, access: Access, statement: Statement, operands: Mapping[str, Operand]) -> None:
    """Refuse what is not zero where `access` stores nothing."""
    if factor.inverse:
        statement.refuse(
            f"{access.name} is sparse, and division by its zeros would fill the result; use {access.name}.to('dense')",
            access.at,
            len(access.name),
        )
    if isinstance(factor.of, Call) and not _is_zero(factor.of, operands):
        statement.refuse(
            f"{factor.of.function}(...) is not zero where {access.name} stores nothing; use {access.name}.to('dense')",
            factor.of.at,
            len(factor.of.function),
        )


def _is_zero(expression: Expression, operands: Mapping[str, Operand]) -> bool:
    """Whether it is zero where the sparse operands in it are."""
    match expression:
        case Access():
            return operands[expression.name].is_sparse
        case Call():
            return expression.function in KEEP_ZERO and _is_zero(expression.argument, operands)
        case Operation("*" | "&"):
            return _is_zero(expression.a, operands) or _is_zero(expression.b, operands)
        case Operation("/"):
            return _is_zero(expression.a, operands)
        case Operation():
            return _is_zero(expression.a, operands) and _is_zero(expression.b, operands)
    return expression == Number(0)


@dataclass(frozen=True)
class Nest:
    """What a schedule has to know of the loops of a product that have a buffer for each sum.

    Attributes:
        sparse: the operand that is visited.
        rows: the iteration around all, by name.
        elements: the innermost iteration over elements of the sparse operand.
        feature: the axis of the features that are summed side by side; "" of a dot product.
        dot: the iteration of a dot product over features; "" of other sums.
        width: of the features.
        dtype: that is summed in.
        deep: there are sums within sums.
        gathered: buffers whose rows the elements choose.
        adds: whether the sums are sums, and of no other semiring.
    """

    sparse: str
    rows: str
    elements: str
    feature: str
    dot: str
    width: int
    dtype: str
    deep: bool
    gathered: tuple[str, ...]
    adds: bool
