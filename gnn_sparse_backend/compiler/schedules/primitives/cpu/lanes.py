"""Fold the elements of a run-time number in lanes: independent chains of additions or maxima for each feature."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence

import tvm_ffi

from .....deferred import s_tir, tirx, tvm
from ....codegen.nodes import blocks, buffer_like, int64, nodes, own_block, sequence, substitute
from ....language.axes import Axis, StageIError, refuse
from ....language.folds import folds
from ....language.program import Iteration, Program, Store
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.folded import Folded, Put
from ..shared.loops import rewrite_loop


@iteration_primitive()
def fold_in_lanes(stage2: PositionFunction, iteration: Iteration, lanes: int) -> PositionFunction:
    """Cut the reduction loop of `iteration` into rounds of `lanes` elements, each lane with partial results of its own.

    A narrow row is one chain of dependent additions, as long as there are non-zeros. In lanes the chains are
    independent (parallel reduction: Huang et al., section 3.1; rfactor of a loop of run-time extent). What does not
    fill a round is added to the total one by one, and the lanes are added up in halves: the order depends on the number
    of elements alone. Whatever `folds` knows goes as sums do: the result of another lane stands where an element's term
    stood.

    With one feature the lanes are a vector, and what does not fill it is the beginning of a vector (`_Rest`), added by
    no loop, whose end would be mispredicted. Static dense axes within the reduction axis are one loop with it.

        for j in range(n):                        if n >= 4:
            with block("sum"):                        P[0:4] = 0
                S[0] += x[vj]              ->         for q in range(n // 4):
                                                          for l in unrolled(4): P[l] += x[q * 4 + l]
                                                      P[0:2] += P[2:4]; P[0:1] += P[1:2]
                                                      S[0] += P[0]
                                                  for j in range(n % 4):
                                                      with block("sum"): S[0] += x[n - n % 4 + j]   (vj)

    Last of all primitives: it parts the loop from the block.

    Preconditions, each refused with a StageIError: lanes are a power of two, at least 2; what `refuses` names.
    """
    where = f"fold_in_lanes: iteration {iteration.name!r}"
    if lanes < 2 or lanes & (lanes - 1):
        raise StageIError(f"{where}: {lanes} lanes are not a power of two of at least 2")
    refuse(where, refuses(stage2.program, iteration))
    inner = {it.name: it for it in iteration.nested}
    level = len(iteration.axes) - 1
    return rewrite_loop(
        stage2, iteration.name, level, lambda loop: _Lanes(loop, inner, lanes).statement(stage2, iteration)
    )


def refuses(program: Program, iteration: Iteration) -> str | None:
    """Why the elements of `iteration` cannot be folded in lanes, or None."""
    if iteration in program.iterations:
        return "is not nested in another, so its lanes would live nowhere"
    _, *within = iteration.axes
    if set(iteration.kinds) != {"R"} or not all(
        axis.kind == "dense_fixed" and isinstance(axis.length, int) for axis in within
    ):
        return "is not over one reduction axis, or one and static dense ones in it"
    if iteration.init or iteration.where is not None or iteration.locals or any(axis.padded for axis in iteration.axes):
        return "has an init, a condition, local buffers or padding"
    stores: list[Store] = []
    for inner in iteration.body:
        if not isinstance(inner, Iteration) or inner.kinds != "S":
            return "holds more than iterations over one static dense spatial axis each"
        if inner.axes[0].kind != "dense_fixed" or not isinstance(inner.axes[0].length, int):
            return "holds more than iterations over one static dense spatial axis each"
        if inner.where is not None or not inner.body or not all(isinstance(store, Store) for store in inner.body):
            return f"holds {inner.name!r}, which does more than store"
        if any(store.buffer.scope != "local" or store.indices != inner.variables for store in inner.stores):
            return f"holds {inner.name!r}, which does not store to its own element of a local buffer"
        stores += inner.stores
    found = folds(stores)
    return found if isinstance(found, str) else None


class _Lanes:
    """The statements that take the place of the loop. inner: the iterations in its block, by name."""

    def __init__(self, loop: tirx.For, inner: dict[str, Iteration], lanes: int) -> None:
        self.lanes, self.loops = lanes, [loop]
        while isinstance(self.loops[-1].body, tirx.For):
            self.loops.append(self.loops[-1].body)
        self.realize = self.loops[-1].body
        self.block = self.realize.block
        self.extent = functools.reduce(operator.mul, (each.extent for each in self.loops))
        self.gathered: list[tirx.Buffer] = []
        self.rest = tirx.floormod(self.extent, int64(lanes))
        self.parts = [
            _Part(block, inner[block.name_hint], lanes) for block in blocks(self.block.body) if block.name_hint in inner
        ]
        if len(self.parts) != len(inner):
            raise StageIError(f"fold_in_lanes: block {self.block.name_hint!r} has not the form of its iteration")

    def statement(self, stage2: PositionFunction, iteration: Iteration) -> tirx.Stmt:
        begin, steps = ([*many] for many in zip(*((part.begin(), [*part.tree()]) for part in self.parts)))
        rest = self._rest(stage2, iteration.axes[0]) if len(self.loops) == 1 else None
        tree = [step for part in steps for step in part]
        if rest is None:
            full = tirx.SeqStmt([*begin, self._rounds(), *tree])
            found = [tirx.IfThenElse(self.extent >= int64(self.lanes), full, None), self._remainder()]
        else:
            found = [*begin, self._rounds(), rest, *tree]
            if any(part.has_places for part in self.parts):
                found = [tirx.IfThenElse(self.extent > int64(0), sequence(found), None)]
        partials = [partial for part in self.parts for partial in part.partials.values()]
        return own_block(f"{self.block.name_hint}_lanes", sequence(found), [*partials, *self.gathered])

    def _rounds(self) -> tirx.Stmt:
        turn = tirx.Var("turn", "int64")

        def lanes(kind: tirx.ForKind, statement: Callable[[tirx.Var], tirx.Stmt]) -> tirx.Stmt:
            lane = tirx.Var("lane", "int64")
            element = turn * int64(self.lanes) + lane
            return _for(lane, int64(self.lanes), kind, substitute(statement(lane), self._of(element)))

        hints = _hints(self.block.body)
        body = [lanes(tirx.ForKind.UNROLLED, lambda lane: sequence(hints))] if hints else []
        for part in self.parts:
            if part.width > 1:
                body.append(lanes(tirx.ForKind.UNROLLED, part.take))
                continue
            # with one feature the lanes are a vector: LLVM makes scalar code of a choice between unrolled scalars
            body += self._gathered(lanes(tirx.ForKind.VECTORIZED, part.take))
        return _for(turn, tirx.floordiv(self.extent, int64(self.lanes)), tirx.ForKind.SERIAL, sequence(body))

    def _gathered(self, vector: tirx.For) -> list[tirx.Stmt]:
        """The vector loop, before which scalars put side by side what it gathers: where addresses are a vector, each is
        taken out of it again.
        """
        lane = vector.loop_var
        found: list[tuple[tirx.Buffer, tirx.Expr]] = []

        def visit(load: tvm.ir.TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
            inner = [each for place in load.indices for each in nodes(place, tvm.ir.TensorLoad)]
            if not any(var.same_as(lane) for each in inner for var in nodes(each, tirx.Var)):
                return mutator.default_mutate(load)
            known = next((buffer for buffer, other in found if tvm_ffi.structural_equal(other, load)), None)
            if known is None:
                name = f"{load.source.name}_gathered_{len(self.gathered)}"
                known = tirx.decl_buffer((int64(self.lanes),), load.source.ty.dtype, name, layout=None)
                found.append((known, load))
                self.gathered.append(known)
            return known[lane]

        body = tvm_ffi.structural_mutate(vector.body, [(tvm.ir.TensorLoad, visit)])
        each = [
            _for(lane, vector.extent, tirx.ForKind.UNROLLED, tirx.BufferStore(b, load, [lane])) for b, load in found
        ]
        own = tirx.Var("lane", "int64")
        return [*each, _for(own, vector.extent, tirx.ForKind.VECTORIZED, substitute(body, {lane: own}))]

    def _rest(self, stage2: PositionFunction, axis: Axis) -> tirx.Stmt | None:
        """What does not fill a round, in the first lanes of a vector. The others read elements of the next rows, and
        keep what they have; where the last rows of all have too few after them, elements are taken one by one.

        None of several features, and where what is read is not known to be there for every element.
        """
        extent, at = self.extent, self.block.iter_vars[0].var
        if not (axis.is_variable and isinstance(extent, tirx.Sub) and all(part.width == 1 for part in self.parts)):
            return None
        if not _of_elements(stage2, self.block, axis, at, extent.b):
            return None
        stored = next((p for p in stage2.function.params if p.name == str(axis.nnz)), axis.nnz)
        first, rest = extent - self.rest, self.rest.astype("int32")

        def taken(lane: tirx.Expr) -> tirx.Stmt:
            return substitute(sequence([part.take(lane) for part in self.parts]), self._of(first + lane))

        lane = tirx.Var("lane", "int64")
        chosen = _stored_where(lane.astype("int32") < rest, taken(lane))
        at_once = _for(lane, int64(self.lanes), tirx.ForKind.VECTORIZED, chosen)
        single = [tirx.IfThenElse(int64(n) < self.rest, taken(int64(n)), None) for n in range(self.lanes - 1)]
        return tirx.IfThenElse(extent.b + first + int64(self.lanes) <= stored, at_once, sequence(single))

    def _remainder(self) -> tirx.Stmt:
        left = tirx.Var(self.loops[0].loop_var.name, "int64")
        values = list(self._of(self.extent - self.rest + left).values())
        body = s_tir.SBlockRealize(values, self.realize.predicate, self.block)
        return _for(left, self.rest, tirx.ForKind.SERIAL, body)

    def _of(self, element: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        """Variables of the block at one of the elements of all loops."""
        places = {}
        for loop in reversed(self.loops[1:]):
            places[loop.loop_var] = tirx.floormod(element, loop.extent)
            element = tirx.floordiv(element, loop.extent)
        places[self.loops[0].loop_var] = element
        own = zip(self.block.iter_vars, self.realize.iter_values)
        return {iterator.var: substitute(value, places) for iterator, value in own}


class _Part(Folded):
    """One of the iterations over features, and the partial results of each of its stores."""

    def __init__(self, block: s_tir.SBlock, iteration: Iteration, lanes: int) -> None:
        super().__init__(block, iteration, "fold_in_lanes")
        self.lanes = lanes
        shape = [int64(lanes * self.width)]
        self.partials = {
            store.buffer: buffer_like(store.buffer, f"{store.buffer.name}_lanes", shape, "global")
            for store in self.stores
        }

    def begin(self) -> tirx.Stmt:
        def store(buffer: tirx.Buffer, neutral: float) -> tirx.Stmt:
            value = tirx.const(neutral, str(buffer.ty.dtype))
            return _vector(self.lanes * self.width, lambda i: [tirx.BufferStore(buffer, value, [i])])

        return sequence([store(*one) for one in zip(self.partials.values(), self.neutral)])

    def take(self, lane: tirx.Expr) -> tirx.Stmt:
        """The element is taken into the results of its lane."""

        def step(k: tirx.Expr) -> list[tirx.Stmt]:
            place = lane * int64(self.width) + k
            return [
                tirx.BufferStore(partial, substitute(self._with(store.value, place), {self.feature: k}), [place])
                for store, partial in self._both()
            ]

        return _vector(self.width, step)

    def tree(self) -> Iterator[tirx.Stmt]:
        """The lanes become one, in halves, and that is taken into the result as an element."""

        def merge(far: tirx.Expr, i: tirx.Expr) -> list[tirx.Stmt]:
            return [
                tirx.BufferStore(partial, self._with(store.value, i, far + i), [i]) for store, partial in self._both()
            ]

        half = self.lanes // 2
        while half:
            yield _vector(half * self.width, functools.partial(merge, int64(half * self.width)))
            half //= 2

        def result(k: tirx.Expr) -> list[tirx.Stmt]:
            return [self.result(store, self._with(store.value, None, k), k) for store in self.stores]

        yield _vector(self.width, result)

    def _both(self) -> Iterable[tuple[tirx.BufferStore, tirx.Buffer]]:
        return zip(self.stores, self.partials.values())

    def _with(self, value: tirx.Expr, own: tirx.Expr | None = None, other: tirx.Expr | None = None) -> tirx.Expr:
        """The value that is stored, with the results of place ``own`` for those of the loop, and those of ``other`` for
        the terms of the element.
        """

        def at(place: tirx.Expr | None) -> Put | None:
            return None if place is None else lambda buffer: self.partials[buffer][place]

        return self.replaced(value, at(own), at(other))


def _for(var: tirx.Var, extent: tirx.Expr, kind: tirx.ForKind, body: tirx.Stmt) -> tirx.Stmt:
    return tirx.For(var, int64(0), extent, kind, body)


def _vector(width: int, stores: Callable[[tirx.Expr], Sequence[tirx.Stmt]]) -> tirx.Stmt:
    """The statements of stores(k) for every k below `width`, at once."""
    if width == 1:
        return sequence(stores(int64(0)))
    var = tirx.Var("k", "int64")
    return _for(var, int64(width), tirx.ForKind.VECTORIZED, sequence(stores(var)))


def _of_elements(stage2: PositionFunction, body: tirx.Stmt, axis: Axis, at: tirx.Var, begin: tirx.Expr) -> bool:
    """Whether position `at` chooses among the elements of the axis and nothing else, so that what is read with it is
    there for every element of the axis. begin: the first element under the parent.
    """

    def names(place: tirx.Expr) -> bool:
        return any(var.same_as(at) for var in nodes(place, tirx.Var))

    def without_elements(load: tvm.ir.TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        load = mutator.default_mutate(load)
        axes = stage2.axes.get(load.source.name, ())
        if load.source.name == axis.indices:
            is_element = tvm_ffi.structural_equal(load.indices[0], begin + at)
        else:
            is_element = axis in axes and load.indices[axes.index(axis)].same_as(at)
        return tirx.Var("element", load.ty.dtype) if is_element else load

    others = nodes(tvm_ffi.structural_mutate(body, [(tvm.ir.TensorLoad, without_elements)]), tvm.ir.TensorLoad)
    return not any(names(place) for load in others for place in load.indices)


def _stored_where(condition: tirx.Expr, statement: tirx.Stmt) -> tirx.Stmt:
    """The statement, which leaves what it stores to as it is where a condition does not hold."""

    def visit(store: tirx.BufferStore, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        kept = store.buffer[tuple(store.indices)]
        return tirx.BufferStore(store.buffer, tirx.Select(condition, store.value, kept), store.indices)

    stored: tirx.Stmt = tvm_ffi.structural_mutate(statement, [(tirx.BufferStore, visit)])
    return stored


def _hints(body: tirx.Stmt) -> list[tirx.Stmt]:
    """Statements beside the folds: prefetches."""
    parts = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return [s for s in parts if isinstance(s, tirx.Evaluate)]
