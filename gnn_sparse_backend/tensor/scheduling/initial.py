"""The statement that an expression is before any command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ScheduleError
from ..expressions.assembled.order import (
    WALKED,
    assembled_order,
    conversions,
    modes_of,
    preferred_order,
    walkable,
)
from ..expressions.kernel import in_formats
from ..expressions.loops.loops import Loop
from ..expressions.notation import Access
from ..expressions.notation import Statement as Notation
from ..expressions.result import dtype_of, is_assembled, structure_of
from ..expressions.specs import extents_of, specs_of
from ..expressions.terms import Operand, Term, sparse_accesses, terms_of
from ..storage.format import Format, as_format
from ..storage.stored import GivenFormat, Stored
from .assembled import assembled_statement
from .nest import Assign, Nest
from .statement import Source, Statement


def statement_of(text: str, operands: Mapping[str, Stored], notation: Notation, format: GivenFormat) -> Statement:
    """The statement of an expression for operands like these, each loop in the order of the indices."""
    wanted = None if format is None else as_format(format, len(notation.result.indices))
    extents_of(notation, operands)
    specs = specs_of(notation, operands, frozenset())
    assembled = is_assembled(notation, terms_of(notation, specs), specs, wanted)
    converted = conversions(notation, specs, wanted) if assembled else _conversions(terms_of(notation, specs), specs)
    if converted:
        operands = in_formats(operands, converted)
        specs = specs_of(notation, operands, frozenset())
    terms = terms_of(notation, specs)
    if is_assembled(notation, terms, specs, wanted):
        order = assembled_order(notation, terms, specs, modes_of(notation, wanted))
        what = notation, terms, specs, None, dtype_of(notation, terms, specs), wanted, converted
        return assembled_statement(Source(*what), order)
    kept = structure_of(notation, terms, specs, wanted)
    for term in terms:
        for factor in term.factors:
            several = {specs[a.name].structure for a in sparse_accesses([Term(1, (factor,))], specs)}
            if len(several) > 1 and not isinstance(factor.of, Access):
                raise ScheduleError(
                    f"{text}: a function of several sparse operands is not scheduled; compile the expression as it is"
                )
    nests = []
    for term in terms:
        loops = map(Loop, preferred_order([term], specs, notation.result.indices))
        nests.append(Nest(tuple(loops), Assign(notation.result, term)))
    source = Source(notation, terms, specs, kept, dtype_of(notation, terms, specs), wanted, converted)
    made = Statement(source, tuple(nests))
    made.check(f"statement({text!r})")
    return made


def _conversions(terms: Sequence[Term], specs: Mapping[str, Operand]) -> dict[str, Format]:
    """Formats that cannot be visited level by level, or not beside another sparse operand."""
    found: dict[str, Format] = {}
    for term in terms:
        for access in sparse_accesses([term], specs):
            format = specs[access.name].format
            if format.masked or (term.together and not WALKED.issuperset(format.levels)):
                found[access.name] = walkable(format, format.modes_in_order)
    return found
