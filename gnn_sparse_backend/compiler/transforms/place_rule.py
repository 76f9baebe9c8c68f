"""A rule of a matrix becomes one of a program: names that end in the part's, and rows that are shared out to tasks.

    IO = dense_fixed("IO", mb), JO under it             IO_p0 = dense_variable("IO_p0", T, (mb_p0, mb_p0), "ptr_p0")
    A on (IO, JO, II): A[io, jo, ii]               ->   A on (T, IO_p0, JO_p0, II_p0): A[t, io, jo, ii]
    row io * 8 + ii, column jo                          the row within its task, column jo

What `group_axis` does to a program, for the rows of a format: a task has whole rows of blocks, so that they are counted
from its first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..language.axes import Axis, Extent, Size, StageIError, dense_fixed, dense_variable, sparse_variable
from ..language.expr import Expr, Load, Var, as_expr, maximum, minimum
from ..language.program import Buffer, Program
from ..language.traversal import rewrite
from .rewrite_rule import FormatRewriteRule
from .rule_shape import COLUMNS, HEIGHT, ROWS, WIDTH, coordinates, shape_of

FROM_ROOT = Var("(first of the task) + ")
"""Stands for the element of the root, counted from the first of the matrix."""


def base_name(rule: FormatRewriteRule, name: str) -> str:
    """A name of the rule without the rule's own at its end."""
    return name.removesuffix(f"_{rule.name}")


def content(rule: FormatRewriteRule) -> tuple[Any, ...]:
    """All that kernels know of a rule of a matrix, whatever it is called: equal for rules that store alike."""
    it = _Placing(rule, None, "", None)
    at = tuple(it.new_name(name) for name in rule.axes_after)
    return (
        tuple(map(it.extent, rule.sizes)),
        tuple(it.axis(a) for a in rule.axes),
        at,
        tuple((old, tuple(map(it.new_name, new))) for old, new in sorted(rule.axis_map.items())),
        tuple(map(it.array, rule.arrays)),
        tuple(rewrite(e, it.renamed) for e in coordinates(rule)),
        rule.masked,
    )


def place_rule(
    rule: FormatRewriteRule,
    program: Program,
    *,
    name: str,
    buffers: tuple[str, ...],
    tasks: str | None = None,
    masked: bool = True,
) -> FormatRewriteRule:
    """The rule of a matrix as one of a program whose sparse axis is ``J``, with rows ``I``.

    Sizes, axes and arrays are called as the rule calls them, with ``name`` behind it, and their indices have the type
    of the program's. With ``tasks`` there are further parameters: ptr_ (first element of the root in each task); where
    rows are listed also listed_ (which of its task each is, in the place of the array that lists them) and, of blocks,
    mb_ (rows of blocks); where columns are counted from the row Start_ (the first row of each task).

    masked: a mask tells padding apart, of a rule that is ``masked``; else padding is zeros, which meet the operands, so
    that the columns of a ``shifted`` rule stay within the matrix.
    """
    return _Placing(rule, program, name, tasks).placed(buffers, masked)


