"""The provenance graph of index variables as text: what each is made from, its values, and how it is recovered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..expressions.loops.provenance import (
    Bound,
    Coord,
    Divide,
    Fuse,
    Graph,
    Pos,
    Relation,
    Split,
    above,
    below,
    maker,
    makes,
)
from ..expressions.terms import Operand
from .nest import Nest


def provenance(nests: Sequence[Nest], operands: Mapping[str, Operand]) -> str:
    """One line for each index and each relation, those of all nests together."""
    loops = {loop.name for nest in nests for each in nest.nests() for loop in each.loops}
    indices: dict[str, None] = {}
    relations: dict[Relation, Graph] = {}
    for nest in nests:
        for each in nest.nests():
            for relation in each.graph:
                relations.setdefault(relation, each.graph)
            for loop in each.loops:
                indices.update(dict.fromkeys(above(each.graph, loop.name)))
    lines = ["variables:"]
    for index in indices:
        lines.append(f"    {index}: 0 <= {index} < |{index}|")
    for relation, graph in relations.items():
        values = ", ".join(f"0 <= {name} < {extent(graph, name)}" for name in makes(relation))
        lines.append(f"    {relation}: {values}{_recovered(relation, graph, loops, operands)}")
    return "\n".join(lines)


def extent(graph: Graph, variable: str, inside: bool = False) -> str:
    """How many values a variable has."""
    match maker(graph, variable):
        case None:
            return f"|{variable}|"
        case Split() as made:
            return str(made.size) if variable == made.inner else f"ceil({extent(graph, made.of)} / {made.size})"
        case Divide() as made:
            return str(made.parts) if variable == made.outer else f"ceil({extent(graph, made.of)} / {made.parts})"
        case Fuse() as made:
            found = f"{extent(graph, made.outer, True)} * {extent(graph, made.inner, True)}"
            return f"({found})" if inside else found
        case Pos() as made:
            indices = ",".join(dict.fromkeys(above(graph, made.of)))
            return f"#{made.access.name}[{indices}]"
        case Coord() as made:
            positions = maker(graph, made.of)
            assert isinstance(positions, Pos)
            return extent(graph, positions.of, inside)
        case Bound() as made:
            return str(made.extent) if made.kind == "exact" else extent(graph, made.of, inside)
    raise AssertionError(variable)


def _recovered(relation: Relation, graph: Graph, loops: set[str], operands: Mapping[str, Operand]) -> str:
    """How the coordinates behind positions are found."""
    if not isinstance(relation, Pos):
        return ""
    indices = list(dict.fromkeys(above(graph, relation.of)))
    parts = list(below(graph, relation.position))
    if len(indices) == 1:
        return f"; {indices[0]} is read where it is stored"
    outer = ", ".join(indices[:-1])
    if parts == [relation.position]:
        return f"; {outer} follow from the loops"
    return f"; {outer} by a search for the first element of a part, and then followed"
