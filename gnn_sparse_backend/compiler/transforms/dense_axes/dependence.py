"""Whether the elements of an axis may be visited one group at a time, all statements of a body for each group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...language.axes import Axis, StageIError
from ...language.expr import Binary, Const, Expr, Load, Var
from ...language.program import Buffer, Iteration, Store, loads_in, stores_in, walk_iterations
from ...language.traversal import walk


def check_separable(outer: Iteration, axis: Axis, what: str) -> None:
    """Raise StageIError unless the statements of `outer` that visit `axis` keep its elements apart.

    A buffer that one of them stores to must be indexed in one place by the iterator of `axis`, in all of them, or by
    the iterator behind the same first element, and be touched by no statement that does not visit the axis. What such a
    statement stores must not have been used before it: the next group of elements would find the new value.
    """
    visiting = [s for s in outer.body if isinstance(s, Iteration) and axis in s.axes]
    stored = {b for s in visiting for b, _, stores in _accesses(s) if stores}
    for buffer in stored:
        mine = [(s.variable(axis), indices) for s in visiting for b, indices, _ in _accesses(s) if b == buffer]
        bound = {var for s in visiting for it in walk_iterations((s,)) for var in it.variables}
        starts = ({_start(indices[d], var, bound) for var, indices in mine} for d in range(len(buffer.axes)))
        if not any(len(found) == 1 and None not in found for found in starts):
            raise StageIError(
                f"{what}: buffer {buffer.name!r} is stored to in iteration {outer.name!r} and not always indexed by "
                f"the "
                f"iterator of axis {axis.name!r}"
            )
    used: set[Buffer] = set()
    for statement in outer.body:
        touched = list(_accesses(statement))
        if statement in visiting:
            used.update(b for b, _, _ in touched)
            continue
        for buffer, _, stores in touched:
            if buffer in stored or (stores and buffer in used):
                raise StageIError(
                    f"{what}: a statement of iteration {outer.name!r} that does not visit axis {axis.name!r} shares "
                    f"buffer "
                    f"{buffer.name!r} with those that do"
                )


def _start(index: Expr, var: Var, bound: set[Var]) -> Expr | None:
    """What an index adds to the iterator, where that is the same for all elements that are visited; None otherwise."""
    if index == var:
        return Const(0, "int64")
    match index:
        case Binary("+", first, last) if last == var and not bound & set(walk(first)):
            return first
    return None


def _accesses(statement: Store | Iteration) -> Iterator[tuple[Buffer, tuple[Expr, ...], bool]]:
    """(buffer, indices, whether it is a store) of every access."""
    yield from ((store.buffer, store.indices, True) for store in stores_in((statement,)))
    yield from ((load.buffer, load.indices, False) for load in loads_in((statement,)))


def indexed_otherwise(statements: Iterable[Store | Iteration], axis: Axis, var: Var | None) -> set[Buffer]:
    """Buffers on the axis that are somewhere not indexed along it by its iterator, ``var`` where one is bound."""
    found: set[Buffer] = set()
    for statement in statements:
        if isinstance(statement, Iteration):
            inner = statement.variable(axis) if axis in statement.axes else var
            found |= indexed_otherwise((*statement.init, *statement.body), axis, inner)
            roots = [] if statement.where is None else [statement.where]
        else:
            inner, roots = var, [Load(statement.buffer, statement.indices), statement.value]
        for load in (e for root in roots for e in walk(root) if isinstance(e, Load)):
            if any(a == axis and e != inner for a, e in zip(load.buffer.axes, load.indices)):
                found.add(load.buffer)
    return found
