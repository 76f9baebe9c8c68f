"""One format rewrite rule, applied to one program: what becomes of its buffers, iterations and expressions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from ..language.axes import Axis, StageIError
from ..language.expr import Const, Expr, Load, Present, Select, Var, as_expr, both, differ
from ..language.program import Buffer, Iteration, Program, Store, loads_in, map_store, stores_in, walk_iterations
from ..language.traversal import map_children
from .index_maps import check_index_maps
from .passes import adds_alone
from .rewrite_rule import FormatRewriteRule

COPY = "copy"

Member = TypeVar("Member")


def once(*groups: Iterable[Member]) -> tuple[Member, ...]:
    """All members of the groups in order, equal ones once."""
    return tuple(dict.fromkeys(member for group in groups for member in group))


class Part:
    """One rule applied to one program."""

    def __init__(self, program: Program, rule: FormatRewriteRule) -> None:
        self.rule, self.program = rule, program
        where = f"rule {rule.name!r}"
        self.before = tuple(program.axis(name) for name in rule.axes_before)
        by_name = {a.name: a for a in (*program.axes, *rule.axes)}
        for name in (*rule.axes_after, *(n for names in rule.axis_map.values() for n in names)):
            if name not in by_name:
                raise StageIError(f"{where}: there is no axis {name!r}")
        self.after = tuple(by_name[name] for name in rule.axes_after)
        self.map = {program.axis(old): tuple(by_name[n] for n in new) for old, new in rule.axis_map.items()}
        mapped = sorted(a.name for new in self.map.values() for a in new)
        if set(self.map) != set(self.before) or mapped != sorted(rule.axes_after):
            raise StageIError(f"{where}: axis_map must take {rule.axes_before} to each of {rule.axes_after} once")
        self.olds = tuple(program.buffer(name) for name in rule.buffers)
        self.new = {
            old: Buffer(f"{old.name}_{rule.name}", self._replaced(old, old.axes, self.after), old.dtype)
            for old in self.olds
        }
        self.mask = Buffer(f"mask_{rule.name}", self.after, "uint8") if rule.masked else None
        self.variables = {axis: Var(axis.name.lower()) for axis in self.after}
        check_index_maps(rule, self.before, self.after)

    def _standing(self, old: Buffer) -> int:
        """Where the axes that are replaced begin among those of a buffer."""
        depth = len(self.before)
        for at in range(len(old.axes) - depth + 1):
            if old.axes[at : at + depth] == self.before:
                return at
        raise StageIError(
            f"rule {self.rule.name!r}: buffer {old.name!r} does not stand on the axes {self.rule.axes_before}"
        )

    def _replaced(self, old: Buffer, members: tuple[Member, ...], new: tuple[Member, ...]) -> tuple[Member, ...]:
        """``members``, one for each axis of an old buffer, with ``new`` in the place of those that are replaced."""
        at = self._standing(old)
        return members[:at] + new + members[at + len(self.before) :]

    def new_buffers(self) -> tuple[Buffer, ...]:
        return (*self.rule.arrays, *self.new.values(), *((self.mask,) if self.mask else ()))

    def _old_coordinates(self) -> tuple[Expr, ...]:
        found = self.rule.inverse_index_map(*(self.variables[a] for a in self.after))
        return tuple(as_expr(e) for e in found)

    def copies(self) -> list[Iteration]:
        """Fill the new buffers, and the mask, from the old ones; an absent element is zero."""
        for axis in self.before:
            if not axis.unique:
                raise StageIError(
                    f"decompose_format: coordinates of axis {axis.name!r} may repeat, and a copy would find only one "
                    f"of them; "
                    f"pass copies=False and fill {', '.join(b.name for b in self.new_buffers())} from the format's "
                    f"value_position"
                )
        at, here = self._old_coordinates(), tuple(self.variables.values())
        out = []
        for old, new in self.new.items():
            rest = tuple(Var(f"{a.name.lower()}_{self.rule.name}") for a in old.axes)
            variables = self._replaced(old, rest, here)
            store = Store(new, variables, Load(old, self._replaced(old, rest, at)))
            axes = new.axes
            out.append(Iteration(f"{COPY}_{new.name}", axes, "S" * len(axes), variables, (), (store,)))
        if self.mask:
            first = self.olds[0]
            zeros: tuple[Expr, ...] = tuple(Const(0, "int64") for _ in first.axes)
            there = Present(Load(first, self._replaced(first, zeros, at)))
            value = Select(there, Const(1, "int64"), Const(0, "int64"))
            store = Store(self.mask, here, value)
            out.append(Iteration(f"{COPY}_{self.mask.name}", self.after, "S" * len(self.after), here, (), (store,)))
        return out

    def concerns(self, it: Iteration, at: Collection[Axis]) -> bool:
        """Whether the iteration has to do with the old buffers, or visits the old axes and no other buffer on them. at:
        axes that are visited around it.
        """
        touched = {load.buffer for load in loads_in((it,))} | {store.buffer for store in stores_in((it,))}
        if touched & set(self.olds):
            return True
        visited = {*at, *(a for each in walk_iterations((it,)) for a in each.axes)}
        others = {a for b in touched for a in b.axes if a.is_sparse}
        return set(self.before) <= visited and not others & set(self.before)

    def replaces(self, axes: Collection[Axis]) -> bool:
        """Whether one of the axes is replaced by others."""
        return any(a in axes and self.map[a] != (a,) for a in self.before)

    def visited(self, at: dict[Axis, Var]) -> dict[Axis, Var]:
        """The iterators of old axes among those that are visited around an iteration, which the rule leaves as they
        are.
        """
        mine = {a: var for a, var in at.items() if a in self.before}
        self.variables |= {a: var for a, var in mine.items() if a in self.variables}
        return mine

    def moved(self, it: Iteration, rules: Sequence[FormatRewriteRule]) -> list[Axis]:
        """The axes that passes over the rows of the iteration visit different elements of."""
        moved = [a for a in self.before if self.map[a] != (a,)]
        inside = [a for a in moved if a not in it.axes]
        if set(moved) & set(it.axes) and not all(rule.whole for rule in rules) and not adds_alone(it, inside):
            raise StageIError(
                f"decompose_format: iteration {it.name!r} does not visit the axes {self.rule.axes_before} itself; "
                "pass disjoint=True where each row is stored whole by one rule"
            )
        return inside

    def compute(self, it: Iteration, at: dict[Axis, Var], locals_: dict[Buffer, Buffer]) -> Iteration:
        """The iteration, and those in it, over the new axes in place of the old ones.

        at: iterators of the old axes that enclosing iterations visit. locals_: their local buffers, and those of the
        part.
        """
        mine = tuple(a for a in self.before if a in it.axes)
        if mine and it.fused:
            raise StageIError(f"decompose_format: iteration {it.name!r} is fused; decompose first")
        for local in it.locals:
            if set(self.before) & set(local.axes):
                raise StageIError(f"decompose_format: local buffer {local.name!r} stands on an axis that is replaced")
        at = at | {a: it.variable(a) for a in mine}
        locals_ = locals_ | {b: replace(b, name=f"{b.name}_{self.rule.name}") for b in it.locals}
        kind_of = dict(zip(it.axes, it.kinds)) | {new: it.kinds[it.axes.index(a)] for a in mine for new in self.map[a]}
        new = tuple(a for a in self.after if any(a in self.map[old] for old in mine))
        axes = once(*(new if axis in mine else (axis,) for axis in it.axes))
        change = self._change(it, at, locals_)
        where = self._inside(mine, at) + ([] if it.where is None else [change(it.where)])
        return Iteration(
            f"{it.name}_{self.rule.name}",
            axes,
            "".join(kind_of[a] for a in axes),
            tuple(self.variables[a] if a in new else it.variable(a) for a in axes),
            tuple(map_store(s, change) for s in it.init),
            tuple(self.compute(s, at, locals_) if isinstance(s, Iteration) else map_store(s, change) for s in it.body),
            tuple(locals_[b] for b in it.locals),
            it.fused,
            functools.reduce(both, where) if where else None,
        )

    def _inside(self, mine: tuple[Axis, ...], at: Collection[Axis]) -> list[Expr]:
        """Conditions for what is no element of the matrix: padding of a block, and rows beyond the last."""
        if self.mask is None or not mine:
            return []
        if len(at) == len(self.before):
            return [differ(Load(self.mask, self._here()), 0)]
        old = dict(zip(self.before, self._old_coordinates()))
        return [old[a] < as_expr(a.length) for a in mine if not a.is_sparse]

    def _change(self, it: Iteration, at: dict[Axis, Var], locals_: dict[Buffer, Buffer]) -> Callable[[Expr], Expr]:
        """An expression of an iteration, in terms of what takes the place of old iterators and buffers."""
        coordinate = {at[a]: e for a, e in zip(self.before, self._old_coordinates()) if a in at}

        def change(expr: Expr) -> Expr:
            if isinstance(expr, Var):
                return coordinate.get(expr, expr)
            if not isinstance(expr, Load):
                return map_children(expr, change)
            kids: tuple[Expr, ...] = tuple(map(change, expr.indices))
            if expr.buffer not in self.new:
                repeated = [a.name for a in expr.buffer.axes if a in self.before and not a.unique]
                if repeated:
                    raise StageIError(
                        f"decompose_format: {it.name!r} would look {expr.buffer.name!r} up by coordinates, which may "
                        f"repeat on axis {repeated[0]!r}; name the buffer in the rules"
                    )
                return Load(locals_.get(expr.buffer, expr.buffer), kids)
            start = self._standing(expr.buffer)
            if expr.indices[start : start + len(self.before)] != tuple(at.get(a) for a in self.before):
                raise StageIError(
                    f"decompose_format: {it.name!r} reads {expr.buffer.name!r} by other indices than its iterators"
                )
            return Load(self.new[expr.buffer], self._replaced(expr.buffer, kids, self._here()))

        return change

    def _here(self) -> tuple[Expr, ...]:
        """Indices of the new element that is visited."""
        return tuple(self.variables.values())
