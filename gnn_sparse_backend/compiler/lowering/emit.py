"""Pass 3: emit stage II from the nests, with the index arrays that axes stand on as parameters (SparseTIR, section
3.3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from ..codegen.nodes import item_bytes
from ..language.axes import Axis, Size, given
from ..language.layout import chains, elements, slots
from ..language.program import Buffer, Iteration, Program, Store
from ..language.validate import validate
from ..position.function import PositionFunction
from .lattice import merge_lattices
from .merge import emit_merged
from .nest import Loop, Nest, block_name, plan_nest
from .regions import close_regions
from .scope import Scope, index
from .translate import compress, unfuse, value, visited


def lower(program: Program) -> PositionFunction:
    """Stage II of a stage I program."""
    validate(program)
    program = merge_lattices(program)
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(program.name)
        T.func_attr({"tirx.noalias": True})
        scope = _parameters(program)
        temporaries = {b.name: _allocate(b, scope) for b in program.buffers if b.scope == "temporary"}
        scope = scope.with_buffers(temporaries)
        for iteration in program.iterations:
            _iteration(iteration, scope)
    axes = {b.name: b.axes for b in program.buffers}
    return PositionFunction(close_regions(builder.get()), program, axes)


def _parameters(program: Program) -> Scope:
    sizes = {size: T.arg(size.name, T.int64()) for size in program.sizes}
    scope = Scope(sizes, {}, {}, {}, {})
    arrays = {}
    for axis in program.axes:
        if axis.indptr is not None:
            shape = (elements(given(axis.parent), scope.size) + 1,)
            arrays[axis.indptr] = _argument(axis.indptr, shape, axis.index_dtype)
        if axis.indices is not None:
            arrays[axis.indices] = _argument(axis.indices, (elements(axis, scope.size),), axis.index_dtype)
    scope = Scope(sizes, arrays, {}, {}, {})
    buffers = {b.name: _argument(b.name, _shape(b, scope), b.dtype, _strides(b, scope)) for b in program.parameters}
    return scope.with_buffers(buffers)


def _argument(
    name: str, shape: Sequence[tirx.Expr], dtype: str, strides: Sequence[tirx.Expr] | None = None
) -> tirx.Buffer:
    # a tensor of the user's may start at any element: promise no more than the alignment of one
    return T.arg(name, T.buffer(shape, dtype, strides=strides, layout=None, align=item_bytes(dtype)))


def _strides(buffer: Buffer, scope: Scope) -> list[tirx.Expr] | None:
    """None for a compact buffer; else a run-time stride along the first axis tree, and compact ones behind it."""
    if not buffer.strided:
        return None
    shape = _shape(buffer, scope)
    rows = len(chains(buffer.axes)[0])
    inner = [index(1)]
    for extent in reversed(shape[rows + 1 :]):
        inner.insert(0, inner[0] * extent)
    return [tirx.Var(f"{buffer.name}_stride", "int64")] * rows + inner


def _shape(buffer: Buffer, scope: Scope) -> tuple[tirx.Expr, ...]:
    return tuple(scope.size(slots(axis)) for axis in buffer.axes) or (index(1),)


def _allocate(buffer: Buffer, scope: Scope) -> tirx.Buffer:
    small = buffer.scope == "local" and all(not isinstance(slots(a), Size) for a in buffer.axes)
    cell = T.sblock_alloc_buffer(_shape(buffer, scope), buffer.dtype, scope="local" if small else "global", layout=None)
    ir_builder.IRBuilder.name(buffer.name, cell)
    return cell


def _iteration(iteration: Iteration, scope: Scope) -> None:
    if iteration.merged:
        emit_merged(iteration, scope, lambda body, at: _element(iteration, body, at))
    else:
        _segment(iteration, plan_nest(iteration), 0, scope)


def _segment(iteration: Iteration, nest: Nest, number: int, scope: Scope) -> None:
    """The loops of one segment, the block that closes it, and inside the block whatever follows."""
    last = number == len(nest.segments) - 1
    loops = nest.segments[number]
    with ExitStack() as frames:
        variables = []
        for loop in loops:
            bounds = iteration.bounds_of(loop.axes[0])
            if bounds is None:
                first, count = index(0), _extent(loop, scope)
            else:
                first, count = visited(loop.axes[0], bounds, scope)
            var = frames.enter_context(T.serial(0, count))
            ir_builder.IRBuilder.name(loop.axes[-1].name.lower(), var)
            variables.append((var, first))
        frames.enter_context(T.sblock(block_name(iteration, number)))
        for loop, (var, first) in zip(loops, variables):
            scope = _bind(iteration, loop, var, first, scope)
        if number == nest.init_segment:
            with T.init():
                later = [loop for segment in nest.segments[number + 1 :] for loop in segment]
                bound = [axis for segment in nest.segments[: number + 1] for loop in segment for axis in loop.axes]
                _init(
                    iteration,
                    [a for a in bound if a in iteration.spatial],
                    [loop for loop in later if loop.kind == "S"],
                    scope,
                )
        if not last:
            _segment(iteration, nest, number + 1, scope)
            return
        _skip_padding(iteration.axes, frames, scope)
        if iteration.where is not None:
            frames.enter_context(T.If(value(iteration.where, scope)))
            frames.enter_context(T.Then())
        _element(iteration, iteration.body, scope)


def _element(iteration: Iteration, body: Iterable[Store | Iteration], scope: Scope) -> None:
    """What runs for one element of an iteration."""
    scope = scope.with_buffers({b.name: _allocate(b, scope) for b in iteration.locals})
    for statement in body:
        if isinstance(statement, Iteration):
            _iteration(statement, scope)
        else:
            _store(statement, scope)


def _extent(loop: Loop, scope: Scope) -> tirx.Expr:
    if loop.fused:
        return elements(loop.axes[-1], scope.size)
    return scope.slots(loop.axes[0])[1]


def _bind(iteration: Iteration, loop: Loop, var: tirx.Var, first: tirx.Expr, scope: Scope) -> Scope:
    """Make the loop's variable an iterator of the block, and the axis known by it; first: the position of its 0."""
    leaf = loop.axes[-1]
    domain = elements(leaf, scope.size) if loop.fused else scope.size(slots(leaf))
    make = T.axis.reduce if loop.kind == "R" else T.axis.spatial
    position = make(domain, var)
    ir_builder.IRBuilder.name(f"v{leaf.name.lower()}", position)
    found = unfuse(loop.axes, position, scope) if loop.fused else {leaf: first + position}
    for axis in loop.axes:
        scope = scope.bind(axis, iteration.variable(axis), found[axis])
    return scope


