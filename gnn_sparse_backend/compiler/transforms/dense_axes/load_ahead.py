"""Load what an iteration over features takes before it computes, so that loads stay vectors whatever is computed.

A maximum is a comparison and a choice, which TVM's code for a GPU makes number by number, and the loads in it with it.
Loaded into registers beforehand, a vector is one instruction, and lanes side by side load one stretch of memory.

    add (K): M[k] = select(B[j,k] > M[k], B[j,k], M[k])   ->   add_hold (K): H[k] = B[j,k]
                                                              add (K):      M[k] = select(H[k] > M[k], H[k], M[k])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...language.axes import Axis
from ...language.expr import Binary, Expr, Load, Select, Var
from ...language.program import Buffer, Iteration, Program, Store, map_iterations, stores_in
from ...language.traversal import children, map_children, walk
from ...language.validate import changed


def load_ahead(program: Program, axis_name: str) -> Program:
    """Hold what every iteration over the axis alone, in a reduction, loads of parameters that it does not store to,
    element by element.

    Held are loads that are made in any case, not in one side of a choice; of those that are equal one. They lie in
    local buffers of the iteration around. An iteration that holds others, has locals of its own, or nothing to choose,
    stays as it is.
    """
    axis = program.axis(axis_name)
    written = {store.buffer for store in stores_in(program.iterations)}
    used = set(program.names)

    def visit(it: Iteration) -> tuple[Iteration]:
        if not it.reduction:
            return (it,)
        body: list[Store | Iteration] = []
        locals_ = list(it.locals)
        for statement in it.body:
            loads = _held(statement, axis, written) if isinstance(statement, Iteration) else []
            if not isinstance(statement, Iteration) or not loads:
                body.append(statement)
                continue
            held: dict[Expr, Buffer] = {}
            for load in loads:
                name = f"{load.buffer.name}_held_{statement.name}"
                while name in used:
                    name += "_"
                used.add(name)
                held[load] = Buffer(name, (axis,), load.buffer.dtype, "local")
                locals_.append(held[load])
            body += _apart(statement, held)
        return (replace(it, body=tuple(body), locals=tuple(locals_)),)

    return changed(program, f"load_ahead({axis_name})", iterations=map_iterations(program.iterations, visit))


def _held(it: Iteration, axis: Axis, written: set[Buffer]) -> list[Load]:
    """The loads to hold, in order."""
    if it.axes != (axis,) or it.kinds != "S" or it.locals or not all(isinstance(s, Store) for s in it.body):
        return []
    if not any(isinstance(e, Select) for store in it.stores for e in walk(store.value)):
        return []
    var = it.variables[0]
    found = dict.fromkeys(e for store in it.stores for e in _certain(store.value))
    return [
        e
        for e in found
        if isinstance(e, Load)
        and e.buffer.scope == "param"
        and e.buffer not in written
        and any(var in walk(index) for index in e.indices)
    ]


def _apart(it: Iteration, held: dict[Expr, Buffer]) -> list[Iteration]:
    old = it.variables[0]
    own = Var(f"{old.name}_held")
    loads = tuple(Store(buffer, (own,), _replaced(load, {old: own})) for load, buffer in held.items())
    first = replace(
        it,
        name=f"{it.name}_hold",
        variables=(own,),
        body=loads,
        where=None if it.where is None else _replaced(it.where, {old: own}),
    )
    values: dict[Expr, Expr] = {load: Load(buffer, (old,)) for load, buffer in held.items()}
    return [first, replace(it, body=tuple(Store(s.buffer, s.indices, _replaced(s.value, values)) for s in it.stores))]


def _replaced(expr: Expr, values: dict[Expr, Expr]) -> Expr:
    return values[expr] if expr in values else map_children(expr, lambda e: _replaced(e, values))


def _certain(expr: Expr) -> Iterator[Expr]:
    """The parts of an expression that are evaluated in any case."""
    yield expr
    if isinstance(expr, Select):
        yield from _certain(expr.condition)
    elif isinstance(expr, Binary) and expr.op in ("and", "or"):
        yield from _certain(expr.a)
    else:
        for kid in children(expr):
            yield from _certain(kid)
