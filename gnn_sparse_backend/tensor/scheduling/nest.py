"""Statements as loops: concrete index notation, in which a nest ends in an assignment or in the use of a workspace
(Kjolstad et al., "Tensor Algebra Compilation with Workspaces", CGO 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...frozen import dataclass
from ..expressions.loops.loops import Loop
from ..expressions.loops.provenance import Graph
from ..expressions.notation import Access, Expression, Number, Operation, written
from ..expressions.terms import Term


@dataclass(frozen=True)
class Assign:
    """A product, added to an element of the result or of a workspace."""

    target: Access
    term: Term

    def __str__(self) -> str:
        return f"{self.target} += {written(expression_of(self.term))}"


@dataclass(frozen=True)
class Where:
    """`producers` add to a workspace, `consumer` reads it. workspace: its name, and its indices in the consumer."""

    consumer: Nest
    producers: tuple[Nest, ...]
    workspace: Access


@dataclass(frozen=True)
class Nest:
    """Loops, outermost first, around what they do. graph: of all variables that are known in it."""

    loops: tuple[Loop, ...]
    body: Assign | Where
    graph: Graph = ()

    @property
    def parts(self) -> tuple[Nest, ...]:
        """The nests directly inside."""
        return (*self.body.producers, self.body.consumer) if isinstance(self.body, Where) else ()

    def nests(self) -> Iterator[Nest]:
        """This one and all inside, outer ones first."""
        yield self
        for part in self.parts:
            yield from part.nests()

    def assigns(self) -> Iterator[Assign]:
        """Every assignment inside."""
        yield from (nest.body for nest in self.nests() if isinstance(nest.body, Assign))

    def everywhere(self) -> frozenset[Access]:
        """The accesses that all inside is multiplied by: those of a producer are not where others add to the same."""
        if isinstance(self.body, Assign):
            return frozenset(self.body.term.accesses)
        shared = [part.everywhere() for part in self.body.producers]
        return self.body.consumer.everywhere() | shared[0].intersection(*shared[1:])

    def holds(self, loop: str) -> bool:
        """Whether it has a loop of this name itself."""
        return any(each.name == loop for each in self.loops)

    def changed(self, change: Callable[[Nest], Nest]) -> Nest:
        """The nest with `change` applied to all inside, inner ones first."""
        if isinstance(self.body, Where):
            producers = tuple(each.changed(change) for each in self.body.producers)
            where = replace(self.body, consumer=self.body.consumer.changed(change), producers=producers)
            return change(replace(self, body=where))
        return change(self)

    def text(self, indent: str = "") -> list[str]:
        """Lines of the nest as text."""
        lines = []
        for loop in self.loops:
            lines.append(indent + str(loop))
            indent += "    "
        if isinstance(self.body, Assign):
            return [*lines, indent + str(self.body)]
        lines.append(f"{indent}{self.body.workspace.name}[...] = 0")
        return [*lines, *(line for part in self.parts for line in part.text(indent))]


def expression_of(term: Term) -> Expression:
    """A product as an expression."""
    factors = [factor for factor in term.factors if not factor.inverse]
    found: Expression | None = None
    if term.coefficient != 1 or not factors:
        found = Number(term.coefficient)
    for factor in factors:
        found = factor.of if found is None else Operation("*", found, factor.of)
    assert found is not None
    for factor in term.factors:
        if factor.inverse:
            found = Operation("/", found, factor.of)
    return found
