"""How a format stores rows and columns, read off the rule of a matrix: what schedules and arguments have to know.

A rule of a matrix is a `FormatRewriteRule` for axes ``I`` of rows and ``J`` of columns, whatever program they are in:
``I`` may stand among its new axes, and the run-time sizes ``m`` and ``n`` are those of the matrix.
"""

from __future__ import annotations

from itertools import product
from math import prod

from ...frozen import dataclass
from ..cache.bounded import kept
from ..language.axes import Axis, Size, StageIError, dense_fixed
from ..language.builder import ProgramBuilder
from ..language.expr import Const, Expr, Load, Var, as_expr
from ..language.program import Program
from ..language.traversal import children, rewrite, walk
from .index_maps import evaluate
from .rewrite_rule import FormatRewriteRule

ROWS, COLUMNS = "I", "J"
"""Axes of a matrix."""
HEIGHT, WIDTH = Size("m"), Size("n")
"""Sizes of a matrix, known at run time."""


@kept
def matrix() -> Program:
    """The program of a matrix, for which the rule functions of this folder give rules of a matrix: its row sums."""
    p = ProgramBuilder("matrix")
    m, n, nnz = p.sizes(HEIGHT.name, WIDTH.name, "nnz")
    I = p.dense_fixed(ROWS, m)
    J = p.sparse_variable(COLUMNS, I, (n, nnz), ("indptr", "indices"))
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("rows", (I, J), "SR") as (i, j):
        with p.init():
            Y[i] = 0.0
        Y[i] = Y[i] + A[i, j]
    return p.finish()


@dataclass(frozen=True)
class RuleShape:
    """How a rule of a matrix stores its elements.

    Attributes:
        root: the axis whose elements are rows, or blocks of as many rows as ``height`` says.
        within: the axis of the rows of a block; "" where there is none, or several.
        height, width: rows and columns of a block that is stored whole.
        listed: the array that says which row, or row of blocks, each element of the root is; "" where all are there.
        named: the array that says the column of each element; "" where it is computed, or known of an axis.
        alike: every row has the same number of elements, which lie side by side, so that rows can be visited together.
        beside: the columns of a block are neighbours, and so are its rows.
        shifted: columns are counted from the row, as of a diagonal, and may lie outside of the matrix.
        unit: rows and columns whose multiples operands must have, so that what a block stores meets some element.
    """

    root: str
    within: str
    height: int
    width: int
    listed: str
    named: str
    alike: bool
    beside: bool
    shifted: bool
    unit: tuple[int, int]


def shape_of(rule: FormatRewriteRule) -> RuleShape:
    """The shape of a rule of a matrix.

    Raises StageIError where kernels that hold the sums of a row could not go through its elements: rows that hang on
    columns, that are no blocks of the grid, or that are listed while the rows of a block are not neighbours.
    """
    where = f"rule {rule.name!r}"
    if tuple(rule.axes_before) != (ROWS, COLUMNS):
        raise StageIError(f"{where} is to rewrite the axes ('{ROWS}', '{COLUMNS}') of a matrix, got {rule.axes_before}")
    if set(rule.axis_map) != {ROWS, COLUMNS}:
        raise StageIError(f"{where}: axis_map must say what takes the place of '{ROWS}' and of '{COLUMNS}'")
    axes = axes_of(rule)
    unknown = [name for name in rule.axes_after if name not in axes]
    if unknown:
        raise StageIError(f"{where}: there is no axis {unknown[0]!r} among its axes {', '.join(axes)}")
    for old in (ROWS, COLUMNS):
        if not rule.axis_map[old] or not set(rule.axis_map[old]) <= set(rule.axes_after):
            raise StageIError(f"{where}: axis_map[{old!r}] must name some of axes_after, got {rule.axis_map[old]}")
    (first, *inner), across = (tuple(axes[name] for name in rule.axis_map[old]) for old in (ROWS, COLUMNS))
    if any(a in above.chain for a in across for above in (first, *inner)):
        raise StageIError(
            f"{where}: its rows hang on its columns, and kernels hold the sums of a row while they visit it"
        )
    if first.parent is not None or any(a.kind != "dense_fixed" or isinstance(a.length, Size) for a in inner):
        raise StageIError(
            f"{where}: rows must be a dense root axis, and dense axes of fixed lengths for those in a block"
        )
    row, column = coordinates(rule)
    listed = _listed(row, first, inner, where)
    named = column.buffer.name if isinstance(column, Load) else ""
    loads = any(isinstance(e, Load) for e in walk(column))
    shifted = _has_root(column, first)
    width = prod(a.static_length for a in across[1:] if a.kind == "dense_fixed" and not isinstance(a.length, Size))
    height = prod(a.static_length for a in inner)
    beside = bool(inner) and not loads and not shifted
    return RuleShape(
        first.name,
        inner[0].name if len(inner) == 1 else "",
        height,
        width if inner else 1,
        listed,
        named,
        rule.axes_after[0] == first.name and not any(first in a.chain for a in across),
        beside,
        shifted,
        (height, 1 if loads or shifted else width),
    )


def axes_of(rule: FormatRewriteRule) -> dict[str, Axis]:
    """The axes that a rule of a matrix may name, by name: its own, and the rows."""
    return {ROWS: dense_fixed(ROWS, HEIGHT)} | {a.name: a for a in rule.axes}


def coordinates(rule: FormatRewriteRule) -> tuple[Expr, Expr]:
    """Row and column of an element, of the names of its new axes."""
    found = rule.inverse_index_map(*(Var(name) for name in rule.axes_after))
    if not isinstance(found, tuple) or len(found) != 2:
        raise StageIError(f"rule {rule.name!r}: inverse_index_map must give a row and a column, got {found!r}")
    row, column = found
    return as_expr(row), as_expr(column)


def _listed(row: Expr, root: Axis, inner: list[Axis], where: str) -> str:
    """The array that lists the rows, "" where there is none, of rows ``root * height + place in the block``."""
    loads = {e.buffer.name for e in walk(row) if isinstance(e, Load)}
    if len(loads) > 1:
        raise StageIError(f"{where}: rows are listed by more than one array, {', '.join(sorted(loads))}")
    here = Var(root.name)

    def named(expr: Expr) -> Expr | None:
        return here if isinstance(expr, Load) and expr.indices == (here,) else None

    row = rewrite(row, named)
    height = prod(a.static_length for a in inner)
    for number, places in product((0, 1, 5), product(*({0, a.static_length - 1} for a in inner))):
        place = 0
        for axis, at in zip(inner, places):
            place = place * axis.static_length + at
        known = {here: number} | {Var(axis.name): at for axis, at in zip(inner, places)}
        found = _at(row, known)
        if found != number * height + place:
            raise StageIError(
                f"{where}: row {root.name} * {height} + the place in the block is wanted of inverse_index_map, and "
                f"element {number} of {root.name} has row {found!r} at place {place}"
            )
    return next(iter(loads), "")


def _at(expr: Expr, known: dict[Var, int]) -> int | Expr:
    """The value of an expression at a point, or itself where it is no arithmetic on these alone."""
    found = rewrite(expr, lambda e: Const(known[e], "int64") if isinstance(e, Var) and e in known else None)
    if any(isinstance(e, Load | Var) for e in walk(found)):
        return found
    return evaluate(found, "inverse_index_map")


def _has_root(expr: Expr, root: Axis) -> bool:
    """Whether an expression has the element of the root otherwise than to read an array by it."""
    if isinstance(expr, Load):
        return any(_has_root(e, root) for e in expr.indices if e != Var(root.name))
    return expr == Var(root.name) or any(_has_root(e, root) for e in children(expr))
