"""Fold the elements of a run-time number across the threads of a team: parallel reduction, for rows of few features."""

from __future__ import annotations

import functools
from collections.abc import Callable

from .....deferred import s_tir, tirx
from .....deferred import tir_builder as T
from ....codegen.nodes import blocks, buffer_like, int64, own_block, sequence, substitute
from ....language.axes import StageIError, refuse
from ....language.program import Iteration
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..cpu.lanes import refuses
from ..shared.folded import Folded
from ..shared.loops import bound_loop, rewrite_loop
from .cache_row import team_mask

WARP = 32


@iteration_primitive(on_gpu=True, instructions=True)
def fold_across_lanes(
    stage2: PositionFunction, iteration: Iteration, lanes: int, instructions: bool = True
) -> PositionFunction:
    """Let `lanes` threads (threadIdx.x) walk along the elements of the reduction `iteration` side by side, and fold
    theirs.

    A row of few features keeps few threads busy; neighbouring elements of its sparse row lie side by side in memory
    (parallel reduction: Huang et al., section 3.1). What the threads have becomes one in halves, and the first one's
    result is every thread's: the order depends on the number of elements alone. Whatever `folds` knows goes as sums do:
    the result of another thread stands where an element's term stood.

        for j in range(n):                        for l in threads(32): P[l] = 0
            with block("sum"):                    for turn in range(ceil(n / 32)):
                S[0] += x[vj]              ->         for l in threads(32):
                                                          if turn * 32 + l < n: P[l] += x[turn * 32 + l]
                                                  for d in (16, 8, 4, 2, 1):
                                                      for l in threads(32): Q[l] = P[min(l + d, 31)]
                                                      for l in threads(32): P[l] += Q[l]
                                                  for l in threads(32): R = P[0]
                                                  S[0] += R

    instructions: Q[l] and R are read by instructions that only a GPU has, which name the threads of the team: teams of
    one warp have rows of other lengths. Without them the loops say the same, and any interpreter runs them.
    Last of all primitives: it parts the loop from the block. Preconditions, each refused with a StageIError: lanes are
    a power of two from 2 to 32; what `lanes.refuses` names.
    """
    where = f"fold_across_lanes: iteration {iteration.name!r}"
    if lanes not in (2, 4, 8, 16, 32):
        raise StageIError(f"{where}: {lanes} lanes are not a power of two from 2 to 32, the threads of a warp")
    refuse(where, refuses(stage2.program, iteration))
    inner = {it.name: it for it in iteration.nested}
    mask = team_mask(stage2.function, iteration.name, lanes) if instructions else None
    return rewrite_loop(stage2, iteration.name, 0, lambda loop: _Across(loop, inner, lanes, mask).statement())


class _Across:
    """The statements that take the place of the loop. inner: the iterations in its block, by name. mask: the threads of
    the team, where they shuffle."""

    def __init__(self, loop: tirx.For, inner: dict[str, Iteration], lanes: int, mask: tirx.Expr | None) -> None:
        self.loop, self.lanes, self.mask = loop, lanes, mask
        self.block = loop.body.block
        self.at = self.block.iter_vars[0].var
        self.parts = [
            _Part(block, inner[block.name_hint], lanes) for block in blocks(self.block.body) if block.name_hint in inner
        ]
        if len(self.parts) != len(inner):
            raise StageIError(f"fold_across_lanes: block {self.block.name_hint!r} has not the form of its iteration")

    def statement(self) -> tirx.Stmt:
        """What takes the place of the loop."""
        steps = [self._threads(lambda lane: sequence([part.begin(lane) for part in self.parts])), self._turns()]
        half = self.lanes // 2
        while half:
            steps.append(self._threads(functools.partial(self._fetch, half)))
            steps.append(self._threads(lambda lane: sequence([part.merge(lane) for part in self.parts])))
            half //= 2
        steps.append(self._threads(lambda lane: sequence([part.spread(lane, self.mask) for part in self.parts])))
        finish = sequence([part.finish() for part in self.parts])
        if any(part.has_places for part in self.parts):
            finish = tirx.IfThenElse(self.loop.extent > int64(0), finish, None)
        steps.append(finish)
        buffers = [buffer for part in self.parts for buffer in part.buffers]
        return own_block(f"{self.block.name_hint}_lanes", tirx.SeqStmt(steps), buffers)

    def _turns(self) -> tirx.Stmt:
        turn = tirx.Var("turn", "int64")

        def body(lane: tirx.Expr) -> tirx.Stmt:
            element = turn * int64(self.lanes) + lane
            taken = sequence([substitute(part.take(lane), {self.at: element}) for part in self.parts])
            return tirx.IfThenElse(element < self.loop.extent, taken, None)

        count = tirx.floordiv(self.loop.extent + int64(self.lanes - 1), int64(self.lanes))
        return tirx.For(turn, int64(0), count, tirx.ForKind.SERIAL, self._threads(body))

    def _fetch(self, distance: int, lane: tirx.Expr) -> tirx.Stmt:
        return sequence([part.fetch(lane, distance, self.mask) for part in self.parts])

    def _threads(self, body: Callable[[tirx.Var], tirx.Stmt]) -> tirx.Stmt:
        lane = tirx.Var("lane", "int64")
        return bound_loop(lane, int64(self.lanes), body(lane), "threadIdx.x")


