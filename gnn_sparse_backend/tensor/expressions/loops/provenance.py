"""Where index variables come from: relations between them, which form a graph (Senanayake et al., OOPSLA 2020, sec. 4).

An index of the expression is a variable that no relation makes. Those that no relation uses are loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

from ....frozen import dataclass
from ..notation import Access


@dataclass(frozen=True)
class Split:
    """`of` in parts of `size`: of = outer * size + inner."""

    of: str
    outer: str
    inner: str
    size: int

    def __str__(self) -> str:
        return f"{self.outer}, {self.inner} = split({self.of}, {self.size})"


@dataclass(frozen=True)
class Divide:
    """`of` cut into `parts` parts, all but the last of ceil(extent / parts)."""

    of: str
    outer: str
    inner: str
    parts: int

    def __str__(self) -> str:
        return f"{self.outer}, {self.inner} = divide({self.of}, {self.parts})"


@dataclass(frozen=True)
class Fuse:
    """Two loops, one right inside the other, as one: fused = outer * extent(inner) + inner."""

    outer: str
    inner: str
    fused: str

    def __str__(self) -> str:
        return f"{self.fused} = fuse({self.outer}, {self.inner})"


@dataclass(frozen=True)
class Pos:
    """Positions of the elements that an access stores, in the place of their coordinates."""

    of: str
    position: str
    access: Access

    def __str__(self) -> str:
        return f"{self.position} = pos({self.of}, {self.access})"


@dataclass(frozen=True)
class Coord:
    """Coordinates again, in the place of positions."""

    of: str
    coordinate: str

    def __str__(self) -> str:
        return f"{self.coordinate} = coord({self.of})"


@dataclass(frozen=True)
class Bound:
    """A variable whose extent is said to be `extent` ("exact"), or no more ("most"); "same": another name of it."""

    of: str
    bounded: str
    extent: int
    kind: str

    def __str__(self) -> str:
        if self.kind == "same":
            return f"{self.bounded} = {self.of}, where the workspace is filled"
        return f"{self.bounded} = bound({self.of}, {self.extent}, {self.kind!r})"


Relation: TypeAlias = Split | Divide | Fuse | Pos | Coord | Bound
Graph: TypeAlias = tuple[Relation, ...]


def makes(relation: Relation) -> tuple[str, ...]:
    """The variables that it makes."""
    match relation:
        case Split() | Divide():
            return relation.outer, relation.inner
        case Fuse():
            return (relation.fused,)
        case Pos():
            return (relation.position,)
        case Coord():
            return (relation.coordinate,)
    return (relation.bounded,)


def uses(relation: Relation) -> tuple[str, ...]:
    """The variables that it is made from."""
    return (relation.outer, relation.inner) if isinstance(relation, Fuse) else (relation.of,)


def maker(graph: Graph, variable: str) -> Relation | None:
    """The relation that makes a variable; None of an index of the expression."""
    return next((relation for relation in graph if variable in makes(relation)), None)


def above(graph: Graph, variable: str, stop: Collection[str] = ()) -> Iterator[str]:
    """The variables that a variable is a part of and that no relation makes, or that are in `stop`."""
    relation = None if variable in stop else maker(graph, variable)
    if relation is None:
        yield variable
        return
    for used in uses(relation):
        yield from above(graph, used, stop)


def ancestors(graph: Graph, variable: str) -> Iterator[str]:
    """The variable, and all that it is a part of."""
    yield variable
    relation = maker(graph, variable)
    for used in () if relation is None else uses(relation):
        yield from ancestors(graph, used)


def below(graph: Graph, variable: str) -> Iterator[str]:
    """The loops that a variable has become."""
    relation = next((relation for relation in graph if variable in uses(relation)), None)
    if relation is None:
        yield variable
        return
    for made in makes(relation):
        yield from below(graph, made)


def variables(graph: Graph) -> Iterator[str]:
    """Every variable that a relation makes or uses."""
    for relation in graph:
        yield from (*uses(relation), *makes(relation))
