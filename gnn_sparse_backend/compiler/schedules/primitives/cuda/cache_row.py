"""Load what a team needs to know of the edges of a row once: every lane loads that of one edge, for all lanes."""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi

from .....deferred import s_tir, sym, tirx, tirx_buffer, tvm
from .....deferred import tir_builder as T
from .....frozen import dataclass
from ....codegen.nodes import blocks, int64, nodes, own_block, sequence, substitute, with_parts
from ....language.axes import StageIError, refuse
from ....language.program import Iteration, Program, walk_iterations
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.loops import bound_loop, rewrite_loop

WARP = 32
# Elements whose gathers are under way at a time, as the compiler of CUDA source unrolls: the addresses of all are at
# hand.
UNROLL = 4


@iteration_primitive(on_gpu=True, instructions=True)
def cache_row(
    stage2: PositionFunction, iteration: Iteration, lanes: int, instructions: bool = True
) -> PositionFunction:
    """Go through the elements of `iteration` in stretches of `lanes`, and let each thread of a team load what one of
    them takes.

    Coalesced row caching (GE-SpMM: Huang et al., SC 2020, section 4.1). Column indices, numbers and weights of
    neighbouring non-zeros lie side by side, so a stretch of them is one load; without it every lane loads the same one,
    time and again. What is cached is every load of a parameter that depends on the element and on nothing inside it. It
    lies in a register of the lane, and is handed on by a shuffle among the threads of the team, which no condition on
    lanes surrounds.

        for j in range(n):                             for stretch in range(ceil(n / 32)):
            with block("edges"):                           for l in threads(32):
                S[:] += B[indices[p + vj], :]      ->          C[l] = indices[p + min(stretch * 32 + l, n - 1)]
                                                           for s in range(min(32, n - stretch * 32)):
                                                               for l in threads(32): c = C[s]
                                                               with block("edges"): S[:] += B[c, :]

    Lanes beyond the end load the last element again, so that threads do not part. A load under a condition of the
    element's own (padding) is made under it. Elements keep their order, and so does every bit of the result.
    instructions: C[s] is read by an instruction that only a GPU has. Without it the loops say the same, and any
    interpreter runs them.

    Last of all primitives: it parts the loop from the block. Preconditions, each refused with a StageIError: lanes are
    a power of two from 2 to 32; what `refuses` names. Where there is nothing to cache the loop stays as it is.
    """
    where = f"cache_row: iteration {iteration.name!r}"
    if lanes not in (2, 4, 8, 16, 32):
        raise StageIError(f"{where}: {lanes} lanes are not a power of two from 2 to 32, the threads of a warp")
    refuse(where, refuses(stage2.program, iteration))
    stored = [store.buffer for store in nodes(stage2.function.body, tirx.BufferStore)]
    mask = team_mask(stage2.function, iteration.name, lanes) if instructions else None
    readable = {p for p in stage2.function.params if tirx_buffer.is_buffer_var(p)}.difference(stored)

    def change(loop: tirx.For) -> tirx.Stmt:
        row = _Row(loop, readable, lanes, mask)
        return row.statement() if row.cached else loop

    return rewrite_loop(stage2, iteration.name, 0, change)


def refuses(program: Program, iteration: Iteration) -> str | None:
    """Why the elements of `iteration` cannot be gone through in stretches, or None."""
    if iteration in program.iterations:
        return "is not nested in another, so no team goes through it"
    if len(iteration.axes) != 1:
        return "is not over one axis"
    if any(axis.role == "lane" for axis in iteration.axes):
        return "is over the lanes themselves"
    if iteration.init:
        return "has an init; give it a nest of its own"
    around = [it for it in walk_iterations(program.iterations) if iteration in walk_iterations(it.body)]
    return next(
        (
            f"is visited by the lanes of {it.name!r} one by one"
            for it in around
            if any(axis.role == "lane" for axis in it.axes)
        ),
        None,
    )


