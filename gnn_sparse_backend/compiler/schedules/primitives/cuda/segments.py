"""Sum the rows of a chunk of non-zeros by one segmented scan across the lanes of a warp, however long each row is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tvm_ffi

from .....deferred import s_tir, tirx
from .....deferred import tir_builder as T
from ....codegen.nodes import blocks, int64, nodes, own_block, sequence, substitute, with_parts
from ....language.axes import StageIError, refuse
from ....language.program import Iteration, Program, Store
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.loops import bound_loop, rewrite_loop

WARP = 32


@iteration_primitive(on_gpu=True, instructions=True)
def scan_segments(
    stage2: PositionFunction, iteration: Iteration, lanes: int, instructions: bool = True
) -> PositionFunction:
    """Give each non-zero of a group of rows to a lane, and reduce `iteration`, over the non-zeros of a row, by a scan.

    Non-zero-balanced parallel reduction: a warp takes 32 non-zeros whatever rows they belong to (Huang et al., sections
    3.1 and 3.2), and adds them up by row in a segmented inclusive scan (Sengupta et al., Scan primitives for GPU
    computing, 2007): after the step of d, a lane holds the sum of the last 2 d non-zeros up to its own, as far as they
    are of its row.

        for i in range(rows of the group):      for l in threads(32):
            with block("rows"):                     row[l], depth[l] = of non-zero min(l, count - 1)
                S = 0                               P[l] = x[row[l], depth[l]]
                for j in range(n[i]):           for d in (1, 2, 4, 8, 16):
                    S += x[i, j]           ->       for l in threads(32): Q[l] = P[max(l - d, 0)]
                C[i] = S                            for l in threads(32): if depth[l] >= d: P[l] = Q[l] + P[l]
                                                for l in threads(32):
                                                    if l < count and depth[l] == n[row[l]] - 1:
                                                        with block("rows"): S = 0; S += P[l]; C[row[l]] = S

    The row of a lane is found by bisection among the starts of the group's rows, 32 at most, which lie in a few cache
    lines for all lanes; an array of rows would be one more load of every non-zero. Lanes beyond the end repeat the last
    non-zero, so that threads do not part, and nothing flows down from them. The order of additions depends on the
    length of a row alone.
    instructions: Q[l] is read by an instruction that only a GPU has. Without it the loops say the same, and any
    interpreter runs them.

    What the caller answers for: every group has from 1 to 32 non-zeros, and none of its rows is empty.
    Last of all primitives: it parts loops from blocks. Preconditions, each refused with a StageIError: 32 lanes; what
    `refuses` names.
    """
    where = f"scan_segments: iteration {iteration.name!r}"
    if lanes != WARP:
        raise StageIError(f"{where}: a chunk is the work of a warp of {WARP} lanes, not of {lanes}")
    refuse(where, refuses(stage2.program, iteration))
    (rows,) = [it for it in stage2.program.iterations if iteration in it.body]
    statement = _Chunk(_loop_above(stage2.function.body, rows.name), iteration, lanes, instructions).statement()
    return rewrite_loop(stage2, rows.name, 0, lambda loop: statement)


def refuses(program: Program, iteration: Iteration) -> str | None:
    """Why the rows of a group cannot be reduced over `iteration` by a scan, or None."""
    rows = next((it for it in program.iterations if iteration in it.body), None)
    if rows is None or len(rows.axes) != 2 or rows.kinds != "SS" or rows.axes[1].parent != rows.axes[0]:
        return "is not nested in one over rows in groups"
    if len(iteration.axes) != 1 or iteration.kinds != "R" or iteration.axes[0].parent != rows.axes[1] or iteration.init:
        return "is not a plain reduction over the non-zeros of a row"
    others = [it for it in rows.body if it != iteration]
    if any(not isinstance(it, Iteration) or any(not isinstance(a.length, int) for a in it.axes) for it in others):
        return f"is not the only one in {rows.name!r} of a run-time length"
    if iteration.where is not None or iteration.locals or any(not _of_features(it) for it in iteration.body):
        return "holds more than sums over one static axis each"
    return None


def _of_features(it: Store | Iteration) -> bool:
    """Whether this is S[k] = S[k] + a term, for all k of one axis."""
    if not isinstance(it, Iteration) or it.kinds != "S" or it.init or it.where is not None or it.locals:
        return False
    return len(it.body) == len(it.stores) == 1 and it.stores[0].added is not None


def _loop_above(body: tirx.Stmt, block: str) -> tirx.For:
    above = [loop for loop in nodes(body, tirx.For) if isinstance(loop.body, s_tir.SBlockRealize)]
    found = [loop for loop in above if loop.body.block.name_hint == block]
    if len(found) != 1:
        raise StageIError(f"scan_segments: there are {len(found)} loops above block {block!r}, expected one")
    return found[0]


Sum: TypeAlias = "tuple[tirx.Var, tirx.BufferStore, tirx.Buffer, tirx.Buffer, int]"
"""The variable of its features, its store, buffers of scanned and of fetched sums, and its width."""


class _Chunk:
    """The statements that take the place of a loop over the rows of a group."""

    def __init__(self, loop: tirx.For, iteration: Iteration, lanes: int, shuffle: bool) -> None:
        self.loop, self.lanes, self.shuffle, self.name = loop, lanes, shuffle, iteration.name
        self.rows = loop.body.block
        self.row = self.rows.iter_vars[0].var
        self.edges = _loop_above(self.rows.body, iteration.name)
        self.element = self.edges.body.block.iter_vars[0].var
        length = self.edges.extent
        if not isinstance(length, tirx.Sub):
            raise StageIError(f"scan_segments: the length {length} of a row is not the difference of two positions")
        self.stop, self.start = length.a, length.b
        self.first = self._of(self.start, int64(0))
        self.count = self._of(self.stop, loop.extent - int64(1)) - self.first
        widths = {it.name: it.axes[0].static_length for it in iteration.nested}
        self.sums = [
            self._sum(b, widths[b.name_hint]) for b in blocks(self.edges.body.block.body) if b.name_hint in widths
        ]
        self.at = self._local("position", [lanes], "int64")
        self.row_of = self._local("row", [lanes], "int64")
        self.depth = self._local("depth", [lanes], "int64")

    def statement(self) -> tirx.Stmt:
        """What takes the place of the loop."""
        steps = [1 << e for e in range(self.lanes.bit_length() - 1)]
        parts = [self._threads(self._find), self._threads(self._terms)]
        for step in steps:
            parts += [
                self._threads(functools.partial(self._fetch, step)),
                self._threads(functools.partial(self._add, step)),
            ]
        parts.append(self._threads(self._store))
        sums = [buffer for *_, partial, below, _ in self.sums for buffer in (partial, below)]
        buffers = [self.at, self.row_of, self.depth, *sums]
        return own_block(f"{self.name}_segments", tirx.SeqStmt(parts), buffers)

    def _sum(self, block: s_tir.SBlock, width: int) -> Sum:
        store = block.body
        if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
            raise StageIError(f"scan_segments: block {block.name_hint!r} is not one addition")
        name, dtype = store.buffer.name, store.buffer.ty.dtype
        partial, below = (self._local(f"{name}_{what}", [self.lanes, width], dtype) for what in ("scan", "below"))
        return block.iter_vars[0].var, store, partial, below, width

    def _find(self, lane: tirx.Expr) -> tirx.Stmt:
        """The lane's non-zero, its row in the group, and its position in the row."""
        at = self.at[lane]
        found = [
            tirx.BufferStore(self.at, self.first + tirx.min(lane, self.count - int64(1)), [lane]),
            tirx.BufferStore(self.row_of, int64(0), [lane]),
        ]
        step = self.lanes // 2
        while step:
            further = tirx.min(self.row_of[lane] + int64(step), self.loop.extent - int64(1))
            move = tirx.BufferStore(self.row_of, further, [lane])
            found.append(tirx.IfThenElse(self._of(self.start, further) <= at, move, None))
            step //= 2
        found.append(tirx.BufferStore(self.depth, at - self._of(self.start, self.row_of[lane]), [lane]))
        return sequence(found)

    def _terms(self, lane: tirx.Expr) -> tirx.Stmt:
        row = self.row_of[lane]
        # the start of the row cancels out of positions: what is loaded of a non-zero need not wait for its row
        at = {self.row: row, self.element: self.at[lane] - self._of(self.start, row)}
        return self._each(
            lambda feature, store, partial, _, k: tirx.BufferStore(
                partial, substitute(store.value.b, {**at, feature: k}), [lane, k]
            )
        )

    def _fetch(self, step: int, lane: tirx.Expr) -> tirx.Stmt:
        def below(
            feature: tirx.Var, store: tirx.BufferStore, partial: tirx.Buffer, below: tirx.Buffer, k: tirx.Expr
        ) -> tirx.Stmt:
            if not self.shuffle:
                return tirx.BufferStore(below, partial[tirx.max(lane - int64(step), int64(0)), k], [lane, k])
            mask = tirx.const((1 << WARP) - 1, "uint32")
            offset, width = tirx.IntImm("int32", step), tirx.IntImm("int32", WARP)
            return tirx.BufferStore(
                below, T.tvm_warp_shuffle_up(mask, partial[lane, k], offset, width, width), [lane, k]
            )

        return self._each(below)

    def _add(self, step: int, lane: tirx.Expr) -> tirx.Stmt:
        added = self._each(
            lambda feature, store, partial, below, k: tirx.BufferStore(
                partial, below[lane, k] + partial[lane, k], [lane, k]
            )
        )
        return tirx.IfThenElse(self.depth[lane] >= int64(step), added, None)

    def _store(self, lane: tirx.Expr) -> tirx.Stmt:
        """What is done for a row, with its sum in place of the loop over its non-zeros, by the lane of the last one."""

        def add(
            feature: tirx.Var, store: tirx.BufferStore, partial: tirx.Buffer, _: tirx.Buffer, k: tirx.Expr
        ) -> tirx.Stmt:
            indices = [substitute(i, {feature: k}) for i in store.indices]
            return tirx.BufferStore(store.buffer, store.buffer[tuple(indices)] + partial[lane, k], indices)

        total = self._each(add)
        body = tvm_ffi.structural_mutate(
            self.rows.body,
            [(tirx.For, lambda loop, mutator: total if loop.same_as(self.edges) else mutator.default_mutate(loop))],
        )
        block = with_parts(self.rows, body=body)
        done = s_tir.SBlockRealize([self.row_of[lane]], self.loop.body.predicate, block)
        last = self.depth[lane] + int64(1) == self._of(self.edges.extent, self.row_of[lane])
        return tirx.IfThenElse(tirx.And(lane < self.count, last), done, None)

    def _of(self, expr: tirx.Expr, row: tirx.Expr) -> tirx.Expr:
        """An expression of the loop over the non-zeros of a row, for this row of the group."""
        return substitute(expr, {self.row: row})

    def _each(self, statement: Callable[..., tirx.Stmt]) -> tirx.Stmt:
        """A statement for each feature of each sum: of (variable, store, buffers of scanned and fetched, feature)."""
        return sequence([statement(*one, int64(k)) for *one, width in self.sums for k in range(width)])

    def _threads(self, body: Callable[[tirx.Var], tirx.Stmt]) -> tirx.Stmt:
        lane = tirx.Var("lane", "int64")
        return bound_loop(lane, int64(self.lanes), body(lane), "threadIdx.x")

    def _local(self, name: str, shape: Sequence[int], dtype: str) -> tirx.Buffer:
        return tirx.decl_buffer([int64(n) for n in shape], dtype, name=name, scope="local", layout=None)
