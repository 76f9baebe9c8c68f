"""Commands on nests, each with its preconditions: what it makes of every nest that has its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from ...compiler.language.program import Iteration, Program
from ...compiler.schedules.primitives.shared.whole import most_of
from ..errors import ScheduleError
from ..expressions.loops.loops import Loop
from ..expressions.loops.provenance import (
    Bound,
    Coord,
    Divide,
    Fuse,
    Pos,
    Relation,
    Split,
    above,
    ancestors,
    maker,
    makes,
    uses,
    variables,
)
from ..expressions.notation import Access
from ..expressions.terms import Operand, along
from ..storage.values import integer
from .nest import Nest

UNITS = ("threads", "lanes", "block", "warp", "thread")
RACES = ("none", "atomics", "temporary", "parallel_reduction")
GPU = ("block", "warp", "thread")
MOST_UNROLLED = 256
"""Copies of a body that unrolled loops may make together: with twice as many, compiling takes half a minute."""
Nests = tuple[Nest, ...]


def refuse(command: str, reason: str) -> NoReturn:
    """Raise ScheduleError."""
    raise ScheduleError(f"{command}: {reason}")


def names_of(command: str, given: object) -> tuple[str, ...]:
    """One name, or several; refused where it is neither."""
    if not isinstance(given, (str, list, tuple)):
        refuse(command, "variables are a name, or several in a tuple")
    names = (given,) if isinstance(given, str) else tuple(given)
    texts(command, *names)
    return names


def texts(command: str, *given: object) -> None:
    """Refuse what is no text where a name is wanted."""
    for each in given:
        if not isinstance(each, str):
            refuse(command, f"{each!r:.60} is no name; names are texts such as 'i'")


def fresh(command: str, nests: Nests, names: Sequence[str], taken: Iterable[str]) -> None:
    """Refuse names that are none, or that something has."""
    known = {*taken, *(loop.name for nest in nests for each in nest.nests() for loop in each.loops)}
    known |= {name for nest in nests for each in nest.nests() for name in variables(each.graph)}
    for n, name in enumerate(names):
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            refuse(command, f"{name!r} is no name of a variable; give letters, digits and _, such as 'i0'")
        if name in known or name in names[:n]:
            refuse(command, f"there is a {name!r} already; choose another name")


def with_loops(command: str, nests: Nests, names: Sequence[str], change: Callable[[Nest], Nest]) -> Nests:
    """The nests with `change` applied to those that have all of these loops, which some must."""
    hit = 0

    def visit(nest: Nest) -> Nest:
        nonlocal hit
        if not all(nest.holds(name) for name in names):
            return nest
        hit += 1
        return change(nest)

    found = tuple(nest.changed(visit) for nest in nests)
    if not hit:
        loops = dict.fromkeys(loop.name for nest in nests for each in nest.nests() for loop in each.loops)
        for name in names:
            if name not in loops:
                relation = next((r for n in nests for e in n.nests() for r in e.graph if name in uses(r)), None)
                became = f"; it became {', '.join(makes(relation))}" if relation is not None else ""
                refuse(command, f"there is no loop over {name!r}{became}. There are loops over {', '.join(loops)}")
        refuse(
            command,
            f"the loops over {' and '.join(map(repr, names))} are in no nest together; give loops of one",
        )
    return found


def related(nest: Nest, relation: Relation) -> Nest:
    """The nest, and those in it, knowing a relation."""
    inside = nest.changed(lambda each: replace(each, graph=(*each.graph, relation)))
    return inside


def put(nest: Nest, old: Sequence[str], new: Sequence[str]) -> Nest:
    """The nest with loops in the place of others, which stand one after the other."""
    at = next(n for n, loop in enumerate(nest.loops) if loop.name == old[0])
    loops = (*nest.loops[:at], *map(Loop, new), *nest.loops[at + len(old) :])
    return replace(nest, loops=loops)


def plain(command: str, nest: Nest, name: str) -> None:
    """Refuse a loop that is on a unit: what it is cut into would not know which."""
    loop = next(loop for loop in nest.loops if loop.name == name)
    if loop.unit:
        refuse(command, f"{name} is on {loop.unit} already; give this command before parallelize or unroll")


def number(command: str, what: str, value: Any) -> int:
    """A positive number, of Python or of NumPy; refused where it is none."""
    found = None if isinstance(value, bool) else integer(value)
    if found is None or found < 1:
        refuse(command, f"{what} is a positive number, not {value!r}")
    return found


def split(nests: Nests, i: str, outer: str, inner: str, size: int, taken: Iterable[str]) -> Nests:
    command = f"split({i}, {outer}, {inner}, {size})"
    size = number(command, "the size of a part", size)
    return _cut(command, nests, Split(i, outer, inner, size), taken)


def divide(nests: Nests, i: str, outer: str, inner: str, parts: int, taken: Iterable[str]) -> Nests:
    command = f"divide({i}, {outer}, {inner}, {parts})"
    parts = number(command, "the number of parts", parts)
    return _cut(command, nests, Divide(i, outer, inner, parts), taken)


def _cut(command: str, nests: Nests, cut: Split | Divide, taken: Iterable[str]) -> Nests:
    """One loop as two."""
    fresh(command, nests, (cut.outer, cut.inner), taken)

    def change(nest: Nest) -> Nest:
        plain(command, nest, cut.of)
        return related(put(nest, (cut.of,), (cut.outer, cut.inner)), cut)

    return with_loops(command, nests, (cut.of,), change)


def fuse(nests: Nests, i: str, j: str, fused: str, taken: Iterable[str]) -> Nests:
    command = f"fuse({i}, {j}, {fused})"
    fresh(command, nests, (fused,), taken)

    def change(nest: Nest) -> Nest:
        names = [loop.name for loop in nest.loops]
        if names.index(j) != names.index(i) + 1:
            between = names[names.index(i) + 1 : names.index(j)]
            why = f"{', '.join(between)} stand between" if between else f"{j} is around {i}"
            refuse(command, f"the loop over {j} is not right inside of that over {i}: {why}; reorder them")
        for name in (i, j):
            plain(command, nest, name)
            if any(isinstance(maker(nest.graph, each), Pos) for each in ancestors(nest.graph, name)):
                refuse(command, f"{name} counts positions; fuse coordinates first, and take pos of what comes out")
        return related(put(nest, (i, j), (fused,)), Fuse(i, j, fused))

    return with_loops(command, nests, (i, j), change)


def pos(nests: Nests, i: str, p: str, access: Access, operands: Mapping[str, Operand], taken: Iterable[str]) -> Nests:
    command = f"pos({i}, {p}, {access})"
    fresh(command, nests, (p,), taken)
    operand = operands.get(access.name)
    if operand is None or not operand.is_sparse:
        refuse(command, f"{access.name} is {'dense' if operand else 'no operand'}; positions are those of a sparse one")
    stored = along(access, operand.format)

    def change(nest: Nest) -> Nest:
        plain(command, nest, i)
        if not any(access in each.term.accesses for each in nest.assigns()):
            return nest
        if access not in nest.everywhere():
            refuse(
                command,
                f"another product adds to the workspace under {i}, and is not multiplied by {access}; cut coordinates",
            )
        whole(command, nest, i)
        indices = list(above(nest.graph, i))
        for index in indices:
            if index not in stored:
                refuse(command, f"{index} is no index of {access}; take pos of {', '.join(access.indices)}")
        at = [stored.index(index) for index in indices]
        kinds = [operand.format.levels[n] for n in at]
        if len(at) > 1 and at != list(range(len(at))):
            refuse(
                command,
                f"{access.name} stores {', '.join(stored)} in this order; positions are those of its first levels "
                f"together, or of one, not of {', '.join(indices)}",
            )
        if kinds[-1] == "dense":
            refuse(command, f"{access.name} stores {indices[-1]} densely: its positions are its coordinates already")
        return related(put(nest, (i,), (p,)), Pos(i, p, access))

    found = with_loops(command, nests, (i,), change)
    if found == nests:
        refuse(command, f"{access} is not read under the loop over {i}; take an access of its products")
    return found


def whole(command: str, nest: Nest, i: str) -> None:
    """Refuse a part of an index: its positions are not side by side."""
    made = maker(nest.graph, i)
    if isinstance(made, Fuse):
        whole(command, nest, made.outer)
        whole(command, nest, made.inner)
    elif isinstance(made, (Bound, Coord)):
        whole(command, nest, made.of)
    elif isinstance(made, Pos):
        refuse(command, f"{i} counts positions of {made.access} already; lead back by coord({i}, ...) first")
    elif isinstance(made, (Split, Divide)):
        refuse(command, f"{i} is a part of {made.of}; take pos({made.of}, ...) first and cut what comes out")


def coord(nests: Nests, p: str, i: str, taken: Iterable[str]) -> Nests:
    command = f"coord({p}, {i})"
    fresh(command, nests, (i,), taken)

    def change(nest: Nest) -> Nest:
        plain(command, nest, p)
        made = maker(nest.graph, p)
        if not isinstance(made, Pos):
            refuse(command, f"{p} does not count positions; coord leads back from what pos made, before it is cut up")
        return related(put(nest, (p,), (i,)), Coord(p, i))

    return with_loops(command, nests, (p,), change)


def bound(nests: Nests, i: str, bounded: str, extent: int, kind: str, taken: Iterable[str]) -> Nests:
    command = f"bound({i}, {bounded}, {extent}, {kind!r})"
    extent = number(command, "the extent", extent)
    if kind not in ("exact", "most"):
        refuse(command, f"the kind is 'exact' or 'most', not {kind!r}")
    fresh(command, nests, (bounded,), taken)

    def change(nest: Nest) -> Nest:
        plain(command, nest, i)
        if kind == "exact" and any(
            not isinstance(maker(nest.graph, each), Bound) for each in list(ancestors(nest.graph, i))[:-1]
        ):
            refuse(command, f"{i} is no index of the expression; an exact extent is one of an index, others follow")
        return related(put(nest, (i,), (bounded,)), Bound(i, bounded, extent, kind))

    return with_loops(command, nests, (i,), change)


def reorder(nests: Nests, order: Sequence[str]) -> Nests:
    command = f"reorder({', '.join(order)})"
    if len(order) < 2 or len(set(order)) < len(order):
        refuse(command, "give at least two loops, each once, from the outermost on")

    def change(nest: Nest) -> Nest:
        places = sorted(n for n, loop in enumerate(nest.loops) if loop.name in order)
        by_name = {loop.name: loop for loop in nest.loops}
        loops = list(nest.loops)
        for n, name in zip(places, order):
            loops[n] = by_name[name]
        return replace(nest, loops=tuple(loops))

    return with_loops(command, nests, order, change)


def parallelize(nests: Nests, i: str, unit: str, race: str) -> Nests:
    command = f"parallelize({i}, {unit!r}, {race!r})"
    if unit not in UNITS:
        refuse(command, f"unit {unit!r} is not one of {', '.join(map(repr, UNITS))}")
    if race not in RACES:
        refuse(command, f"race strategy {race!r} is not one of {', '.join(map(repr, RACES))}")

    def change(nest: Nest) -> Nest:
        plain(command, nest, i)
        return replace(nest, loops=tuple(Loop(i, unit, race) if loop.name == i else loop for loop in nest.loops))

    return with_loops(command, nests, (i,), change)


def unroll(nests: Nests, i: str) -> Nests:
    command = f"unroll({i})"

    def change(nest: Nest) -> Nest:
        plain(command, nest, i)
        return replace(nest, loops=tuple(Loop(i, "unrolled") if loop.name == i else loop for loop in nest.loops))

    return with_loops(command, nests, (i,), change)


def check_unrolled(said: str, program: Program, names: Iterable[str]) -> None:
    """Refuse unrolled iterations with more elements than one would want written out."""
    sizes = {name: most_of(program.iteration(name)) for name in names}
    if None in sizes.values():
        refuse(said, "unrolled want a number of elements that is known at compile time; split the loop")

    def copies(iterations: Iterable[Iteration]) -> int:
        return max(((sizes.get(it.name) or 1) * copies(it.nested) for it in iterations), default=1)

    if (found := copies(program.iterations)) > MOST_UNROLLED:
        refuse(said, f"{found} copies would be written out, and {MOST_UNROLLED} are the most; split the loop")
