"""Validation of stage I programs: every error names the axis, buffer or iteration and says what to write."""

from __future__ import annotations

import itertools
import keyword
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from .axes import Axis, Extent, Size, StageIError
from .expr import Expr, Load, Offset, Owner, SizeOf, Stored, Var, check_condition
from .layout import chains
from .operands import check_bounds, check_merged
from .program import WORDS, Buffer, Iteration, Program, Store, walk_iterations
from .traversal import walk


def validate(program: Program) -> None:
    """Raise StageIError unless `program` is well formed."""
    declared = _names(program)
    for axis in program.axes:
        _axis(program, axis)
    local = [b for it in walk_iterations(program.iterations) for b in it.locals]
    for buffer in (*program.buffers, *local):
        _buffer(program, buffer)
    for iteration in program.iterations:
        _iteration(program, iteration, {}, set(program.buffers), declared)


def changed(program: Program, step: str, **parts: Any) -> Program:
    """The program with other parts, which came of a `step`. Raises StageIError unless it is well formed."""
    done = replace(program, **parts, provenance=(*program.provenance, step))
    validate(done)
    return done


def _names(program: Program) -> Collection[str]:
    """Check the names that the program declares, and return them."""
    names = Counter(program.names)
    variables = [v.name for it in walk_iterations(program.iterations) for v in it.variables]
    for name in (program.name, *names, *variables):
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise StageIError(f"program {program.name!r}: {name!r} is not an identifier")
        if name in WORDS:
            raise StageIError(
                f"program {program.name!r}: the name {name!r} has a meaning in the text of programs; choose another"
            )
        if names[name] > 1:
            raise StageIError(f"program {program.name!r}: the name {name!r} is used {names[name]} times")
    return names


def _axis(program: Program, axis: Axis) -> None:
    if axis.parent is not None:
        if axis.parent not in program.axes:
            raise StageIError(f"axis {axis.name!r}: its parent {axis.parent.name!r} is not an axis of the program")
        if program.axes.index(axis.parent) > program.axes.index(axis):
            raise StageIError(f"axis {axis.name!r}: declare its parent {axis.parent.name!r} before it")
    extents: list[tuple[str, Extent | None]] = [("length", axis.length)]
    if axis.is_variable:
        extents.append(("nnz", axis.nnz))
    elif axis.is_sparse:
        extents.append(("nnz_cols", axis.nnz_cols))
    for what, extent in extents:
        if isinstance(extent, Size):
            if extent not in program.sizes:
                raise StageIError(f"axis {axis.name!r}: its {what} {extent.name!r} is not a size of the program")
        elif isinstance(extent, int):
            if extent < 0:
                raise StageIError(f"axis {axis.name!r}: its {what} is {extent}, which is negative")
        else:
            raise StageIError(f"axis {axis.name!r}: its {what} {extent!r} is neither an integer nor a Size")


def _buffer(program: Program, buffer: Buffer) -> None:
    for axis in buffer.axes:
        if axis not in program.axes:
            raise StageIError(f"buffer {buffer.name!r}: {axis.name!r} is not an axis of the program")
    try:
        chains(buffer.axes)
    except StageIError as error:
        raise StageIError(f"buffer {buffer.name!r}: {error}") from None
    if buffer.strided and (buffer.scope != "param" or len(chains(buffer.axes)) < 2):
        raise StageIError(f"buffer {buffer.name!r}: only a parameter on at least two axis trees can be strided")


