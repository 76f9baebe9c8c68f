"""Sum the elements of a run-time number across the threads of a team: parallel reduction, for rows of few features."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from ...coordinate.axes import StageIError
from ...coordinate.program import Iteration
from ...position.function import PositionFunction
from .lanes import refuses
from .loops import bound_loop, rewrite_loop
from .nodes import blocks, int64, sequence, substitute


def sum_across_lanes(stage2: PositionFunction, iteration: Iteration, lanes: int) -> PositionFunction:
    """Let `lanes` threads (threadIdx.x) walk along the elements of the reduction `iteration` side by side, and add up theirs.

    A row of few features keeps few threads busy; neighbouring elements of its sparse row lie side by side in memory
    (parallel reduction: Huang et al., section 3.1). The threads' sums are added up by shuffles, in halves: the order
    depends on the number of elements alone.

        for j in range(n):                        for l in threads(32): P[l] = 0
            with block("sum"):                    for turn in range(ceil(n / 32)):
                S[0] += x[vj]              ->         for l in threads(32):
                                                          if turn * 32 + l < n: P[l] += x[turn * 32 + l]
                                                  for l in threads(32):
                                                      with block("sum_across"): init R = 0; R += P[vl]
                                                  S[0] += R

    Last of all primitives: it parts the loop from the block. Preconditions, each refused with a StageIError: lanes are a
    power of two from 2 to 32; what `lanes.refuses` names.
    """
    where = f"sum_across_lanes: iteration {iteration.name!r}"
    if lanes not in (2, 4, 8, 16, 32):
        raise StageIError(f"{where}: {lanes} lanes are not a power of two from 2 to 32, the threads of a warp")
    reason = refuses(stage2.program, iteration)
    if reason:
        raise StageIError(f"{where} {reason}")
    widths = {it.name: it.axes[0].length for it in iteration.body}
    return rewrite_loop(stage2, iteration.name, 0, lambda loop: _Across(loop, widths, lanes).statement())


class _Across:
    """The statements that take the place of the loop. widths: of the iterations in its block, by name."""

    def __init__(self, loop, widths: dict[str, int], lanes: int):
        self.loop, self.lanes = loop, lanes
        self.block = loop.body.block
        self.at = self.block.iter_vars[0].var
        self.sums = [self._sum(b, widths[b.name_hint]) for b in blocks(self.block.body) if b.name_hint in widths]
        if len(self.sums) != len(widths):
            raise StageIError(f"sum_across_lanes: block {self.block.name_hint!r} has not the form of its iteration")

    def _sum(self, block, width: int):
        store = block.body
        if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
            raise StageIError(f"sum_across_lanes: block {block.name_hint!r} is not one addition")
        name, dtype = store.buffer.name, store.buffer.ty.dtype
        partial = tirx.decl_buffer([int64(self.lanes), int64(width)], dtype, name=f"{name}_lanes", scope="local", layout=None)
        # one for each feature: TVM takes two reductions into one buffer for none
        totals = [tirx.decl_buffer([int64(1)], dtype, name=f"{name}_total_{k}", scope="local", layout=None)
                  for k in range(width)]  # fmt: skip
        return block.iter_vars[0].var, store, partial, totals, width

    def statement(self):
        parts = [*(self._zero(one) for one in self.sums), self._turns()]
        for one in self.sums:
            parts += [self._across(one), self._add(one)]
        buffers = [buffer for _, _, partial, totals, _ in self.sums for buffer in (partial, *totals)]
        block = s_tir.SBlock([], [], [], f"{self.block.name_hint}_lanes", tirx.SeqStmt(parts), None, buffers)
        return s_tir.SBlockRealize([], True, block)

    def _zero(self, one):
        _, store, partial, _, width = one
        zero = tirx.FloatImm(str(store.buffer.ty.dtype), 0.0)
        return self._threads(lambda lane: _unrolled(width, lambda k: tirx.BufferStore(partial, zero, [lane, k])))

    def _turns(self):
        turn = tirx.Var("turn", "int64")

        def body(lane):
            element = turn * int64(self.lanes) + lane
            terms = [_unrolled(one[4], lambda k, one=one: self._term(one, element, lane, k)) for one in self.sums]
            return tirx.IfThenElse(element < self.loop.extent, sequence(terms), None)

        count = tirx.floordiv(self.loop.extent + int64(self.lanes - 1), int64(self.lanes))
        return tirx.For(turn, int64(0), count, tirx.ForKind.SERIAL, self._threads(body))

    def _term(self, one, element, lane, k):
        feature, store, partial, _, _ = one
        term = substitute(store.value.b, {self.at: element, feature: k})
        return tirx.BufferStore(partial, tirx.Add(partial[lane, k], term), [lane, k])

    def _across(self, one):
        _, store, partial, totals, width = one

        def reduction(k):
            total, first = totals[k.value], int64(0)
            def block(lane):
                v = tirx.IterVar(tvm.ir.Range(int64(0), int64(self.lanes)), tirx.Var("vl", "int64"), tirx.IterVar.CommReduce)
                zero = tirx.BufferStore(total, tirx.FloatImm(str(store.buffer.ty.dtype), 0.0), [first])
                body = tirx.BufferStore(total, tirx.Add(total[first], partial[v.var, k]), [first])
                reads = [tirx.BufferRegion(partial, [_point(v.var), _point(k)])]
                writes = [tirx.BufferRegion(total, [_point(first)])]
                name = f"{self.block.name_hint}_across_{store.buffer.name}_{k.value}"
                return s_tir.SBlockRealize([lane], True, s_tir.SBlock([v], reads, writes, name, body, zero))

            return self._threads(block)

        return sequence([reduction(int64(k)) for k in range(width)])

    def _add(self, one):
        feature, store, _, totals, width = one

        def add(k):
            indices = [substitute(i, {feature: k}) for i in store.indices]
            total = tirx.Add(substitute(store.value.a, {feature: k}), totals[k.value][int64(0)])
            return tirx.BufferStore(store.buffer, total, indices)

        return _unrolled(width, add)

    def _threads(self, body):
        lane = tirx.Var("lane", "int64")
        return bound_loop(lane, int64(self.lanes), body(lane), "threadIdx.x")


def _point(at):
    return tvm.ir.Range.from_min_extent(at, int64(1))


def _unrolled(width: int, statement):
    return sequence([statement(int64(k)) for k in range(width)])


__all__ = ["sum_across_lanes"]
