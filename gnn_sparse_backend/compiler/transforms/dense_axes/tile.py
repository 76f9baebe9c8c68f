"""Exact tiling of a static dense axis, so that accumulators can live in registers.

A guard in an innermost vector loop turns it scalar, so an axis of width 602 must not be cut by a single tile width. It
is cut into tiles, and each tile into chunks, whose widths are given exactly. Each tile is a pass of its own over the
reduction (its accumulators fit the register file); the chunks of one tile are updated side by side within it.

    rows (I):                                   rows (I):
      sum (J, K): init S[k] = 0                   sum_zero_0 (K_0): S_0[k] = 0
                  S[k] += A[i,j] * B[j,k]   ->    sum_tile_0 (J): sum_0 (K_0): S_0[k] += A[i,j] * B[j,k]
      out (K):    C[i,k] = S[k]                   out_0 (K_0): C[i,k] = S_0[k]
                                                  sum_zero_1 (K_1): S_1[k] = 0
                                                  sum_tile_1 (J): sum_1 (K_1): S_1[k] += A[i,j] * B[j,64+k]
                                                  out_1 (K_1): C[i,64+k] = S_1[k]

with tiles ((64,), (26,)) of an axis K of width 90. A single tile of several chunks separates no passes, so that the
statements keep their order and iterations over the axis may stand at any depth:

    rows (I):                                   rows (I):
      sum (J, K): init S[k] = 0                   sum_zero_0 (K_0): S_0[k] = 0;  sum_zero_1 (K_1): S_1[k] = 0
                  S[k] += A[i,j] * B[j,k]   ->    sum_tile_0 (J): sum_0 (K_0): S_0[k] += A[i,j] * B[j,k]
      out (K):    C[i,k] = S[k]                                   sum_1 (K_1): S_1[k] += A[i,j] * B[j,64+k]
                                                  out_0 (K_0): C[i,k] = S_0[k];  out_1 (K_1): C[i,64+k] = S_1[k]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from ....frozen import dataclass
from ...language.axes import Axis, StageIError, dense_fixed
from ...language.expr import Binary, Const, Expr, Load, Var
from ...language.program import Buffer, Iteration, Program, Store, map_iterations, map_store, walk_iterations
from ...language.traversal import map_children, walk
from ...language.validate import changed
from .dependence import check_separable, indexed_otherwise


def tile_axis(
    program: Program, axis_name: str, tiles: tuple[tuple[int, ...], ...], within: str | None = None
) -> Program:
    """Cut the spatial axis `axis_name` into tiles of chunks; widths must add up to its length.

    Refuses (StageIError) an axis that is not static dense, that is reduced over, that is not the last axis where it
    is visited, or whose tiles would see each other: what is stored under the axis must be indexed by its own iterator.
    Local buffers on the axis are cut with it; within a single tile one that is also indexed otherwise stays whole.

    within: the iteration in which the axis is cut. None: everywhere.
    """
    axis = program.axis(axis_name)
    where = program.iterations if within is None else (program.iteration(within),)
    _check(program, where, axis, tiles)
    chunks: list[_Chunk] = []
    start = 0
    for t, widths in enumerate(tiles):
        for width in widths:
            number = len(chunks)
            name = f"{axis.name}_{number}" if within is None else f"{axis.name}_{within}_{number}"
            chunks.append(_Chunk(t, number, start, width, dense_fixed(name, width)))
            start += width
    if len(tiles) == 1:
        done = _in_place(where, axis, chunks)
    else:
        done = tuple(_outer(it, axis, chunks) for it in where)
    iterations = done if within is None else _put(program.iterations, where[0], done)
    at = program.axes.index(axis) + 1
    # the axis itself stays: parameters are still declared on it
    axes = program.axes[:at] + tuple(c.axis for c in chunks) + program.axes[at:]
    step = f"tile_axis({axis_name}, {tiles}{'' if within is None else f', {within}'})"
    return changed(program, step, axes=axes, iterations=iterations)


def _put(iterations: tuple[Iteration, ...], old: Iteration, new: tuple[Iteration, ...]) -> tuple[Iteration, ...]:
    """The iterations with others in the place of one of them, or of one that they hold."""

    def visit(it: Iteration) -> tuple[Iteration, ...]:
        return new if it == old else (it,)

    return map_iterations(iterations, visit)


Split: TypeAlias = dict[tuple[Buffer, int], Buffer]
"""The local buffers that chunks have in the place of one, by that one and the chunk's number."""


@dataclass(frozen=True)
class _Chunk:
    tile: int
    number: int
    start: int
    width: int
    axis: Axis


def _check(program: Program, where: Sequence[Iteration], axis: Axis, tiles: Sequence[Sequence[int]]) -> None:
    if axis.kind != "dense_fixed" or not isinstance(axis.length, int):
        raise StageIError(f"tile_axis: axis {axis.name!r} is not dense-fixed with a static length")
    widths = [w for tile in tiles for w in tile]
    if sum(widths) != axis.length or any(w < 1 for w in widths):
        raise StageIError(f"tile_axis: tiles {tiles} do not add up to the length {axis.length} of axis {axis.name!r}")
    for it in walk_iterations(where):
        if axis not in it.axes:
            continue
        if it.axes[-1] != axis or it.kinds[-1] != "S":
            raise StageIError(f"tile_axis: axis {axis.name!r} must be the last and a spatial axis of {it.name!r}")
        if it.locals:
            raise StageIError(f"tile_axis: iteration {it.name!r} over axis {axis.name!r} has local buffers of its own")
        if any(isinstance(s, Iteration) for s in it.body):
            raise StageIError(f"tile_axis: iteration {it.name!r} holds iterations under axis {axis.name!r}")
    if any(axis in b.axes for b in program.buffers if b.scope == "temporary"):
        raise StageIError(f"tile_axis: a temporary buffer stands on axis {axis.name!r}")