@dataclass(frozen=True)
class _Cached:
    """load: of an element. guard: the condition of it, or None. row: of all lanes; one: of the element at hand."""

    load: tvm.ir.TensorLoad
    guard: tirx.Expr | None
    row: tirx.Buffer
    one: tirx.Buffer


class _Row:
    """A loop over the elements of a row, and what its block loads of an element.

    readable: buffers that nothing stores to. mask: the threads of the team, where they shuffle.
    """

    def __init__(self, loop: tirx.For, readable: set[tirx.Buffer], lanes: int, mask: tirx.Expr | None) -> None:
        self.loop, self.block, self.readable, self.lanes, self.mask = loop, loop.body.block, readable, lanes, mask
        self.at = self.block.iter_vars[0].var
        self.inside = {each.loop_var for each in nodes(self.block.body, tirx.For)}
        self.inside |= {v.var for each in blocks(self.block.body) for v in each.iter_vars}
        self.cached: list[_Cached] = []
        # conditions around what is being visited; None for one that is not looked into
        self.guards: list[tirx.Expr | None] = []
        self.body = tvm_ffi.structural_mutate(
            self.block.body,
            [
                (tvm.ir.TensorLoad, self._load),
                (tirx.IfThenElse, self._condition),
                (tvm.ir.Call, self._call),
                (s_tir.SBlock, self._regions),
            ],
        )

    def statement(self) -> tirx.Stmt:
        """What takes the place of the loop."""
        loop, count, width = self.loop, self.loop.extent, int64(self.lanes)
        stretch, lane = tirx.Var("stretch", "int64"), tirx.Var("lane", "int64")
        element = tirx.min(stretch * width + lane, count - int64(1))
        fetches = [tirx.BufferStore(each.row, self._fetch(each, element), [lane]) for each in self.cached]
        first = stretch * width
        here = [self._hand_on(each, lane) for each in self.cached]
        block = with_parts(self.block, body=self.body)
        visit = s_tir.SBlockRealize([first + loop.loop_var], loop.body.predicate, block)
        exact = isinstance(count, tirx.IntImm) and count.value % self.lanes == 0
        length = width if exact else tirx.min(width, count - first)
        visit = sequence([_threads(lane, width, here), visit])
        unrolled = {"pragma_unroll": UNROLL}
        visits = tirx.For(loop.loop_var, int64(0), length, tirx.ForKind.SERIAL, visit, annotations=unrolled)
        body = sequence([_threads(lane, width, fetches), visits])
        stretches = tirx.For(
            stretch, int64(0), tirx.floordiv(count + int64(self.lanes - 1), width), tirx.ForKind.SERIAL, body
        )
        buffers = [buffer for each in self.cached for buffer in (each.row, each.one)]
        return own_block(f"{self.block.name_hint}_cached", stretches, buffers)

    def _fetch(self, each: _Cached, element: tirx.Expr) -> tirx.Expr:
        load = substitute(each.load, {self.at: element})
        if each.guard is None:
            return load
        return tirx.if_then_else(substitute(each.guard, {self.at: element}), load, tirx.const(0, each.load.ty.dtype))

    def _hand_on(self, each: _Cached, lane: tirx.Expr) -> tirx.Stmt:
        """What a lane has of all of a stretch, to every lane."""
        turn, first = self.loop.loop_var, [int64(0)]
        if self.mask is None:
            return tirx.BufferStore(each.one, each.row[turn], first)
        width = tirx.IntImm("int32", self.lanes)
        value = T.tvm_warp_shuffle(self.mask, each.row[lane], turn.astype("int32"), width, tirx.IntImm("int32", WARP))
        return tirx.BufferStore(each.one, value, first)

    def _load(self, node: tvm.ir.TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        taken = self._taken(node)
        return mutator.default_mutate(node) if taken is None else taken

    def _taken(self, node: tvm.ir.TensorLoad) -> tirx.Expr | None:
        """What takes the place of a load of the element: what was cached of it; None for any other load."""
        if self.at not in _variables(node) or not self._of_element(node):
            return None
        guard = None
        for each in self.guards:
            if each is None:
                return None
            if self._holds_for_some_lane(each):
                continue
            if not self._of_element(each):
                return None
            guard = each if guard is None else tirx.And(guard, each)
        for each in self.cached:
            if tvm_ffi.structural_equal(each.load, node) and (each.guard is None or _same(each.guard, guard)):
                return each.one[int64(0)]
        name, dtype = f"{node.source.name}_{len(self.cached)}", node.ty.dtype
        row = tirx.decl_buffer([int64(self.lanes)], dtype, name=f"{name}_row", scope="local", layout=None)
        one = tirx.decl_buffer([int64(1)], dtype, name=f"{name}_one", scope="local", layout=None)
        self.cached.append(_Cached(node, guard, row, one))
        return one[int64(0)]

    def _of_element(self, expr: tirx.Expr) -> bool:
        """Whether the expression is the same for all lanes, and whenever it is asked for."""
        return not _variables(expr) & self.inside and _buffers(expr) <= self.readable

    def _holds_for_some_lane(self, condition: tirx.Expr) -> bool:
        """Whether what stands under a condition is surely done by the first lane or of the first feature."""
        first = {var: int64(0) for var in _variables(condition) & self.inside}
        return bool(first) and sym.Analyzer().can_prove(substitute(condition, first))

    def _condition(self, node: tirx.IfThenElse, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        test = mutator.mutate(node.condition)
        self.guards.append(node.condition)
        then = mutator.mutate(node.then_case)
        self.guards[-1] = tirx.Not(node.condition)
        otherwise = None if node.else_case is None else mutator.mutate(node.else_case)
        self.guards.pop()
        return tirx.IfThenElse(test, then, otherwise)

    def _call(self, node: tvm.ir.Call, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        if node.op.name.rsplit(".", 1)[-1] != "if_then_else":
            return mutator.default_mutate(node)
        self.guards.append(None)
        done = mutator.default_mutate(node)
        self.guards.pop()
        return done

    def _regions(self, node: s_tir.SBlock, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        """A block with its regions as they are: nothing behind the primitives reads them."""
        return with_parts(node, body=mutator.mutate(node.body))


def _threads(lane: tirx.Expr, lanes: tirx.Expr, statements: Sequence[tirx.Stmt]) -> tirx.Stmt:
    own = tirx.Var("lane", "int64")
    return bound_loop(own, lanes, substitute(sequence(statements), {lane: own}), "threadIdx.x")


def team_mask(function: tirx.PrimFunc, block: str, lanes: int) -> tirx.Expr:
    """The bits of the threads of a team among those of its warp: teams of one warp are at different elements.

    Threads of a block are counted along threadIdx.x, the lanes of a team, first.
    """
    if lanes == WARP:
        return tirx.const((1 << WARP) - 1, "uint32")
    team = int64(0)
    for loop in nodes(function.body, tirx.For):
        tag = "" if loop.thread_binding is None else loop.thread_binding.thread_tag
        if tag == "threadIdx.y" and any(inner.name_hint == block for inner in blocks(loop.body)):
            team = loop.loop_var
    first = tirx.floormod(team * int64(lanes), int64(WARP)).astype("uint32")
    return tirx.const((1 << lanes) - 1, "uint32") << first


def _variables(expr: tirx.Expr) -> set[tirx.Var]:
    return {var for var in nodes(expr, tvm.ir.Var) if not tirx_buffer.is_buffer_var(var)}


def _buffers(expr: tirx.Expr) -> set[tirx.Buffer]:
    return {load.source for load in nodes(expr, tvm.ir.TensorLoad)}


def _same(one: tirx.Expr, other: tirx.Expr | None) -> bool:
    return other is not None and tvm_ffi.structural_equal(one, other)
