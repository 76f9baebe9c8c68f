"""Visit a dense axis inside all that it is visited around: one row after the other becomes all rows side by side.

    rows (IO, II):                                    rows (IO):
      sum (JO, JI): init S = 0                          sum (JO, JI, II): init S[ii] = 0
                    S += A[io,jo,ji,ii] * X[j]    ->                      S[ii] += A[io,jo,ji,ii] * X[j]
      Y[io * 8 + ii] = S                                rows_II (II): Y[io * 8 + ii] = S[ii]

(Loop distribution with scalar expansion; Allen and Kennedy, Optimizing Compilers for Modern Architectures, section
5.3.) Elements of a spatial axis are independent of each other, so that the meaning stays the same. What is loaded once
for all elements, and vectors along the axis, follow.
"""

from __future__ import annotations

from dataclasses import replace

from ...language.axes import Axis, StageIError
from ...language.expr import Expr, Load, Var
from ...language.program import Buffer, Iteration, Program, Store, map_expressions, map_iterations, walk_iterations
from ...language.traversal import rewrite
from ...language.validate import changed


def sink_axis(program: Program, iteration_name: str, axis_name: str) -> Program:
    """Take the axis out of the iteration, and put it last into every innermost iteration that this one holds.

    Local buffers get the axis. Refuses (StageIError) an axis that is not static dense or not visited spatially there,
    one on which others of the iterations hang, and an iteration with initial values, fused axes or a condition.
    """
    axis, it = program.axis(axis_name), program.iteration(iteration_name)
    where = f"sink_axis: iteration {iteration_name!r}"
    if axis.kind != "dense_fixed" or not isinstance(axis.length, int):
        raise StageIError(f"sink_axis: axis {axis_name!r} is not dense-fixed with a static length")
    if axis not in it.spatial:
        raise StageIError(f"{where} does not visit axis {axis_name!r} as a spatial one")
    if it.init or it.fused or it.where is not None:
        raise StageIError(f"{where} has initial values, fused axes or a condition")
    inside = [a for each in walk_iterations((it,)) for a in each.axes if a != axis]
    if any(axis in a.chain for a in inside):
        raise StageIError(f"{where} visits axes that hang on {axis_name!r}")
    if len(it.axes) == 1:
        raise StageIError(f"{where} visits no other axis")
    new = _Sinking(axis, it.variable(axis), it)

    def visit(found: Iteration) -> tuple[Iteration, ...]:
        return (new.outermost(found),) if found == it else (found,)

    iterations = map_iterations(program.iterations, visit)
    return changed(program, f"sink_axis({iteration_name}, {axis_name})", iterations=iterations)


class _Sinking:
    def __init__(self, axis: Axis, var: Var, it: Iteration) -> None:
        self.axis, self.var = axis, var
        self.wide = {b: replace(b, axes=(*b.axes, axis)) for each in walk_iterations((it,)) for b in each.locals}

    def outermost(self, it: Iteration) -> Iteration:
        rest = [n for n, a in enumerate(it.axes) if a != self.axis]
        return replace(
            it,
            axes=tuple(it.axes[n] for n in rest),
            kinds="".join(it.kinds[n] for n in rest),
            variables=tuple(it.variables[n] for n in rest),
            locals=self._locals(it),
            body=self._body(it),
        )

    def _locals(self, it: Iteration) -> tuple[Buffer, ...]:
        return tuple(self.wide[b] for b in it.locals)

    def _body(self, it: Iteration) -> tuple[Iteration, ...]:
        """The statements, stores in an iteration of their own."""
        found: list[Iteration] = []
        for number, statement in enumerate(it.body):
            if isinstance(statement, Store):
                name = f"{it.name}_{self.axis.name}_{number}"
                found.append(self._inner(Iteration(name, (), "", (), (), (statement,))))
            else:
                found.append(self._inner(statement))
        return tuple(found)

    def _inner(self, it: Iteration) -> Iteration:
        if it.nested:
            if it.init or it.where is not None:
                raise StageIError(f"sink_axis: iteration {it.name!r} has initial values or a condition")
            return replace(it, locals=self._locals(it), body=self._body(it))
        return replace(
            map_expressions(it, lambda e: rewrite(e, self._change)),
            axes=(*it.axes, self.axis),
            kinds=f"{it.kinds}S",
            variables=(*it.variables, self.var),
            locals=self._locals(it),
        )

    def _change(self, e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in self.wide:
            return Load(self.wide[e.buffer], (*e.indices, self.var))
        return None