def _skip_padding(axes: Iterable[Axis], frames: ExitStack, scope: Scope) -> None:
    for axis in axes:
        if axis.padded:
            frames.enter_context(T.If(scope.coordinate(axis) >= 0))
            frames.enter_context(T.Then())


def _init(iteration: Iteration, bound: list[Axis], loops: list[Loop], scope: Scope) -> None:
    """The initial stores, for the visited elements of `bound` and all of the spatial loops still to come."""
    with ExitStack() as frames:
        _skip_padding(bound, frames, scope)
        for loop in loops:
            var = frames.enter_context(T.serial(0, _extent(loop, scope)))
            axis = loop.axes[0]
            scope = scope.bind(axis, iteration.variable(axis), var)
            _skip_padding((axis,), frames, scope)
        for store in iteration.init:
            _store(store, scope)


def _store(store: Store, scope: Scope) -> None:
    positions, found = compress(store.buffer, store.indices, scope)
    stored = _narrowed(value(store.value, scope), store.buffer.dtype)
    if found is None:
        T.buffer_store(scope.buffers[store.buffer.name], stored, positions)
        return
    with T.If(found), T.Then():
        T.buffer_store(scope.buffers[store.buffer.name], stored, positions)


def _narrowed(stored: tirx.Expr, dtype: str) -> tirx.Expr:
    """``stored`` in the type of its buffer. What is only chosen among is chosen in that type: vectors of 64-bit numbers
    that end up in 32 bits would take twice the registers, and LLVM gives some of them to scalar code.
    """
    if str(stored.ty.dtype) == dtype:
        return stored
    if isinstance(stored, tirx.Select):
        return tirx.Select(stored.condition, _narrowed(stored.true_value, dtype), _narrowed(stored.false_value, dtype))
    if isinstance(stored, tirx.Cast) and str(stored.value.ty.dtype) == dtype:
        return stored.value
    return stored.astype(dtype)
