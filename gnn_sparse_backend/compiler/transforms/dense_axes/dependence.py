"""Whether the elements of an axis may be visited one group at a time, all statements of a body for each group."""

from __future__ import annotations

from collections.abc import Iterator

from ...language.axes import Axis, StageIError
from ...language.expr import Expr, Load, walk
from ...language.program import Buffer, Iteration, Store, walk_iterations


def check_separable(outer: Iteration, axis: Axis, what: str) -> None:
    """Raise StageIError unless the statements of `outer` that visit `axis` keep its elements apart.

    A buffer that one of them stores to must be indexed in one place by the iterator of `axis`, in all of them, and be
    touched by no statement that does not visit the axis. What such a statement stores must not have been used before
    it: the next group of elements would find the new value.
    """
    visiting = [s for s in outer.body if isinstance(s, Iteration) and axis in s.axes]
    stored = {b for s in visiting for b, _, stores in _accesses(s) if stores}
    for buffer in stored:
        mine = [(s.variable(axis), indices) for s in visiting for b, indices, _ in _accesses(s) if b == buffer]
        if not any(all(indices[d] == var for var, indices in mine) for d in range(len(buffer.axes))):
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


def _accesses(statement: Store | Iteration) -> Iterator[tuple[Buffer, tuple[Expr, ...], bool]]:
    """(buffer, indices, whether it is a store) of every access."""
    iterations = list(walk_iterations((statement,)))
    stores = [statement] if isinstance(statement, Store) else []
    roots: list[Expr] = [it.where for it in iterations if it.where is not None]
    for it in iterations:
        stores += [*it.init, *(s for s in it.body if isinstance(s, Store))]
    for store in stores:
        yield store.buffer, store.indices, True
        roots += [*store.indices, store.value]
    for root in roots:
        yield from ((e.buffer, e.indices, False) for e in walk(root) if isinstance(e, Load))
