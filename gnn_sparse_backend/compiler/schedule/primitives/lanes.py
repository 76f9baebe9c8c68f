"""Sum the elements of a run-time number in lanes: independent chains of additions for each feature."""

from __future__ import annotations

from tvm import s_tir, tirx

from ...coordinate.axes import StageIError
from ...coordinate.expr import FLOATS, Binary, Load, walk
from ...coordinate.program import Iteration, Program, Store
from ...position.function import PositionFunction
from .loops import rewrite_loop
from .nodes import blocks, int64, sequence, substitute


def sum_in_lanes(stage2: PositionFunction, iteration: Iteration, lanes: int) -> PositionFunction:
    """Cut the reduction loop of `iteration` into rounds of `lanes` elements, each lane with partial sums of its own.

    A narrow row is one chain of dependent additions, as long as there are non-zeros. In lanes the chains are
    independent (parallel reduction: Huang et al., section 3.1; rfactor of a loop of run-time extent). What does not fill
    a round is added to the total one by one, and the lanes are added up in halves: the order depends on the number of
    elements alone.

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
    where = f"sum_in_lanes: iteration {iteration.name!r}"
    if lanes < 2 or lanes & (lanes - 1):
        raise StageIError(f"{where}: {lanes} lanes are not a power of two of at least 2")
    reason = refuses(stage2.program, iteration)
    if reason:
        raise StageIError(f"{where} {reason}")
    widths = {it.name: it.axes[0].length for it in iteration.body}
    return rewrite_loop(stage2, iteration.name, 0, lambda loop: _Lanes(loop, widths, lanes).statement())


def refuses(program: Program, iteration: Iteration) -> str | None:
    """Why the sums of `iteration` cannot be cut into lanes, or None."""
    if iteration in program.iterations:
        return "is not nested in another, so its lanes would live nowhere"
    if len(iteration.axes) != 1 or iteration.kinds != "R":
        return "is not over one reduction axis"
    if iteration.init or iteration.where is not None or iteration.locals or iteration.axes[0].padded:
        return "has an init, a condition, local buffers or padding"
    sums: dict = {}
    for inner in iteration.body:
        axis = inner.axes[0] if isinstance(inner, Iteration) else None
        if axis is None or inner.kinds != "S" or axis.kind != "dense_fixed" or not isinstance(axis.length, int):
            return "holds more than iterations over one static dense spatial axis each"
        if inner.where is not None or len(inner.body) != 1 or not isinstance(inner.body[0], Store):
            return f"holds {inner.name!r}, which does more than one store"
        store = inner.body[0]
        if store.buffer.scope != "local" or store.buffer.dtype not in FLOATS or store.indices != inner.variables:
            return f"holds {inner.name!r}, which does not store to its own element of a local buffer of floating type"
        if store.buffer in sums:
            return f"adds to {store.buffer.name!r} twice"
        value = store.value
        if not isinstance(value, Binary) or value.op != "+" or value.a != Load(store.buffer, store.indices):
            return f"holds {inner.name!r}, which does not add in the form X = X + term"
        sums[store.buffer] = value.b
    if any(isinstance(e, Load) and e.buffer in sums for term in sums.values() for e in walk(term)):
        return "adds a term that depends on a sum"
    return None


class _Lanes:
    """The statements that take the place of the loop. widths: of the iterations in its block, by name."""

    def __init__(self, loop, widths: dict[str, int], lanes: int):
        self.loop, self.lanes, self.widths = loop, lanes, widths
        self.block = loop.body.block
        self.at = self.block.iter_vars[0].var
        self.rest = tirx.floormod(loop.extent, int64(lanes))
        # for each inner iteration: its variable, its store, and its partial sums
        self.sums = [self._sum(block) for block in blocks(self.block.body) if block.name_hint in widths]
        if len(self.sums) != len(widths):
            raise StageIError(f"sum_in_lanes: block {self.block.name_hint!r} has not the form of its iteration")

    def _sum(self, block):
        store = block.body
        if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
            raise StageIError(f"sum_in_lanes: block {block.name_hint!r} is not one addition")
        width = self.widths[block.name_hint]
        partial = tirx.decl_buffer(
            [int64(self.lanes * width)], store.buffer.ty.dtype, name=f"{store.buffer.name}_lanes", layout=None
        )
        return block.iter_vars[0].var, store, partial, width

    def statement(self):
        full = tirx.SeqStmt([*map(self._zero, self.sums), self._rounds(), *(s for one in self.sums for s in self._tree(one))])
        lanes = tirx.IfThenElse(self.loop.extent >= int64(self.lanes), full, None)
        block = s_tir.SBlock(
            [], [], [], f"{self.block.name_hint}_lanes", tirx.SeqStmt([lanes, self._remainder()]), None,
            [partial for _, _, partial, _ in self.sums],
        )  # fmt: skip
        return s_tir.SBlockRealize([], True, block)

    def _zero(self, one):
        _, _, partial, width = one
        zero = tirx.FloatImm(str(partial.ty.dtype), 0.0)
        return _vector(self.lanes * width, lambda i: tirx.BufferStore(partial, zero, [i]))

    def _rounds(self):
        turn, lane = tirx.Var("turn", "int64"), tirx.Var("lane", "int64")
        element = turn * int64(self.lanes) + lane
        body = [substitute(s, {self.at: element}) for s in _hints(self.block.body)]
        for one in self.sums:
            body.append(self._add(one, element, lane))
        unrolled = _for(lane, int64(self.lanes), tirx.ForKind.UNROLLED, sequence(body))
        return _for(turn, tirx.floordiv(self.loop.extent, int64(self.lanes)), tirx.ForKind.SERIAL, unrolled)

    def _add(self, one, element, lane):
        feature, store, partial, width = one

        def add(k):
            place = lane * int64(width) + k
            term = substitute(store.value.b, {self.at: element, feature: k})
            return tirx.BufferStore(partial, tirx.Add(partial[place], term), [place])

        return _vector(width, add)

    def _tree(self, one):
        feature, store, partial, width = one
        half = self.lanes // 2
        while half:
            far = int64(half * width)
            yield _vector(half * width, lambda i: tirx.BufferStore(partial, tirx.Add(partial[i], partial[far + i]), [i]))
            half //= 2
        load = store.value.a
        yield _vector(width, lambda k: tirx.BufferStore(
            store.buffer, tirx.Add(substitute(load, {feature: k}), partial[k]),
            [substitute(i, {feature: k}) for i in store.indices]))

    def _remainder(self):
        loop, realize = self.loop, self.loop.body
        first = loop.extent - self.rest
        values = [substitute(v, {loop.loop_var: first + loop.loop_var}) for v in realize.iter_values]
        body = s_tir.SBlockRealize(values, realize.predicate, realize.block)
        return _for(loop.loop_var, self.rest, tirx.ForKind.SERIAL, body)


def _for(var, extent, kind, body):
    return tirx.For(var, int64(0), extent, kind, body)


def _vector(width: int, store):
    """store(k) for every k below `width`, at once."""
    if width == 1:
        return store(int64(0))
    var = tirx.Var("k", "int64")
    return _for(var, int64(width), tirx.ForKind.VECTORIZED, store(var))


def _hints(body) -> list:
    """Statements beside the sums: prefetches."""
    parts = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return [s for s in parts if isinstance(s, tirx.Evaluate)]


__all__ = ["refuses", "sum_in_lanes"]
