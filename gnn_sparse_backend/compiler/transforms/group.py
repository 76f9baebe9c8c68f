"""Share the rows out to tasks: a dense root axis becomes a ragged axis under an axis of groups.

    iterate(I, J, K): C[i, k] += A[i, j] * B[j, k]   ->   iterate(T, I, J, K): C[t, i, k] += A[t, i, j] * B[j, k]

with rows T_ptr[t] .. T_ptr[t + 1] in group t. The arrays stay as they are; a parallel loop over groups of equal cost
is balanced whatever the rows are.
"""

from __future__ import annotations

from dataclasses import replace

from ..language.axes import Axis, Size, StageIError, dense_fixed, dense_variable
from ..language.expr import Expr, Load, Var
from ..language.program import Buffer, Iteration, Program, map_expressions, map_iterations, walk_iterations
from ..language.traversal import map_children
from ..language.validate import changed


def group_axis(
    program: Program,
    axis_name: str,
    group_name: str = "T",
    index_dtype: str = "int32",
    *,
    count: str | None = None,
    cuts: str | None = None,
) -> Program:
    """Put the dense root axis `axis_name` under a new axis `group_name` of num_<group> groups, cut at <group>_ptr, or
    as ``count`` and ``cuts`` call these parameters.

    Refuses (StageIError) an axis that is not a dense root, one that is fused, and a program in which a buffer is
    indexed along it by anything but its iterator, or in which its coordinate is used as a value.
    """
    old = program.axis(axis_name)
    if old.parent is not None:
        raise StageIError(f"group_axis: axis {axis_name!r} is not a dense root")
    if any(old in group for it in walk_iterations(program.iterations) for group in it.fused):
        raise StageIError(f"group_axis: axis {axis_name!r} is fused; group before fusing")
    number = Size(count or f"num_{group_name}")
    group = dense_fixed(group_name, number)
    new: dict[Axis, Axis] = {
        old: dense_variable(axis_name, group, (old.length, old.length), cuts or f"{group_name}_ptr", index_dtype)
    }
    axes: list[Axis] = []
    for axis in program.axes:
        if axis.parent in new:
            new[axis] = replace(axis, parent=new[axis.parent])
        axes += [group, new[axis]] if axis == old else [new.get(axis, axis)]
    rows = {it.variable(old) for it in walk_iterations(program.iterations) if old in it.axes}
    rewriter = _Grouping(old, group, new, rows)
    return changed(
        program,
        f"group_axis({axis_name}, {group_name})",
        sizes=(number, *program.sizes),
        axes=tuple(axes),
        buffers=tuple(rewriter.buffer(b) for b in program.buffers),
        iterations=map_iterations(program.iterations, rewriter.iteration),
    )


class _Grouping:
    def __init__(self, old: Axis, group: Axis, new: dict[Axis, Axis], rows: set[Var]) -> None:
        self.old, self.group, self.new, self.rows = old, group, new, rows
        self.var = Var(group.name.lower())

    def _axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        out: list[Axis] = []
        for axis in axes:
            out += [self.group, self.new[axis]] if axis == self.old else [self.new.get(axis, axis)]
        return tuple(out)

    def buffer(self, buffer: Buffer) -> Buffer:
        return replace(buffer, axes=self._axes(buffer.axes))

    def iteration(self, it: Iteration) -> tuple[Iteration]:
        kinds, variables = "", []
        for axis, kind, var in zip(it.axes, it.kinds, it.variables):
            if axis == self.old:
                kinds += kind
                variables.append(self.var)
            kinds += kind
            variables.append(var)
        return (
            replace(
                map_expressions(it, self._expr),
                axes=self._axes(it.axes),
                kinds=kinds,
                variables=tuple(variables),
                locals=tuple(self.buffer(b) for b in it.locals),
            ),
        )

    def _expr(self, expr: Expr) -> Expr:
        if expr in self.rows:
            raise StageIError(f"group_axis: the coordinate {expr.name!r} of axis {self.old.name!r} is used as a value")
        if not isinstance(expr, Load):
            return map_children(expr, self._expr)
        indices: list[Expr] = []
        for axis, index in zip(expr.buffer.axes, expr.indices):
            if axis == self.old:
                if index not in self.rows:
                    raise StageIError(
                        f"group_axis: buffer {expr.buffer.name!r} is indexed along {axis.name!r} by {index!r}"
                    )
                indices.append(self.var)
                indices.append(index)
            else:
                indices.append(self._expr(index))
        return Load(self.buffer(expr.buffer), tuple(indices))
