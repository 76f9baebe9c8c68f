"""Pass 2: coordinates to positions (SparseTIR, section 3.3.3, equations 1 to 5).

An iterator is decompressed to the coordinate it stands for; an access is compressed to positions of the buffer's axes.
Where the access is by the very iterators that visit the axes, its position is theirs. Elsewhere the coordinate is
searched among the stored ones: by bisection where they are sorted, one by one where they are not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import copysign, inf
from typing import TypeAlias

from ...deferred import ir_builder, tirx, tvm
from ...deferred import tir_builder as T
from ..codegen import bfloat16_bits as bits
from ..codegen.nodes import nodes
from ..language.axes import Axis, StageIError, given
from ..language.expr import (
    HALVES,
    SETS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Offset,
    Owner,
    Present,
    Select,
    SizeOf,
    Stored,
    Var,
)
from ..language.layout import elements, offset
from ..language.program import Bounds, Buffer
from ..language.traversal import walk
from ..language.types import FLOATS
from .scope import INDEX, Scope, both, index
from .within import within

Cells: TypeAlias = "tuple[tirx.Buffer, tirx.Buffer]"
"""The two of a bisection."""

_BINARY = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: tirx.floordiv(a, b),
    "%": lambda a, b: tirx.floormod(a, b),
    "min": lambda a, b: tirx.min(a, b),
    "max": lambda a, b: tirx.max(a, b),
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a.equal(b),
    "!=": lambda a, b: tirx.NE(a, b),
    "&": lambda a, b: tirx.bitwise_and(a, b),
    "|": lambda a, b: tirx.bitwise_or(a, b),
    "and": lambda a, b: tirx.all(a, b),
    "or": lambda a, b: tirx.any(a, b),
}


def _divide(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """a / b; TVM dies of a zero that it can see."""
    if isinstance(b, tirx.FloatImm) and b.value == 0:
        return tirx.Mul(a, tirx.FloatImm(str(b.ty.dtype), copysign(inf, b.value)))
    return tirx.Div(a, b)


# where the operators would work out 0 * x and 0 / x as if x were a real number
_FLOATING = {"-": lambda a, b: tirx.Sub(a, b), "*": lambda a, b: tirx.Mul(a, b), "/": _divide}
_CALLS: dict[str, Callable[..., tirx.Expr]] = {
    "exp": lambda x: tirx.exp(x),
    "log": lambda x: tirx.log(x),
    "sqrt": lambda x: tirx.sqrt(x),
    "tanh": lambda x: tirx.tanh(x),
    "sigmoid": lambda x: tirx.sigmoid(x),
    "abs": lambda x: tirx.abs(x),
    "sin": lambda x: tirx.sin(x),
    "cos": lambda x: tirx.cos(x),
    # TVM has no isnan of bfloat16
    "is_nan": lambda x: tirx.isnan(x.astype("float32") if str(x.ty.dtype) == "bfloat16" else x),
    "low_half": bits.low_half,
    "high_half": bits.high_half,
    "bfloat16_bits": lambda x: bits.bfloat16_bits(x).astype("int64"),
    "bit": lambda n: tirx.shift_left(index(1), n),
    "bit_count": lambda x: tirx.popcount(x),
    "trailing_zeros": lambda x: tirx.popcount(tirx.bitwise_and(x, -x) - 1),
}


def value(expr: Expr, scope: Scope) -> tirx.Expr:
    """The TVM expression for `expr`; emits search blocks into the open frame where an access needs them."""
    match expr:
        case Const():
            make = tirx.FloatImm if isinstance(expr.value, float) else tirx.IntImm
            return make(expr.dtype, expr.value)
        case Var():
            return scope.coordinate(scope.axis_of[expr])
        case SizeOf():
            return scope.size(expr.size)
        case Binary() if expr.op in ("and", "or") and any(isinstance(e, Load) for e in walk(expr.b)):
            # TVM evaluates both operands; a load may be meaningless where the first operand decides
            first = value(expr.a, scope)
            if expr.op == "and":
                return both(first, value(expr.b, scope.under(first)))
            return tirx.if_then_else(first, tirx.const(True, "bool"), value(expr.b, scope.under(tirx.Not(first))))
        case Binary() if expr.a.dtype == "bool" and expr.op in ("==", "!="):
            # TVM's code for x86 compares conditions as if they were floating-point numbers
            return _BINARY[expr.op](value(expr.a, scope).astype("int32"), value(expr.b, scope).astype("int32"))
        case Binary():
            table = _FLOATING if expr.a.dtype in FLOATS and expr.op in _FLOATING else _BINARY
            return table[expr.op](value(expr.a, scope), value(expr.b, scope))
        case Call():
            return _CALLS[expr.function](value(expr.argument, scope))
        case Select():
            condition = value(expr.condition, scope)
            if _harmless(expr, scope):  # both sides are evaluated: a vector loop stays one
                return tirx.Select(condition, value(expr.then, scope), value(expr.otherwise, scope))
            then = value(expr.then, scope.under(condition))
            return tirx.if_then_else(condition, then, value(expr.otherwise, scope.under(tirx.Not(condition))))
        case Cast():
            return value(expr.value, scope).astype(expr.dtype)
        case Present():
            found = compress(expr.load.buffer, expr.load.indices, scope)[1]
            return tirx.const(True, "bool") if found is None else found
        case Stored():
            found = locate(expr.axis.chain, expr.indices, scope)[1]
            return tirx.const(True, "bool") if found is None else found
        case Offset():
            return _offset(expr, scope)
        case Owner():
            return owner(expr.axis, value(expr.at, scope), scope)
        case Load():
            positions, found = compress(expr.buffer, expr.indices, scope)
            loaded = scope.buffers[expr.buffer.name][tuple(positions)]
            if str(loaded.ty.dtype) != expr.dtype:
                loaded = loaded.astype(expr.dtype)
            if found is None:
                return loaded
            choose = tirx.Select if _is_read(expr, scope) else tirx.if_then_else
            return choose(found, loaded, tirx.const(0, expr.dtype))
    raise StageIError(f"cannot lower {expr!r}")


def compress(buffer: Buffer, indices: tuple[Expr, ...], scope: Scope) -> tuple[list[tirx.Expr], tirx.Expr | None]:
    """(positions along the buffer's axes, condition under which the element exists or None where it surely does)."""
    if not buffer.axes:
        return [index(0)], None
    positions, found = locate(buffer.axes, indices, scope)
    return [positions[a] for a in buffer.axes], found


def locate(
    axes: tuple[Axis, ...], indices: tuple[Expr, ...], scope: Scope
) -> tuple[dict[Axis, tirx.Expr], tirx.Expr | None]:
    """The position along each axis of the element that `indices` name, and the condition as of `compress`."""
    positions: dict[Axis, tirx.Expr] = {}
    named = dict(zip(axes, indices, strict=True))
    matched: set[Axis] = set()
    found = None
    for axis, expr in named.items():
        by_visit = isinstance(expr, Var) and scope.axis_of[expr] == axis
        if by_visit and (axis.parent is None or axis.parent in matched):
            positions[axis] = scope.positions[axis]
            matched.add(axis)
            continue
        walked = scope.walked(axis, tuple(named[a] for a in axis.chain if a in named))
        if walked is not None:
            positions[axis] = walked
            # under an element that is not there, no walk meets one
            found = walked >= 0 if axis in scope.searched else scope.met.get(axis, found)
            continue
        coordinate = value(expr, scope)
        if not axis.is_sparse:
            positions[axis] = coordinate
            if any(a.parent == axis and a.is_sparse for a in axes):
                # what hangs below is looked up through this coordinate: outside the axis nothing is stored
                count = scope.slots(axis, parent_offset(axis, positions, scope))[1]
                found = both(found, tirx.all(coordinate >= 0, coordinate < count))
            continue
        positions[axis] = _search(axis, coordinate, positions, found, scope)
        found = positions[axis] >= 0
    return positions, found


def _offset(expr: Offset, scope: Scope) -> tirx.Expr:
    axis = expr.axis
    positions, found = locate(axis.chain[: len(expr.indices)], expr.indices, scope)
    if expr.part == "offset_of":
        at = offset(axis.chain, [positions[a] for a in axis.chain], scope.indptr)
    else:
        start, count = scope.slots(axis, parent_offset(axis, positions, scope))
        at = start if expr.part == "begin_of" else start + count
    return at if found is None else tirx.if_then_else(found, at, index(-1 if expr.part == "offset_of" else 0))


def _harmless(expr: Select, scope: Scope) -> bool:
    """Whether the side that is not chosen may be evaluated too: it reads only what is there anyway, and is cheap."""
    decided = list(walk(expr.condition))
    if any(isinstance(e, Select) or (isinstance(e, Binary) and e.op in ("and", "or")) for e in decided):
        decided = []  # not all of the condition is evaluated
    for side in (expr.then, expr.otherwise):
        for e in walk(side):
            if isinstance(e, (Present, Stored)) or (isinstance(e, Call) and e.function not in HALVES + SETS):
                return False
            if isinstance(e, Binary) and e.op in ("//", "%") and not isinstance(e.b, Const):
                return False
            if isinstance(e, Load) and e not in decided and not _is_there(e, scope):
                return False
    return True


def _is_read(load: Load, scope: Scope) -> bool:
    """Whether the element can be read wherever its walk is, and is asked for or not."""
    axes = load.buffer.axes
    walks = [axis for axis in axes if axis in scope.met]
    return (
        bool(walks)
        and walks == [axes[-1]]
        and axes[-1] in scope.readable
        and scope.walked(axes[-1], load.indices) is not None
    )


def _is_there(load: Load, scope: Scope) -> bool:
    """Whether the element surely exists: along each axis the one that the iterators visit, or within a dense extent."""
    visited: set[Axis] = set()
    if _is_read(load, scope):
        return True
    for axis, expr in zip(load.buffer.axes, load.indices):
        if isinstance(expr, Var) and scope.axis_of[expr] == axis and axis.parent in (None, *visited):
            visited.add(axis)
        elif axis.kind != "dense_fixed" or axis.parent is not None or not within(expr, axis, scope.axis_of):
            return False
    return True


def scalar(name: str) -> tirx.Buffer:
    cell = T.sblock_alloc_buffer((1,), INDEX, scope="local", layout=None)
    ir_builder.IRBuilder.name(name, cell)
    return cell


def parent_offset(axis: Axis, positions: dict[Axis, tirx.Expr], scope: Scope) -> tirx.Expr | None:
    """Where the parent element of `axis` lies, given the positions along its chain; None for a root."""
    chain = axis.chain[:-1]
    if not chain:
        return None
    known = scope.offset_of(chain[-1], positions[chain[-1]])
    return offset(chain, [positions[a] for a in chain], scope.indptr) if known is None else known


def _search(
    axis: Axis, coordinate: tirx.Expr, positions: dict[Axis, tirx.Expr], parent_found: tirx.Expr | None, scope: Scope
) -> tirx.Expr:
    """Emit the block that finds `coordinate` under a parent element; gives its relative position, -1 if absent."""
    cell = scalar(f"{axis.name}_found")
    bounds = _bounds(axis.name) if axis.sorted and not axis.padded else None
    wanted = both(scope.guard, parent_found)
    with ExitStack() as frames:
        frames.enter_context(T.sblock(scope.fresh(f"find_{axis.name}")))
        T.writes(*(c[0:1] for c in (cell, *(bounds or ()))))
        T.buffer_store(cell, index(-1), [index(0)])
        if wanted is not None:
            frames.enter_context(T.If(wanted))
            frames.enter_context(T.Then())
        start, count = scope.slots(axis, parent_offset(axis, positions, scope))
        if bounds is not None:
            _bisect(axis, coordinate, start, count, cell, bounds, scope)
        else:
            _scan(axis, coordinate, start, count, cell, scope)
    return cell[index(0)]


def _scan(
    axis: Axis, coordinate: tirx.Expr, start: tirx.Expr, count: tirx.Expr, cell: tirx.Buffer, scope: Scope
) -> None:
    """First match wins; scanning downwards leaves it in the cell."""
    with T.serial(0, count) as step:
        ir_builder.IRBuilder.name("step", step)
        here = count - 1 - step
        with T.If(scope.load(given(axis.indices), start + here).equal(coordinate)), T.Then():
            T.buffer_store(cell, here, [index(0)])


def _bisect(
    axis: Axis,
    coordinate: tirx.Expr,
    start: tirx.Expr,
    count: tirx.Expr,
    cell: tirx.Buffer,
    bounds: Cells,
    scope: Scope,
) -> None:
    low = lower_bound(partial(_is_before, axis, start, coordinate, scope), index(0), count, bounds)
    with T.If(low < count), T.Then():
        with T.If(scope.load(given(axis.indices), start + low).equal(coordinate)), T.Then():
            T.buffer_store(cell, low, [index(0)])


def _is_before(axis: Axis, start: tirx.Expr, coordinate: tirx.Expr, scope: Scope, at: tirx.Expr) -> tirx.Expr:
    return scope.load(given(axis.indices), start + at) < coordinate


def _bounds(name: str) -> Cells:
    """The two cells of a bisection. They belong to the block around the search: TVM decomposes no reduction of a block
    in which an inner block stores to what it allocates itself."""
    return scalar(f"{name}_low"), scalar(f"{name}_high")


def lower_bound(before: Callable[[tirx.Expr], tirx.Expr], low: tirx.Expr, high: tirx.Expr, bounds: Cells) -> tirx.Expr:
    """Emit a bisection of [low, high): the first place where before(place) no longer holds, or high."""
    lo, hi = bounds
    T.buffer_store(lo, low, [index(0)])
    T.buffer_store(hi, high, [index(0)])
    with T.While(lo[index(0)] < hi[index(0)]):
        middle = tirx.floordiv(lo[index(0)] + hi[index(0)], index(2))
        with T.If(before(middle)):
            with T.Then():
                T.buffer_store(lo, middle + 1, [index(0)])
            with T.Else():
                T.buffer_store(hi, middle, [index(0)])
    return lo[index(0)]


def unfuse(axes: tuple[Axis, ...], leaf_offset: tirx.Expr, scope: Scope) -> dict[Axis, tirx.Expr]:
    """Relative positions of every axis of a fused tree from the offset of its leaf; emits one bisection per level."""
    positions: dict[Axis, tirx.Expr] = {}
    at = leaf_offset
    for axis in reversed(axes):
        if axis.parent is None:
            positions[axis] = at
            break
        if not axis.is_variable:
            width = scope.size(axis.stored)
            positions[axis] = tirx.floormod(at, width)
            at = tirx.floordiv(at, width)
            continue
        above = owner(axis, at, scope)
        positions[axis] = at - scope.indptr(axis, above)
        at = above
    return positions


def owner(axis: Axis, at: tirx.Expr, scope: Scope) -> tirx.Expr:
    """The last parent element that begins at or before `at`: it owns the element, empty parents being passed over.

    Emits a bisection for a variable axis.
    """
    parent = given(axis.parent)
    parents = elements(parent, scope.size)
    if not axis.is_variable:
        width = scope.size(axis.stored)
        return tirx.if_then_else(width > 0, tirx.min(tirx.floordiv(at, tirx.max(width, 1)), parents - 1), index(-1))
    cell, bounds = scalar(f"{parent.name}_at"), _bounds(axis.name)
    with T.sblock(scope.fresh(f"owner_{axis.name}")):
        T.writes(*(c[0:1] for c in (cell, *bounds)))
        after = lower_bound(lambda p: scope.indptr(axis, p) <= at, index(0), parents, bounds)
        T.buffer_store(cell, after - 1, [index(0)])
    return cell[index(0)]


def visited(
    axis: Axis, bounds: Bounds, scope: Scope, under: tuple[tirx.Expr, tirx.Expr] | None = None
) -> tuple[tirx.Expr, tirx.Expr]:
    """(first position, count) of what is visited of an axis within bounds, kept in cells where it takes reading.

    under: (first offset, count) of the axis under the element above; None where that is being visited.
    """
    low, high = value(bounds.low, scope), value(bounds.high, scope)
    start, count = scope.slots(axis) if under is None else under
    places = tirx.max(low, index(0)), tirx.min(high, count)
    searched = _bounds(axis.name) if bounds.by == "coordinate" and axis.is_sparse else None
    reads = [searched is not None or bool(nodes(e, (tvm.ir.TensorLoad, tvm.ir.Call))) for e in places]
    cells = [scalar(f"{axis.name}_{part}") if reads[n] else None for n, part in enumerate(("first", "behind"))]
    if any(reads):
        with T.sblock(scope.fresh(f"bounds_{axis.name}")):
            T.writes(*(c[0:1] for c in (*cells, *(searched or ())) if c is not None))
            for n, (cell, place) in enumerate(zip(cells, places)):
                if searched is not None:
                    before = partial(_is_before, axis, start, high if n else low, scope)
                    least = index(0) if n == 0 or cells[0] is None else cells[0][index(0)]
                    place = lower_bound(before, least, count, searched)
                if cell is not None:
                    T.buffer_store(cell, place, [index(0)])
    first, behind = (place if cell is None else cell[index(0)] for cell, place in zip(cells, places))
    return first, tirx.max(behind - first, index(0))