class _Placing:
    def __init__(self, rule: FormatRewriteRule, program: Program | None, name: str, tasks: str | None) -> None:
        self.rule, self.program, self.name = rule, program, name
        self.shape = shape_of(rule)
        self.task = None if tasks is None or program is None else program.axis(tasks)
        self.dtype = program.axis(COLUMNS).index_dtype if program else "int32"
        self.sizes = {size: Size(self.new(size.name)) for size in rule.sizes}
        self.axes: dict[Axis, Axis] = {}
        own = {a.name for a in rule.axes}
        self.on_rows = self.shape.root not in own

    def new(self, name: str) -> str:
        """A name in the program."""
        base = base_name(self.rule, name)
        return f"{base}_{self.name}" if self.name else base

    def new_name(self, axis: str) -> str:
        """The name of an axis in the program."""
        return axis if axis == ROWS and self.on_rows else self.new(axis)

    def extent(self, extent: Extent | None) -> Any:
        if not isinstance(extent, Size):
            return extent
        if extent in self.sizes:
            return self.sizes[extent]
        if extent in (HEIGHT, WIDTH):
            return extent if self.program is None else self.program.axis(ROWS if extent == HEIGHT else COLUMNS).length
        raise StageIError(
            f"rule {self.rule.name!r}: the size {extent} is none of its sizes, nor {HEIGHT} or {WIDTH}, which are "
            "those of the matrix; name it in sizes"
        )

    def axis(self, axis: Axis) -> Axis:
        """An axis of the rule in the program."""
        if axis not in self.axes:
            self.axes[axis] = self._axis(axis)
        return self.axes[axis]

    def _axis(self, axis: Axis) -> Axis:
        if axis.name == ROWS and self.on_rows:
            return dense_fixed(ROWS, HEIGHT) if self.program is None else self.program.axis(ROWS)
        name, length = self.new(axis.name), self.extent(axis.length)
        if self.task is not None and axis.name == self.shape.root:
            return self._root(name, length, self.task)
        return replace(
            axis,
            name=name,
            length=length,
            parent=None if axis.parent is None else self.axis(axis.parent),
            nnz=self.extent(axis.nnz),
            nnz_cols=self.extent(axis.nnz_cols),
            indptr=None if axis.indptr is None else self.new(axis.indptr),
            indices=None if axis.indices is None else self.new(axis.indices),
            index_dtype=self.dtype if axis.parent else axis.index_dtype,
        )

    def _root(self, name: str, length: Extent, task: Axis) -> Axis:
        if not self.shape.listed:
            return dense_variable(name, task, (length, length), self.new("ptr"), self.dtype)
        arrays = self.new("ptr"), self.new("listed")
        once = self.shape.height > 1  # a long row may be several
        return sparse_variable(name, task, (self._rows(), length), arrays, self.dtype, unique=once)

    def _rows(self) -> Extent:
        """Rows, or rows of blocks, of the matrix."""
        return self.extent(HEIGHT) if self.shape.height == 1 else Size(self.new("mb"))

    def array(self, array: Buffer) -> Buffer:
        """An index array of the rule in the program."""
        axes: list[Axis] = []
        for axis in array.axes:
            if axis.name == self.shape.root and self.task is not None:
                axes.append(self.task)
            axes.append(self.axis(axis))
        dtype = self.dtype if array.dtype in ("int32", "int64") else array.dtype
        return replace(array, name=self.new(array.name), axes=tuple(axes), dtype=dtype)

    def renamed(self, expr: Expr) -> Expr | None:
        """Loads of arrays and axes of the rule, in a matrix without tasks."""
        if isinstance(expr, Load):
            return Load(self.array(expr.buffer), expr.indices)
        return Var(self.new_name(expr.name)) if isinstance(expr, Var) else None

    def placed(self, buffers: tuple[str, ...], masked: bool) -> FormatRewriteRule:
        assert self.program is not None
        rule, shape, task, program = self.rule, self.shape, self.task, self.program
        at = rule.axes_after.index(shape.root)  # where the task stands
        around = () if task is None else (task.name,)
        after = list(map(self.new_name, rule.axes_after))
        after[at:at] = around
        starts = Buffer(self.new("Start"), () if task is None else (task,), self.dtype)
        last = as_expr(program.axis(COLUMNS).length) - 1

        def with_task(indices: Sequence[Expr], where: Expr | None, root: Expr) -> tuple[Expr, ...]:
            """Indices of an array, with the task in front of the root."""
            found: list[Expr] = []
            for index in indices:
                if where is not None and index == FROM_ROOT:
                    found += [where, root]
                else:
                    found.append(root if index == FROM_ROOT else index)
            return tuple(found)

        def back(*given: Any) -> tuple[Any, ...]:
            own = [as_expr(e) for e in given]
            where = own.pop(at) if task is not None else None
            root, own[at] = own[at], FROM_ROOT
            from_first = root if where is None else starts[where] + root

            def change(of: Expr, first: Expr) -> Expr:
                def one(expr: Expr) -> Expr | None:
                    if isinstance(expr, Load):
                        if task is not None and expr.buffer.name == shape.listed:
                            return root
                        return Load(self.array(expr.buffer), with_task(expr.indices, where, root))
                    return None

                return rewrite(rewrite(of, one), lambda e: first if e == FROM_ROOT else None)

            row, column = map(as_expr, rule.inverse_index_map(*own))
            column = change(column, from_first)
            if shape.shifted and rule.masked and not masked:
                column = minimum(maximum(column, 0), last)
            return (*(() if where is None else (where,)), change(row, root), column)

        def into(*given: Any) -> tuple[Any, ...]:
            assert rule.index_map is not None
            *tasks_of, i, j = given
            found = list(rule.index_map(i, j))
            found[at:at] = tasks_of
            return tuple(found)

        arrays = tuple(self.array(a) for a in rule.arrays if task is None or a.name != shape.listed)
        sizes = tuple(self.sizes[size] for size in rule.sizes)
        if task is not None and shape.listed and shape.height > 1:
            sizes = (Size(self.new("mb")), *sizes)
        return FormatRewriteRule(
            self.name,
            sizes,
            tuple(self.axis(a) for a in rule.axes),
            buffers,
            (*around, ROWS, COLUMNS),
            tuple(after),
            {t: (t,) for t in around} | {old: tuple(map(self.new_name, new)) for old, new in rule.axis_map.items()},
            None if rule.index_map is None or shape.shifted or shape.listed else into,
            back,
            (*arrays, *((starts,) if shape.shifted and task is not None else ())),
            masked=rule.masked and masked,
            whole=not shape.listed,
        )