def _iteration(
    program: Program, it: Iteration, outer: dict[Axis, Var], buffers: set[Buffer], declared: Collection[str]
) -> None:
    where = f"iteration {it.name!r}"
    if len(it.kinds) != len(it.axes) or set(it.kinds) - set("SR"):
        raise StageIError(f"{where}: kinds {it.kinds!r} must be one letter S or R for each of {len(it.axes)} axes")
    if not it.axes:
        raise StageIError(f"{where} visits no axis; a dense axis of length 1 is visited once")
    if len(it.variables) != len(it.axes):
        raise StageIError(f"{where}: {len(it.axes)} axes and {len(it.variables)} variables; give each axis one")
    bound = dict(outer)
    kind_of: dict[Axis, str] = {}
    for axis, kind, var in zip(it.axes, it.kinds, it.variables):
        if axis not in program.axes:
            raise StageIError(f"{where}: {axis.name!r} is not an axis of the program")
        if axis in kind_of:
            raise StageIError(f"{where}: axis {axis.name!r} is visited twice")
        if var in bound.values():
            raise StageIError(f"{where}: the variable {var.name!r} is already bound")
        if var.name in declared:
            raise StageIError(
                f"{where}: the variable {var.name!r} has the name of a size, axis, array, buffer or iteration; choose "
                f"another with variables="
            )
        if axis.parent is not None and axis.parent not in bound:
            raise StageIError(
                f"{where}: axis {axis.name!r} needs its parent {axis.parent.name!r} before it, here or in an enclosing "
                f"iteration"
            )
        if kind == "S" and axis.parent is not None and kind_of.get(axis.parent) == "R" and it.init:
            raise StageIError(
                f"{where}: spatial axis {axis.name!r} hangs on reduction axis {axis.parent.name!r}, so init has no "
                "domain; write the initial values in an iteration of their own"
            )
        bound[axis] = var
        kind_of[axis] = kind
    _fused(it, where)
    if it.init and not it.reduction:
        raise StageIError(f"{where}: init without a reduction axis; store the value in the body")
    if it.init:
        _fused_init(it, kind_of, where)
    for bounds in it.bounds:
        check_bounds(bounds, it, where)
        _expressions((bounds.low, bounds.high), f"{where}, bounds", buffers, set(outer.values()), program)
    inner = buffers | set(it.locals)
    variables = set(bound.values())
    spatial = {bound[a] for a in it.spatial} | set(outer.values())
    for store in it.init:
        # the locals of the iteration come to life with an element, after init
        _store(store, f"{where}, init", buffers, spatial, program)
        for load in (Load(store.buffer, store.indices), *(e for e in walk(store.value) if isinstance(e, Load))):
            _visited(load, {v: a for a, v in bound.items()}, f"{where}, init")
    if it.where is not None:
        check_condition(it.where, f"{where}: where")
        _expressions((it.where,), f"{where}, where", buffers, variables, program)
    if it.merged:
        check_merged(it, where)
    for statement in it.body:
        if isinstance(statement, Iteration):
            _iteration(program, statement, bound, inner, declared)
        else:
            _store(statement, where, inner, variables, program)


def _fused_init(it: Iteration, kind_of: dict[Axis, str], where: str) -> None:
    """A fused element finds its rows by a search, which init must not need: it runs before the body."""
    for group in it.fused:
        kinds = {kind_of[a] for a in group}
        if kinds == {"R", "S"}:
            raise StageIError(f"{where}: init cannot run in a loop fused over spatial and reduction axes")
        if kinds == {"S"} and "R" in it.kinds[: it.axes.index(group[0])]:
            raise StageIError(
                f"{where}: init cannot run before the loop fused over {[a.name for a in group]}, which comes after a "
                "reduction axis; visit the fused axes first, or write the initial values in an iteration of their own"
            )


def _visited(load: Load, axis_of: dict[Var, Axis], where: str) -> None:
    visited: set[Axis] = set()
    for axis, index in zip(load.buffer.axes, load.indices):
        if isinstance(index, Var) and axis_of[index] == axis and (axis.parent is None or axis.parent in visited):
            visited.add(axis)
        elif axis.is_sparse:
            raise StageIError(
                f"{where}: buffer {load.buffer.name!r} would have to look up a coordinate of sparse axis "
                f"{axis.name!r}; "
                "write the initial values in an iteration of their own"
            )


def _fused(it: Iteration, where: str) -> None:
    for group in it.fused:
        if len(group) < 2 or any(a not in it.axes for a in group):
            raise StageIError(f"{where}: fused group {[a.name for a in group]} must name at least two of its axes")
        at = it.axes.index(group[0])
        if it.axes[at : at + len(group)] != tuple(group):
            raise StageIError(f"{where}: fused axes {[a.name for a in group]} are not consecutive")
        if group[0].parent is not None or any(b.parent != a for a, b in itertools.pairwise(group)):
            raise StageIError(f"{where}: fused axes {[a.name for a in group]} must be one tree, from its root down")


def _store(store: Store, where: str, buffers: set[Buffer], variables: set[Var], program: Program) -> None:
    if store.buffer not in buffers:
        raise StageIError(f"{where}: buffer {store.buffer.name!r} is not visible here")
    _expressions((*store.indices, store.value), where, buffers, variables, program)
    _integer_indices(store.indices, store.buffer, where)


def _expressions(
    roots: Iterable[Expr], where: str, buffers: set[Buffer], variables: set[Var], program: Program
) -> None:
    for root in roots:
        for expr in walk(root):
            if isinstance(expr, Var):
                if expr not in variables:
                    raise StageIError(f"{where}: the variable {expr.name!r} is not bound here")
            elif isinstance(expr, Load):
                if expr.buffer not in buffers:
                    raise StageIError(f"{where}: buffer {expr.buffer.name!r} is not visible here")
                _integer_indices(expr.indices, expr.buffer, where)
            elif isinstance(expr, (Stored, Offset, Owner)):
                if expr.axis not in program.axes:
                    raise StageIError(f"{where}: {expr.axis.name!r} is not an axis of the program")
            elif isinstance(expr, SizeOf) and expr.size not in program.sizes:
                raise StageIError(f"{where}: {expr.size.name!r} is not a size of the program")


def _integer_indices(indices: Iterable[Expr], buffer: Buffer, where: str) -> None:
    for index in indices:
        if index.dtype != "int64":
            raise StageIError(f"{where}: buffer {buffer.name!r} is indexed by a value of type {index.dtype}")
