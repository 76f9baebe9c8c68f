"""A sum in two stages: partial sums in vector lanes, then a tree over the lanes (rfactor, SparseTIR section 4.2.2).

A sum over a static dense axis is a chain of dependent scalar additions. Cut into lanes it becomes vector additions, and
log2(lanes) halvings at the end.

    dot (K = 90): init D[] = 0; D[] += u[k] * v[k]
  ->
    dot_zero (L = 32):       P[l] = 0
    dot_main (Q = 2, L):     P[l] += u[q * 32 + l] * v[q * 32 + l]
    dot_tail (T = 26):       P[l] += u[64 + l] * v[64 + l]
    dot_16 (16):             P_16[l] = P[l] + P[16 + l]       ... down to one
    dot_sum (1):             D[] = P_1[0]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ...language.axes import Axis, StageIError, dense_fixed
from ...language.expr import Binary, Const, Expr, Load, Var
from ...language.program import Buffer, Iteration, Program, Store, map_iterations
from ...language.traversal import rewrite, walk
from ...language.validate import changed


def reduce_in_lanes(program: Program, iteration_name: str, lanes: int) -> Program:
    """Run the sum `iteration_name` in `lanes` lanes, a power of two not above its axis's length.

    Refuses (StageIError) anything but an iteration nested in another, over one static dense reduction axis, whose init
    and body each store to one and the same element, the body adding to it.
    """
    it = program.iteration(iteration_name)
    where = f"reduce_in_lanes: iteration {it.name!r}"
    store, value = check_sum(where, program, it)
    length = it.axes[0].static_length
    if lanes < 1 or lanes & (lanes - 1) or lanes > length:
        raise StageIError(f"{where}: {lanes} lanes are not a power of two of at most {length}, the axis's length")
    name, known = it.axes[0].name, {axis.name for axis in program.axes}
    if f"{name}_lanes" in known:  # another sum over it is in lanes
        name = f"{name}_{it.name}"
    step = f"reduce_in_lanes({iteration_name}, {lanes})"
    return in_stages(program, step, it, _Lanes(it, store, value.b, lanes, name))


class Stages(Protocol):
    """Iterations in the place of one, and the axes and local buffers that they need."""

    axes: list[Axis]
    locals: list[Buffer]
    stages: list[Iteration]


def in_stages(program: Program, step: str, it: Iteration, made: Stages) -> Program:
    """Replace an iteration by its lane stages. step: the transformation, in words."""

    def visit(found: Iteration) -> tuple[Iteration, ...]:
        if found.name == it.name:
            return tuple(made.stages)
        if any(s is it or s in made.stages for s in found.body):
            return (replace(found, locals=found.locals + tuple(made.locals)),)
        return (found,)

    iterations = map_iterations(program.iterations, visit)
    return changed(program, step, axes=program.axes + tuple(made.axes), iterations=iterations)


def check_sum(where: str, program: Program, it: Iteration) -> tuple[Store, Binary]:
    """The store of a sum over a static axis that can be parted, and its value, an addition to what it stores to.

    Raises StageIError, which begins with ``where``, for any other iteration.
    """
    axis = it.axes[0]
    if it in program.iterations:
        raise StageIError(f"{where} is not nested in another, so its lanes would live nowhere")
    if len(it.axes) != 1 or it.kinds != "R" or axis.kind != "dense_fixed" or not isinstance(axis.length, int):
        raise StageIError(f"{where} is not over one static dense reduction axis")
    if len(it.init) != 1 or len(it.body) != 1 or not isinstance(it.body[0], Store):
        raise StageIError(f"{where} must have one initial store and one store in its body")
    store, value = it.body[0], it.body[0].value
    target = Load(store.buffer, store.indices)
    if (it.init[0].buffer, it.init[0].indices) != (store.buffer, store.indices):
        raise StageIError(f"{where} initialises another element than it adds to")
    if it.where is not None or it.locals:
        raise StageIError(f"{where} has a condition or local buffers")
    if not isinstance(it.init[0].value, Const) or it.init[0].value.value != 0:
        raise StageIError(f"{where} does not start from zero, which every lane would add again")
    if not isinstance(value, Binary) or value.op != "+" or value.a != target:
        raise StageIError(f"{where} does not add to {store.buffer.name!r} in the form X = X + term")
    if any(isinstance(e, Load) and e.buffer == store.buffer for e in walk(value.b)):
        raise StageIError(f"{where} adds a term that depends on {store.buffer.name!r} itself")
    return store, value


class _Lanes:
    """The stages that take the place of the sum, and the axes and local buffers they need.

    name: what the names of axes begin with.
    """

    def __init__(self, it: Iteration, store: Store, term: Expr, lanes: int, name: str) -> None:
        self.name, self.var, self.term = it.name, it.variables[0], term
        self.dtype = store.buffer.dtype
        self.axes: list[Axis] = []
        self.locals: list[Buffer] = []
        self.stages: list[Iteration] = []
        axis = it.axes[0]
        rounds, tail = divmod(axis.static_length, lanes)
        lane = self._axis(f"{name}_lanes", lanes)
        partial = self._local(f"{self.name}_partial", lane)
        here = Var(f"{self.name}_lane")
        self._stage("zero", (lane,), "S", (here,), Store(partial, (here,), it.init[0].value))
        step = Var(f"{self.name}_round")
        if rounds == 1:
            self._stage("main", (lane,), "S", (here,), self._add(partial, here, here))
        else:
            outer = self._axis(f"{name}_rounds", rounds)
            at = Binary("+", Binary("*", step, Const(lanes, "int64")), here)
            inner = Iteration(f"{self.name}_main", (lane,), "S", (here,), (), (self._add(partial, here, at),))
            self.stages.append(Iteration(f"{self.name}_loop", (outer,), "R", (step,), (), (inner,)))
        if tail:
            rest = self._axis(f"{name}_tail", tail)
            at = Binary("+", Const(rounds * lanes, "int64"), here)
            self._stage("tail", (rest,), "S", (here,), self._add(partial, here, at))
        while lanes > 1:
            lanes //= 2
            half = self._axis(f"{name}_{lanes}", lanes)
            halved = self._local(f"{self.name}_{lanes}_partial", half)
            other = Binary("+", Const(lanes, "int64"), here)
            total = Binary("+", partial[here], partial[other])
            self._stage(str(lanes), (half,), "S", (here,), Store(halved, (here,), total))
            partial, lane = halved, half
        result = Store(store.buffer, store.indices, partial[here])
        self._stage("sum", (lane,), "S", (here,), result)

    def _axis(self, name: str, length: int) -> Axis:
        self.axes.append(dense_fixed(name, length))
        return self.axes[-1]

    def _local(self, name: str, axis: Axis) -> Buffer:
        self.locals.append(Buffer(name, (axis,), self.dtype, "local"))
        return self.locals[-1]

    def _stage(self, suffix: str, axes: tuple[Axis, ...], kinds: str, variables: tuple[Var, ...], store: Store) -> None:
        self.stages.append(Iteration(f"{self.name}_{suffix}", axes, kinds, variables, (), (store,)))

    def _add(self, partial: Buffer, here: Var, at: Expr) -> Store:
        term = rewrite(self.term, lambda e: at if e == self.var else None)
        return Store(partial, (here,), Binary("+", partial[here], term))
