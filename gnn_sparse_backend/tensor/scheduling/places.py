"""Where the elements of sparse operands are: which axes a loop visits, and how those are found that it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...compiler import Axis, begin_of, end_of
from ...compiler.language.builder import BufferHandle
from ...compiler.language.expr import Expr
from ..errors import ScheduleError
from ..expressions.axes import LevelAxes, axes
from ..expressions.declared import Declared
from ..expressions.loops.counters import Counters, elements_of
from ..expressions.loops.provenance import Graph, Pos, above
from ..expressions.notation import Access
from ..expressions.terms import Term, along

Key = tuple[int, tuple[str, ...]]
"""A structure, and the index of each of its levels: operands that share both are visited together."""


@dataclass(frozen=True)
class Env:
    """What is known at one place among the loops.

    Attributes:
        known: the values of variables.
        visited: of the axes of operands, outermost first, what stands for them in an access.
        direct: axes that an iteration around visits, by its variable.
        inside: there is a loop around.
        settled: sums of what is inside are kept in a register already.
        sinks: where an assignment to a tensor adds to.
        alone: a loop around runs in lanes, and no other loop may be in it.
    """

    known: Mapping[str, Expr] = field(default_factory=dict)
    visited: Mapping[Key, tuple[Expr, ...]] = field(default_factory=dict)
    direct: Mapping[Axis, Expr] = field(default_factory=dict)
    inside: bool = False
    settled: bool = False
    sinks: Mapping[str, Callable[[Env], tuple[Any, tuple[Expr, ...]]]] = field(default_factory=dict)
    workspaces: Mapping[str, Any] = field(default_factory=dict)
    alone: str = ""

    def replaced(self, **parts: Any) -> Env:
        """Return a copy with some of its parts replaced."""
        return replace(self, **parts)

    def knowing(self, known: Mapping[str, Expr]) -> Env:
        return replace(self, known={**self.known, **known})


Then = Callable[[Env], None]
Between = Callable[[Env, Then], None]
"""What is asked between two loops that one variable stands for."""


class Places:
    """The axes of sparse operands in a program that is being written, and the loops over them.

    units: the unit of each loop that has one, by name.
    """

    def __init__(self, writer: Declared, terms: Sequence[Term], units: list[tuple[str, str]]) -> None:
        self.w, self.p, self.units = writer, writer.p, units
        self.axes: dict[Key, LevelAxes] = {}
        self.buffers: dict[Access, BufferHandle] = {}
        self.counters = Counters(writer)
        for access in (a for term in terms for a in self.sparse(term)):
            key = self.key(access)
            operand = self.w.operands[access.name]
            if key not in self.axes:
                prefix = self.w.fresh(f"W{len(self.axes)}_")
                self.axes[key] = axes(
                    self.p,
                    prefix,
                    operand.format,
                    operand.index_dtype,
                    operand.widths,
                    partial(self._length, key),
                )
                self.w.take(operand.structure, self.axes[key])
            if access not in self.buffers:
                self.buffers[access] = self.w.buffer(access.name, self.axes[key].all)

    def _length(self, key: Key, level: int) -> Axis:
        return self.w.index_axes[key[1][level]]

    def sparse(self, term: Term) -> list[Access]:
        """The accesses of a term that read sparse operands."""
        return [a for a in term.accesses if self.is_sparse(a)]

    def is_sparse(self, access: Access) -> bool:
        """Whether an access reads a sparse operand."""
        return access.name in self.w.operands and self.w.operands[access.name].is_sparse

    def key(self, access: Access) -> Key:
        """What an access shares with others of the same structure and indices."""
        operand = self.w.operands[access.name]
        return operand.structure, along(access, operand.format)

    def element(self, access: Access, env: Env) -> Expr:
        """What an access reads, of the element that is visited."""
        return self.buffers[access][env.visited[self.key(access)]]

    # Extents.

    def level(self, graph: Graph, made: Pos) -> tuple[Key, int, bool]:
        """The structure, the axis of it whose positions are meant, and whether they are those of all its elements."""
        key = self.key(made.access)
        indices = list(dict.fromkeys(above(graph, made.of)))
        last = max(n for n, index in enumerate(key[1]) if index in indices)
        return key, self.roots(key) + last, len(indices) > 1

    def roots(self, key: Key) -> int:
        """How many axes of one element are above the levels of a structure."""
        return len(self.axes[key].all) - len(self.axes[key].levels)

    def count(self, graph: Graph, made: Pos, env: Env) -> Expr:
        """How many positions a relation speaks of."""
        key, level, fused = self.level(graph, made)
        axis = self.axes[key].all[level]
        if fused or level <= self.roots(key):  # nothing is above that has more than one element
            return elements_of(axis)
        parents = env.visited.get(key, ())[:level]
        if len(parents) < level:
            outer = ", ".join(key[1][: level - self.roots(key)])
            raise ScheduleError(
                f"pos({made.of}, {made.position}, {made.access}): how many positions {made.position} has depends on "
                f"{outer}; reorder the loops so that those over {made.position} and its parts are inside"
            )
        return end_of(axis, *parents) - begin_of(axis, *parents)
