"""A statement and the formats of its operands, as a program of stage I."""

from __future__ import annotations

from collections.abc import Mapping

from .declared import Declared, Written
from .levels import Levels
from .notation import Statement
from .result import Kept, unread_levels
from .terms import Operand, Term
from .walks import Walks


def write(
    name: str,
    statement: Statement,
    terms: tuple[Term, ...],
    operands: Mapping[str, Operand],
    kept: Kept | None,
    dtype: str,
    static: Mapping[str, int],
) -> Written:
    """The program of a statement.

    Args:
        kept: the structure of the result; an ordinary array if None.
        dtype: of the result, which the program leaves in `ACCUMULATOR[dtype]`.
        static: indices whose extent is compiled in.
    """
    writer = Declared(name, statement, operands, dtype, static, kept)
    writer.merged = 1 if kept is None else max(1, unread_levels(kept, terms, operands))
    writer.declare(terms)
    writer.begin_result(writer.structure(kept.access.name) if kept else None)
    alone = len(terms) == 1
    plans = [Levels(writer, term, n) for n, term in enumerate(terms) if not term.together]
    together = [term for term in terms if term.together]
    walks = Walks(writer, together)
    if not (alone and plans and plans[0].covers):
        writer.clear(writer.result, writer.zero)
    for plan in plans:
        plan.emit(alone and plan.covers)
    for term in together:
        walks.added(term, writer.result, statement.result.indices)
    return writer.written({statement.result.name: ""})
