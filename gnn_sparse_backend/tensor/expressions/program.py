"""A statement and the formats of its operands, as a program of stage I."""

from __future__ import annotations

from collections.abc import Mapping

from .declared import Written
from .levels import Levels, nestable
from .loops.term_writer import ResultWriter, TermWriter
from .notation import Statement
from .result import Kept
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
    writer = ResultWriter(name, statement, operands, kept, dtype, static)
    where = writer.begin(terms)
    alone = len(terms) == 1
    plans = [TermWriter(writer, term, n) for n, term in enumerate(terms) if not term.together]
    together = [term for term in terms if term.together]
    walks = Walks(writer, together)
    if not (alone and plans and plans[0].covers):
        writer.clear(where)
    for plan in plans:
        assign = alone and plan.covers
        if nestable(plan):
            writer.nests.append(Levels(plan, assign).emit())
        else:
            plan.emit(assign)
    for term in together:
        walks.added(term, writer.result, statement.result.indices)
    return writer.written({statement.result.name: ""})
