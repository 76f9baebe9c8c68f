"""Where the elements of sparse operands are: their axes, and what is known of them at one place among the loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from ....compiler import Axis, begin_of, end_of, number
from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr
from ....frozen import dataclass
from ...errors import ScheduleError
from ..axes import LevelAxes, axes
from ..declared import Declared
from ..notation import Access
from ..terms import Term, along, sparse_accesses
from .counters import Counters, elements_of
from .extents import Extents
from .provenance import Graph, Pos, above

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
        together: operands are walked together in a loop around.
        settled: sums of what is inside are kept in a register already.
        sinks: where an assignment to a tensor adds to.
        alone: a loop around runs in lanes, and no other loop may be in it.
    """

    known: Mapping[str, Expr] = field(default_factory=dict)
    visited: Mapping[Key, tuple[Expr, ...]] = field(default_factory=dict)
    direct: Mapping[Axis, Expr] = field(default_factory=dict)
    inside: bool = False
    together: bool = False
    settled: bool = False
    sinks: Mapping[str, Callable[[Env], tuple[Any, tuple[Expr, ...]]]] = field(default_factory=dict)
    workspaces: Mapping[str, Any] = field(default_factory=dict)
    alone: str = ""

    def knowing(self, known: Mapping[str, Expr]) -> Env:
        """Return a copy in which the values of more variables are known."""
        return replace(self, known={**self.known, **known})

    def visiting(self, key: Key, at: Expr) -> Env:
        """Return a copy in which one more axis of a structure is visited."""
        return replace(self, visited={**self.visited, key: (*self.visited.get(key, ()), at)})


class Places:
    """The axes of sparse operands in a program that is being written.

    Attributes:
        units: the unit of each loop that has one, by name.
    """

    def __init__(self, writer: Declared, terms: Sequence[Term]) -> None:
        self.w, self.p = writer, writer.p
        self.units: list[tuple[str, str]] = []
        self.axes: dict[Key, LevelAxes] = {}
        self.buffers: dict[Access, BufferHandle] = {}
        self.counters = Counters(writer)
        for access in sparse_accesses(terms, writer.operands):
            self._declare(access)

    def _declare(self, access: Access) -> None:
        operand, key = self.w.operands[access.name], self.key(access)
        if key not in self.axes:
            prefix, length = self.w.prefix(f"W{len(self.axes)}_"), partial(self._length, key)
            made = axes(self.p, prefix, operand.format, operand.index_dtype, operand.widths, length)
            self.axes[key] = made
            self.w.take(operand.structure, made)
        if not operand.pattern:
            self.buffers[access] = self.w.buffer(access.name, self.axes[key].all)

    def _length(self, key: Key, level: int) -> Axis:
        return self.w.index_axes[key[1][level]]

    def is_sparse(self, access: Access) -> bool:
        """Whether an access reads a sparse operand."""
        return access.name in self.w.operands and self.w.operands[access.name].is_sparse

    def key(self, access: Access) -> Key:
        """What an access shares with others of the same structure and indices."""
        operand = self.w.operands[access.name]
        return operand.structure, along(access, operand.format)

    def depth(self, key: Key, env: Env) -> int:
        """How many levels of a structure are visited; -1 where that above the first is not."""
        return len(env.visited.get(key, ())) - self.axes[key].roots

    def next(self, key: Key, env: Env) -> Axis:
        """The outermost axis of a structure that is not visited."""
        return self.axes[key].all[len(env.visited.get(key, ()))]

    def place(self, key: Key, levels: int, env: Env) -> tuple[Expr, ...]:
        """What stands for the first levels of a structure in an access: what visits them, else their coordinates."""
        roots = self.axes[key].roots
        found = env.visited.get(key, ())[: roots + levels]
        if len(found) < roots:
            found = (number(0),)
        return (*found, *(env.known[index] for index in key[1][len(found) - roots : levels]))

    def element(self, access: Access, env: Env) -> Expr:
        """What an access reads."""
        if self.is_sparse(access):
            key = self.key(access)
            return self.buffers[access][self.place(key, len(key[1]), env)]
        format = self.w.operands[access.name].format
        return self.w.buffers[access.name][tuple(env.known[index] for index in along(access, format))]

    # Extents.

    def level(self, graph: Graph, made: Pos) -> tuple[Key, int, bool]:
        """The structure, the level of it whose positions are meant, and whether they are those of all its elements."""
        key = self.key(made.access)
        indices = set(above(graph, made.of))
        return key, max(n for n, index in enumerate(key[1]) if index in indices), len(indices) > 1

    def count(self, graph: Graph, made: Pos, env: Env) -> Expr:
        """How many positions a relation speaks of."""
        key, level, fused = self.level(graph, made)
        axis = self.axes[key].levels[level]
        if fused or not level:  # nothing is above that has more than one element
            return elements_of(axis)
        unknown = [index for index in key[1][:level] if index not in env.known]
        if unknown:
            raise ScheduleError(
                f"pos({made.of}, {made.position}, {made.access}): how many positions {made.position} has depends on "
                f"{', '.join(unknown)}; reorder the loops so that those over {made.position} and its parts are inside"
            )
        parents = self.place(key, level, env)
        return end_of(axis, *parents) - begin_of(axis, *parents)

    def extents(self, graph: Graph, env: Env) -> Extents:
        """Extents of all variables, where some are known."""
        return Extents(
            graph,
            lambda index: number(self.w.index_axes[index].length),
            lambda made: self.count(graph, made, env),
        )
