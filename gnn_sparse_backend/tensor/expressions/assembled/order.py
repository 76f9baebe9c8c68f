"""In which order the indices of sparse operands are visited: that of their levels, from the outermost on.

A result that is stored sparse is put together row by row. Where the indices that are summed over come after its last
one, an element is complete when it is reached; otherwise a row is summed in a workspace (Kjolstad et al., "Tensor
Algebra Compilation with Workspaces", CGO 2019).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import permutations
from typing import NoReturn

from ....frozen import dataclass
from ...errors import CoIterationError
from ...storage.format import Format
from ..loops.provenance import Graph, above
from ..notation import Statement
from ..result import is_assembled
from ..terms import Operand, Term, along, sparse_accesses, terms_of

Chain = tuple[str, ...]
"""Indices of which each comes before the next."""
WALKED = {"dense", "compressed"}
"""The levels that can be walked: coordinates ascend, and occur once."""


@dataclass(frozen=True)
class Order:
    """The order for a result that is stored sparse.

    Attributes:
        loops: outermost first: over indices, or over variables that have come of them.
        result: the indices of the result, in the order of its levels.
        workspace: a row of the result is summed before it is stored.
        graph: where variables come from.
        unrolled: loops that are written out.
        static: indices whose extent is compiled in.
        listed: the rows of the result that may have elements are given, and no others are visited.
    """

    loops: tuple[str, ...]
    result: tuple[str, ...]
    workspace: bool
    graph: Graph = ()
    unrolled: tuple[str, ...] = ()
    static: Mapping[str, int] = field(default_factory=dict)
    listed: bool = False

    @property
    def rows(self) -> tuple[str, ...]:
        """The loops over the rows of the result: by all of its indices but the last."""
        return self.of(self.result[:-1])

    @property
    def columns(self) -> tuple[str, ...]:
        """The loops over the last index of the result."""
        return self.of(self.result[-1:])

    def of(self, indices: Collection[str]) -> tuple[str, ...]:
        """The loops over parts of these indices alone."""
        return tuple(loop for loop in self.loops if set(above(self.graph, loop)) <= set(indices))

    @property
    def is_cut(self) -> bool:
        """Whether rows are visited otherwise than one after the other."""
        return self.rows != self.result[:-1]


def _chains(terms: Iterable[Term], operands: Mapping[str, Operand]) -> list[Chain]:
    return [along(access, operands[access.name].format) for access in sparse_accesses(terms, operands)]


def order_of(
    statement: Statement, terms: Sequence[Term], operands: Mapping[str, Operand], result: Sequence[str]
) -> tuple[str, ...]:
    """The order for a result that is stored like an ordinary array. Raises CoIterationError where there is none."""
    chains = _chains(terms, operands)
    every = dict.fromkeys([*result, *(index for term in terms for index in term.indices)])
    found = _sorted(chains, tuple(every))
    if found is None:
        _refuse(statement)
    return found


def preferred_order(terms: Sequence[Term], operands: Mapping[str, Operand], result: Sequence[str]) -> tuple[str, ...]:
    """The order of `order_of` for the first operands that agree on one, where not all do."""
    every = tuple(dict.fromkeys([*result, *(index for term in terms for index in term.indices)]))
    kept: list[Chain] = []
    for chain in _chains(terms, operands):
        if _sorted([*kept, chain], every) is not None:
            kept.append(chain)
    return _sorted(kept, every) or every


def assembled_order(
    statement: Statement, terms: Sequence[Term], operands: Mapping[str, Operand], modes: Sequence[int]
) -> Order:
    """The order for a result that is stored sparse, its modes in the order `modes` and without a workspace if possible.

    Raises CoIterationError where there is none.
    """
    chains = _chains(terms, operands)
    indices = statement.result.indices
    reduced = tuple(dict.fromkeys(i for term in terms for i in term.indices if i not in indices))
    orders = dict.fromkeys([tuple(modes), *permutations(range(len(indices)))])
    for workspace in (False, True):
        for order in orders:
            result = tuple(indices[mode] for mode in order)
            first = result[:-1] if workspace else result
            others = (*((result[-1],) if workspace else ()), *reduced)
            before = [(index, other) for other in others for index in first[-1:]]
            found = _sorted([*chains, first, *before], (*result, *reduced))
            if found is not None:
                return Order(found, result, workspace)
    _refuse(statement)


def _refuse(statement: Statement) -> NoReturn:
    raise CoIterationError(
        f"an operand of {statement} is read in two orders of its modes, and is stored in one; give it a second name, "
        "so that each can be stored in its own"
    )


def modes_of(statement: Statement, wanted: Format | None) -> tuple[int, ...]:
    """The order of the modes of a result."""
    return tuple(range(len(statement.result.indices))) if wanted is None else wanted.modes_in_order


def conversions(statement: Statement, operands: Mapping[str, Operand], wanted: Format | None) -> dict[str, Format]:
    """The formats to convert operands to before they are walked: levels that can be, in orders that agree.

    None of an expression whose terms have one sparse operand each, which is visited as it is stored.
    """
    terms = terms_of(statement, operands)
    assembled = is_assembled(statement, terms, operands, wanted)
    walked = sparse_accesses([term for term in terms if assembled or term.together], operands)
    found: dict[str, Format] = {}
    chains: list[Chain] = []
    indices = tuple(dict.fromkeys([*statement.result.indices, *(i for term in terms for i in term.indices)]))
    modes = modes_of(statement, wanted)
    if assembled and modes:
        rows = tuple(statement.result.indices[mode] for mode in modes)[:-1]
        others = [index for index in indices if index not in rows]
        chains += [rows, *((rows[-1], other) for other in others if rows)]
    for access in walked:
        format = found.get(access.name, operands[access.name].format)
        able = walkable(format, format.modes_in_order)
        if _sorted([*chains, along(access, able)], indices) is None:
            by_index = _sorted(chains, indices) or indices
            able = walkable(format, sorted(range(able.modes), key=lambda mode: by_index.index(access.indices[mode])))
        if able != format:
            found[access.name] = able
        chains.append(along(access, able))
    return found


def walkable(format: Format, order: Sequence[int]) -> Format:
    """The format nearest to one, whose levels can be walked, of modes in this order."""
    if WALKED.issuperset(format.levels) and not format.masked and tuple(order) == format.modes_in_order:
        return format
    first = "compressed" if format.modes != 2 or set(format.levels) == {"compressed"} else "dense"
    levels = (first, *("compressed",) * (format.modes - 1))
    return Format(levels, tuple(order))


def _sorted(chains: Iterable[Chain], indices: tuple[str, ...]) -> tuple[str, ...] | None:
    """The indices in an order that keeps each chain, and otherwise their own; None where chains contradict."""
    above = {index: set[str]() for index in indices}
    for chain in chains:
        distinct = list(dict.fromkeys(chain))
        for n, index in enumerate(distinct):
            above[index].update(distinct[:n])
    done: list[str] = []
    while len(done) < len(indices):
        ready = next((i for i in indices if i not in done and above[i].issubset(done)), None)
        if ready is None:
            return None
        done.append(ready)
    return tuple(done)