def _visits(statement: Store | Iteration, axis: Axis) -> bool:
    return isinstance(statement, Iteration) and any(axis in it.axes for it in walk_iterations((statement,)))


def _outer(it: Iteration, axis: Axis, chunks: list[_Chunk]) -> Iteration:
    """Rewrite below the iteration whose statements visit the axis directly."""
    if axis in it.axes:
        raise StageIError(f"tile_axis: iteration {it.name!r} visits axis {axis.name!r} outside any enclosing iteration")
    if not any(_visits(s, axis) for s in it.body):
        return it
    if not any(isinstance(s, Iteration) and axis in s.axes for s in it.body):
        inner = (_outer(s, axis, chunks) if isinstance(s, Iteration) and _visits(s, axis) else s for s in it.body)
        return replace(it, body=tuple(inner))
    check_separable(it, axis, "tile_axis")
    owned = [b for b in it.locals if axis in b.axes]
    kept = tuple(b for b in it.locals if axis not in b.axes)
    split = {(b, c.number): _part(b, axis, c) for b in owned for c in chunks}
    body: list[Store | Iteration] = []
    for t in sorted({c.tile for c in chunks}):
        mine = [c for c in chunks if c.tile == t]
        for statement in it.body:
            if isinstance(statement, Iteration) and axis in statement.axes:
                body.extend(_tile(statement, axis, t, mine, split))
            elif t == 0:
                body.append(statement)
    return replace(it, locals=kept + tuple(split.values()), body=tuple(body))


def _in_place(iterations: tuple[Iteration, ...], axis: Axis, chunks: list[_Chunk]) -> tuple[Iteration, ...]:
    """Every iteration over the axis cut where it stands."""
    whole = indexed_otherwise(iterations, axis, None)
    local = [b for it in walk_iterations(iterations) for b in it.locals if axis in b.axes and b not in whole]
    split = {(b, c.number): _part(b, axis, c) for b in local for c in chunks}

    def visit(it: Iteration) -> tuple[Iteration, ...]:
        if axis in it.axes:
            return tuple(_tile(it, axis, 0, chunks, split))
        kept = tuple(b for b in it.locals if b not in local)
        return (replace(it, locals=kept + tuple(split[b, c.number] for b in it.locals if b in local for c in chunks)),)

    return map_iterations(iterations, visit)


def _part(buffer: Buffer, axis: Axis, chunk: _Chunk) -> Buffer:
    axes = tuple(chunk.axis if a == axis else a for a in buffer.axes)
    return Buffer(f"{buffer.name}_{chunk.number}", axes, buffer.dtype, buffer.scope)


def _tile(it: Iteration, axis: Axis, tile: int, chunks: list[_Chunk], split: Split) -> list[Iteration]:
    """One iteration on (..., K) for one tile: its init, then its body, chunk by chunk."""
    var = it.variable(axis)
    out = []
    for c in chunks:
        if it.init:
            spatial = it.spatial
            name = f"{it.name}_zero_{c.number}"
            axes = spatial[:-1] + (c.axis,)
            variables = tuple(it.variable(a) for a in spatial)
            stores = tuple(_store(s, var, axis, c, split) for s in it.init)
            out.append(Iteration(name, axes, "S" * len(axes), variables, (), stores))
    # a condition on the tiled axis goes with the chunks, any other stays with the reduction around them
    within = it.where is not None and (len(it.axes) == 1 or var in walk(it.where))
    inner = []
    for c in chunks:
        stores = tuple(_store(s, var, axis, c, split) for s in it.stores)
        where = _substitute(it.where, var, axis, c, split) if within and it.where is not None else None
        inner.append(Iteration(f"{it.name}_{c.number}", (c.axis,), "S", (var,), (), stores, where=where))
    if len(it.axes) == 1:
        return out + inner
    rest = replace(
        it,
        name=f"{it.name}_tile_{tile}",
        axes=it.axes[:-1],
        kinds=it.kinds[:-1],
        variables=it.variables[:-1],
        init=(),
        body=tuple(inner),
        where=None if within else it.where,
    )
    return out + [rest]


def _store(store: Store, var: Var, axis: Axis, chunk: _Chunk, split: Split) -> Store:
    return map_store(store, lambda expr: _substitute(expr, var, axis, chunk, split))


def _substitute(expr: Expr, var: Var, axis: Axis, chunk: _Chunk, split: Split) -> Expr:
    """The iterator becomes start + iterator; in an access to a local buffer, the chunk's own buffer and iterator."""
    if expr == var:
        return var if chunk.start == 0 else Binary("+", Const(chunk.start, "int64"), var)
    local = split.get((expr.buffer, chunk.number)) if isinstance(expr, Load) else None
    if local is None or not isinstance(expr, Load):
        return map_children(expr, lambda e: _substitute(e, var, axis, chunk, split))
    indices = []
    for a, e in zip(expr.buffer.axes, expr.indices):
        if a == axis and e != var:
            raise StageIError(f"tile_axis: local buffer {expr.buffer.name!r} is indexed along {axis.name!r} by {e!r}")
        indices.append(e if a == axis else _substitute(e, var, axis, chunk, split))
    return Load(local, tuple(indices))
