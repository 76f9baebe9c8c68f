"""Move a static dense axis from the inner iterations to the one that holds them: a GPU thread then owns one feature.

Before and after:

    rows (I): S[K]                              rows (I, K): S[]
      sum (J, K): init S[k] = 0                   sum (J): init S[] = 0
                  S[k] += A[i,j] * B[j,k]   ->             S[] += A[i,j] * B[j,k]
      out (K):    C[i,k] = S[k]                   C[i,k] = S[]
"""

from __future__ import annotations

from dataclasses import replace

from ...language.axes import Axis, StageIError
from ...language.expr import Expr, Load, Var
from ...language.program import Buffer, Iteration, Program, Store, map_iterations, map_store, walk_iterations
from ...language.traversal import map_children
from ...language.validate import changed
from .dependence import check_separable


def hoist_axis(program: Program, axis_name: str) -> Program:
    """Hoist `axis_name` out of every iteration whose statements all visit it.

    Refuses (StageIError) where a statement beside others does not visit the axis, visits it as a reduction, or where
    what is stored under the axis is indexed by anything but its iterator.
    """
    axis = program.axis(axis_name)
    if axis.kind != "dense_fixed":
        raise StageIError(f"hoist_axis: axis {axis_name!r} is not dense-fixed")
    outers = [
        it
        for it in walk_iterations(program.iterations)
        if axis not in it.axes and any(isinstance(s, Iteration) and axis in s.axes for s in it.body)
    ]
    if not outers:
        raise StageIError(f"hoist_axis: no iteration holds iterations over axis {axis_name!r}")
    for outer in outers:
        _check(outer, axis)

    names = {outer.name for outer in outers}

    def visit(it: Iteration) -> tuple[Iteration, ...]:
        return (_hoist(it, axis),) if it.name in names else (it,)

    return changed(program, f"hoist_axis({axis_name})", iterations=map_iterations(program.iterations, visit))


def _check(outer: Iteration, axis: Axis) -> None:
    for s in outer.body:
        if not isinstance(s, Iteration) or axis not in s.axes:
            name = s.name if isinstance(s, Iteration) else f"store to {s.buffer.name}"
            raise StageIError(f"hoist_axis: {name!r} in iteration {outer.name!r} does not visit axis {axis.name!r}")
        if s.kinds[s.axes.index(axis)] != "S" or any(isinstance(inner, Iteration) for inner in s.body) or s.fused:
            raise StageIError(
                f"hoist_axis: iteration {s.name!r} does not visit axis {axis.name!r} as a plain spatial axis"
            )
        if len(s.axes) == 1 and s.where is not None:
            raise StageIError(f"hoist_axis: iteration {s.name!r} would lose its condition")
    check_separable(outer, axis, "hoist_axis")


def _hoist(outer: Iteration, axis: Axis) -> Iteration:
    var = Var(axis.name.lower())
    locals_ = {b: replace(b, axes=tuple(a for a in b.axes if a != axis)) for b in outer.locals}
    body: list[Iteration | Store] = []
    for it in outer.nested:
        old = it.variable(axis)
        keep = [n for n, a in enumerate(it.axes) if a != axis]
        init = tuple(_store(s, old, var, axis, locals_) for s in it.init)
        inner = tuple(_store(s, old, var, axis, locals_) for s in it.stores)
        if not keep:
            body += inner
            continue
        body.append(
            replace(
                it,
                axes=tuple(it.axes[n] for n in keep),
                kinds="".join(it.kinds[n] for n in keep),
                variables=tuple(it.variables[n] for n in keep),
                init=init,
                body=inner,
                where=None if it.where is None else _substitute(it.where, old, var, axis, locals_),
            )
        )
    return replace(
        outer,
        axes=outer.axes + (axis,),
        kinds=outer.kinds + "S",
        variables=outer.variables + (var,),
        body=tuple(body),
        locals=tuple(locals_.values()),
    )


def _store(store: Store, old: Var, var: Var, axis: Axis, locals_: dict[Buffer, Buffer]) -> Store:
    return map_store(store, lambda expr: _substitute(expr, old, var, axis, locals_))


def _substitute(expr: Expr, old: Var, var: Var, axis: Axis, locals_: dict[Buffer, Buffer]) -> Expr:
    if expr == old:
        return var
    if isinstance(expr, Load) and expr.buffer in locals_:
        indices = []
        for a, e in zip(expr.buffer.axes, expr.indices):
            if a == axis and e != old:
                raise StageIError(
                    f"hoist_axis: local buffer {expr.buffer.name!r} is indexed along {axis.name!r} by {e!r}"
                )
            if a != axis:
                indices.append(_substitute(e, old, var, axis, locals_))
        return Load(locals_[expr.buffer], tuple(indices))
    return map_children(expr, lambda e: _substitute(e, old, var, axis, locals_))
