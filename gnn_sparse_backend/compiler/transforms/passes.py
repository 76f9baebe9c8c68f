"""One of several passes over the rows of a matrix, each over other non-zeros: a row goes on from where it was left.

    rows (I):                                      rows (I):
      sum (J): init S = 0                            sum (J): init S = C[i]
               S = S + A[i,j]                 ->              S = S + A[i,j]
      out:     C[i] = S / D[i]                       out:     C[i] = S            and in the last pass C[i] = S / D[i]

(Column partitions: the c of hyb(c, k), Ye et al., SparseTIR, section 4.2.1.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ..language.axes import Axis, StageIError
from ..language.expr import Binary, Cast, Load, Var, cast
from ..language.program import Buffer, Iteration, Store
from ..language.traversal import rewrite, walk


def one_pass(it: Iteration, axes: Collection[Axis], first: bool, last: bool) -> Iteration:
    """The iteration `it` as one pass of several, each over other elements of the `axes` that are visited in it.

    What it accumulates over them in a local buffer has to be stored to a parameter at the end. The first pass begins
    with initial values, others with what is stored; the last pass stores what `it` does, others the bare buffer.

    Refuses (StageIError) what is accumulated and not stored so, stored in several places or with others, changed
    otherwise before, or a sum or product that would be rounded to the type of the parameter.
    """
    stores = list(_stores(it, axes, False))
    outer = {b for each in _outside(it, axes) for b in each.locals}
    carried = {s.buffer for s, inside in stores if inside and s.buffer in outer}
    where = f"one_pass: iteration {it.name!r}"
    kept: dict[Buffer, tuple[Store, Load]] = {}
    for store, inside in stores:
        loads = {e for e in walk(store.value) if isinstance(e, Load) and e.buffer in carried}
        if inside and store.buffer.scope == "param":
            raise StageIError(f"{where} stores to {store.buffer.name!r} before the last pass is over")
        if inside or not loads:
            continue
        (load,) = loads if len(loads) == 1 else (None,)
        if load is None or store.buffer.scope != "param" or load.buffer in kept:
            raise StageIError(f"{where} does more with what it accumulates than to store each buffer once")
        kept[load.buffer] = store, load
    for store, inside in stores:
        if store.buffer not in carried:
            continue
        if store.buffer not in kept:
            raise StageIError(f"{where} does not store what it accumulates in {store.buffer.name!r}")
        to = kept[store.buffer][0].buffer
        rounded = to.dtype != store.buffer.dtype and not (first and last)
        if inside and rounded and isinstance(store.value, Binary) and store.value.op in "+*":
            raise StageIError(f"{where} would round what it accumulates to {to.dtype} after each pass")

    def change(store: Store) -> Store:
        if store.buffer in carried and not first:
            final, load = kept[store.buffer]
            at = {old: new for old, new in zip(load.indices, store.indices) if isinstance(old, Var)}
            place = tuple(rewrite(e, lambda e: at.get(e) if isinstance(e, Var) else None) for e in final.indices)
            return Store(store.buffer, store.indices, cast(load.dtype, Load(final.buffer, place)))
        for final, load in kept.values():
            if store is final and not last:
                return Store(store.buffer, store.indices, cast(Load(store.buffer, store.indices).dtype, load))
        return store

    def visit(each: Iteration) -> Iteration:
        init = tuple(map(change, each.init))
        if set(axes) & set(each.axes):
            return replace(each, init=init)
        body = tuple(visit(s) if isinstance(s, Iteration) else change(s) for s in each.body)
        return replace(each, init=init, body=body)

    return visit(it)


def adds_alone(it: Iteration, axes: Collection[Axis]) -> bool:
    """Whether what is accumulated over the axes is stored and nothing else: then a pass may leave rows out."""
    carried = {s.buffer for s, inside in _stores(it, axes, False) if inside}
    if not carried:
        return False
    for store, inside in _stores(it, axes, False):
        value = store.value.value if isinstance(store.value, Cast) else store.value
        loads = {e.buffer for e in walk(store.value) if isinstance(e, Load)} & carried
        if not inside and loads and not isinstance(value, Load):
            return False
    return True


def _stores(it: Iteration, axes: Collection[Axis], inside: bool) -> Iterator[tuple[Store, bool]]:
    """Every store, and whether it runs for each element of the axes."""
    yield from ((store, inside) for store in it.init)
    inside = inside or bool(set(axes) & set(it.axes))
    for statement in it.body:
        if isinstance(statement, Iteration):
            yield from _stores(statement, axes, inside)
        else:
            yield statement, inside


def _outside(it: Iteration, axes: Collection[Axis]) -> Iterator[Iteration]:
    """The iterations around those over the axes."""
    if not set(axes) & set(it.axes):
        yield it
        for inner in it.nested:
            yield from _outside(inner, axes)