class _Part(Folded):
    """One of the iterations over features; for each result: what a lane has, what another had, what is left of all."""

    def __init__(self, block: s_tir.SBlock, iteration: Iteration, lanes: int) -> None:
        super().__init__(block, iteration, "fold_across_lanes")
        self.lanes = lanes
        wide, narrow = [int64(lanes), int64(self.width)], [int64(self.width)]
        self.own, self.other, self.total = (
            {b: buffer_like(b, f"{b.name}_{what}", shape, "local") for b in (store.buffer for store in self.stores)}
            for what, shape in (("lanes", wide), ("other", wide), ("total", narrow))
        )

    @property
    def buffers(self) -> list[tirx.Buffer]:
        return [*self.own.values(), *self.other.values(), *self.total.values()]

    def begin(self, lane: tirx.Expr) -> tirx.Stmt:
        return self._each(
            lambda store, k, neutral: tirx.BufferStore(
                self.own[store.buffer], tirx.const(neutral, str(store.buffer.ty.dtype)), [lane, k]
            )
        )

    def take(self, lane: tirx.Expr) -> tirx.Stmt:
        """The element is taken into what the lane has."""
        return self._each(
            lambda store, k, _: tirx.BufferStore(
                self.own[store.buffer],
                substitute(self.replaced(store.value, self._mine(lane, k)), {self.feature: k}),
                [lane, k],
            )
        )

    def fetch(self, lane: tirx.Expr, distance: int, mask: tirx.Expr | None) -> tirx.Stmt:
        """What the lane so far behind has."""

        def other(store: tirx.BufferStore, k: tirx.Expr, _: float) -> tirx.Stmt:
            own = self.own[store.buffer]
            value = own[tirx.min(lane + int64(distance), int64(self.lanes - 1)), k]
            if mask is not None:
                value = T.tvm_warp_shuffle_down(mask, own[lane, k], *map(_int32, (distance, self.lanes, WARP)))
            return tirx.BufferStore(self.other[store.buffer], value, [lane, k])

        return self._each(other)

    def merge(self, lane: tirx.Expr) -> tirx.Stmt:
        """What was fetched is taken into what the lane has, as an element is."""
        return self._each(
            lambda store, k, _: tirx.BufferStore(
                self.own[store.buffer],
                self.replaced(store.value, self._mine(lane, k), lambda b: self.other[b][lane, k]),
                [lane, k],
            )
        )

    def spread(self, lane: tirx.Expr, mask: tirx.Expr | None) -> tirx.Stmt:
        """What the first lane has, to all of them."""

        def total(store: tirx.BufferStore, k: tirx.Expr, _: float) -> tirx.Stmt:
            own = self.own[store.buffer]
            value = own[int64(0), k]
            if mask is not None:
                value = T.tvm_warp_shuffle(mask, own[lane, k], *map(_int32, (0, self.lanes, WARP)))
            return tirx.BufferStore(self.total[store.buffer], value, [k])

        return self._each(total)

    def finish(self) -> tirx.Stmt:
        """What is left of all is taken into the result."""
        return self._each(
            lambda store, k, _: self.result(store, self.replaced(store.value, None, lambda b: self.total[b][k]), k)
        )

    def _mine(self, lane: tirx.Expr, k: tirx.Expr) -> Callable[[tirx.Buffer], tirx.Expr]:
        return lambda buffer: self.own[buffer][lane, k]

    def _each(self, statement: Callable[[tirx.BufferStore, tirx.Expr, float], tirx.Stmt]) -> tirx.Stmt:
        """A statement for each feature of each store, in order: of (store, feature, neutral)."""
        return sequence(
            [
                statement(store, int64(k), neutral)
                for k in range(self.width)
                for store, neutral in zip(self.stores, self.neutral)
            ]
        )


def _int32(value: int) -> tirx.IntImm:
    return tirx.IntImm("int32", value)
