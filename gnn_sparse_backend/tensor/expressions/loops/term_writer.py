"""The loops of one product of a statement."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from ....compiler import Axis, both, differ, equal, number
from ....compiler.language.expr import Expr, Var
from ....frozen import dataclass
from ..declared import Declared
from ..notation import Access
from ..terms import Term, along


@dataclass(frozen=True)
class Loop:
    """One loop of a term: the axis, its kind, and what its variable is called."""

    axis: Axis
    kind: str
    name: str


class TermWriter:
    """The loops of one product."""

    def __init__(self, writer: Declared, term: Term, at: int) -> None:
        self.w, self.p, self.term, self.at = writer, writer.p, term, at
        self.format = writer.operands[term.sparse.name].format if term.sparse else None
        self.axes = writer.structure(term.sparse.name) if term.sparse else None
        result = writer.statement.result.indices
        self.sparse_loops = self.loops_of_structure(result)
        bound = set(term.sparse.indices) if term.sparse else set()
        others = [*result, *(index for index in term.indices if index not in result)]
        self.free = [self.dense_loop(index, "S") for index in others if index in result and index not in bound]
        self.reduced = [self.dense_loop(index, "R") for index in others if index not in result and index not in bound]
        if not self.sparse_loops + self.free + self.reduced:
            self.free = [Loop(writer.one, "S", writer.variable("one"))]
        self.repeated = term.sparse is not None and len(bound) < len(term.sparse.indices)
        self.conditional = self.repeated or bool(self.format and self.format.masked)
        self.covers = self.covers_result(result, bound)

    def dense_loop(self, index: str, kind: str) -> Loop:
        return Loop(self.w.index_axes[index], kind, self.w.variable(index))

    def loops_of_structure(self, result: tuple[str, ...]) -> list[Loop]:
        if self.axes is None or self.format is None or self.term.sparse is None:
            return []
        given = along(self.term.sparse, self.format)
        if self.format.block is not None:
            kinds = ["S" if index in result else "R" for index in given * 2]
            names = [*(f"{index}b" for index in given), *(f"{index}i" for index in given)]
        elif self.format.diagonals:
            kinds = ["S" if set(given) <= set(result) else "R", "S" if given[0] in result else "R"]
            names = ["d", given[0]]
        else:
            kinds = ["S" if index in result and index not in given[:n] else "R" for n, index in enumerate(given)]
            names = list(given)
        if self.axes.merged > 1:
            kinds, names = ["S", *kinds[self.axes.merged :]], ["element", *names[self.axes.merged :]]
        once = [self.w.variable(name) if name not in names[:n] else self.w.fresh(name) for n, name in enumerate(names)]
        loops = [Loop(axis, kind, name) for axis, kind, name in zip(self.axes.levels, kinds, once)]
        return loops if self.axes.root is None else [Loop(self.axes.root, "S", self.w.variable("root")), *loops]

    def covers_result(self, result: tuple[str, ...], bound: set[str]) -> bool:
        """Whether every element of the result is visited, by spatial loops that find nothing else."""
        if self.conditional:
            return False
        if self.w.kept is not None:
            return "slots" not in self.w.kept.format.levels
        spatial = [loop.axis for loop in self.sparse_loops if loop.kind == "S"]
        return all(axis.kind.startswith("dense") and axis.parent in (None, *spatial) for axis in spatial)

    # The element being visited.

    def coordinates(self, variables: Mapping[Axis, Var]) -> tuple[dict[str, Expr], list[Expr]]:
        """(what each index is, the conditions under which the element counts)."""
        at: dict[str, Expr] = {index: variables[axis] for index, axis in self.w.index_axes.items() if axis in variables}
        conditions: list[Expr] = []
        if self.axes is None or self.format is None or self.term.sparse is None:
            return at, conditions
        given = along(self.term.sparse, self.format)
        if not self.format.masked:
            levels = self.axes.with_coordinates(given)
            found: list[tuple[str, Expr]] = [(index, variables[axis]) for axis, index in levels if axis in variables]
        else:
            if not all(axis in variables for axis in self.axes.levels):
                return at, conditions
            at_level = [variables[axis] for axis in self.axes.levels]
            if self.format.block is not None:
                sides = [self.format.block[mode] for mode in self.format.modes_in_order]
                here = [at_level[n] * sides[n] + at_level[n + 2] for n in range(2)]
            else:
                rows = self.w.index_axes[given[0]].length
                here = [at_level[1], at_level[0] + at_level[1] - (number(rows) - 1)]
            found = list(zip(given, here))
            values = self.w.mask_of[self.w.operands[self.term.sparse.name].structure]
            conditions.append(differ(values[tuple(variables[axis] for axis in self.axes.all)], 0))
        for index, expr in found:
            if index in at:
                conditions.append(equal(expr, at[index]))
            else:
                at[index] = expr
        return at, conditions

    def element(self, access: Access, at: Mapping[str, Expr], variables: Mapping[Axis, Var]) -> Expr:
        """What an access reads."""
        operand = self.w.operands[access.name]
        if operand.pattern:
            return self.w.constant(1)
        if operand.is_sparse:
            assert self.axes is not None
            return self.w.buffers[access.name][tuple(variables[axis] for axis in self.axes.all)]
        return self.w.buffers[access.name][tuple(at[index] for index in along(access, operand.format))]

    def place(self, at: Mapping[str, Expr], variables: Mapping[Axis, Var]) -> tuple[Expr, ...]:
        """The element of the result."""
        kept = self.w.kept
        if kept is None:
            return tuple(at[index] for index in self.w.statement.result.indices)
        return tuple(variables[axis] for axis in self.w.result.value.axes)

    def store(self, place: tuple[Expr, ...], x: Expr, assign: bool) -> None:
        """Write an element of the result, or add to it."""
        if assign:
            self.w.result[place] = x
        else:
            self.w.accumulate(self.w.result, place, x)

    # Loops.

    def fused(self, loops: list[Loop]) -> tuple[tuple[Axis, ...], ...]:
        """The root of length 1 and what hangs on it are one loop, which can be shared out to threads."""
        first = [loop.axis for loop in loops[:2]]
        one = len(first) == 2 and first[1].parent == first[0] and first[0] is (self.axes and self.axes.root)
        return (tuple(first),) if one and {loop.kind for loop in loops[:2]} == {"S"} else ()

    def emit(self, assign: bool) -> None:
        """Write one iteration over all loops. assign: the result is written; otherwise it is added to."""
        loops = [*self.sparse_loops, *self.free[:-1], *self.reduced, *self.free[-1:]]
        kinds = "".join(loop.kind for loop in loops)
        names = [loop.name for loop in loops]
        w, visited = self.w, [loop.axis for loop in loops]
        with self.p.iterate(w.fresh(f"term{self.at}"), visited, kinds, names, self.fused(loops)) as found:
            variables = dict(zip(visited, found))
            at, conditions = self.coordinates(variables)
            place = self.place(at, variables)
            if assign and "R" in kinds:
                with self.p.init():
                    w.result[place] = w.zero
            if conditions:
                self.p.where(reduce(both, conditions))
            x = w.product(self.term, lambda access: self.element(access, at, variables))
            self.store(place, x, assign and "R" not in kinds)
