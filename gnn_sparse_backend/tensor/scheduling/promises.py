"""What `bound` says of extents, checked at each call against the operands that are given."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...compiler import number
from ...compiler.language.expr import Expr
from ...frozen import dataclass
from ..expressions.loops.extents import Extents, constant
from ..expressions.loops.provenance import Bound, Graph, Pos, above
from ..expressions.notation import Access
from ..expressions.terms import along
from ..storage.stored import Stored


@dataclass(frozen=True)
class Promise:
    """One `bound`, with the graph in which its variable stands."""

    bound: Bound
    graph: Graph

    def check(self, sizes: Mapping[str, int], operands: Mapping[str, Stored]) -> None:
        """Raise ValueError where it is not true."""
        found = _most(self.graph, self.bound.of, sizes, operands)
        exact = self.bound.kind == "exact"
        if found > self.bound.extent or (exact and found != self.bound.extent):
            raise ValueError(
                f"{self.bound}: {self.bound.of} has {found} values here, and the statement says "
                f"{'that many exactly' if exact else 'that there are no more'}; give another bound, or none"
            )


def _most(graph: Graph, variable: str, sizes: Mapping[str, int], operands: Mapping[str, Stored]) -> int:
    """The most values that a variable has."""

    def count(made: Pos) -> Expr:
        return number(_positions(made.access, set(above(graph, made.of)), operands[made.access.name]))

    found = constant(Extents(graph, lambda index: number(sizes[index]), count).of(variable))
    assert found is not None
    return found


def _positions(access: Access, indices: set[str], operand: Stored) -> int:
    """Most positions that a loop visits: all of the level for several indices, else the longest segment of it."""
    level = operand.structure.levels[max(map(along(access, operand.format).index, indices))]
    if len(indices) > 1:
        return level.positions
    if level.offsets is None:
        return level.width if level.kind == "slots" else 1
    return int(np.max(np.diff(np.asarray(level.offsets)), initial=0))
