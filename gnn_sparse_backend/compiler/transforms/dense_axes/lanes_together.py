"""Neighbouring sums in lanes, folded together: a tree over lanes whose registers stay full.

A sum in lanes (`lanes`) ends in halvings that use half as many lanes of a register each. Where another iteration runs
such a sum for each of its elements, the lanes of all of them lie side by side, and one addition halves several sums:
for H sums of L lanes some H + log2(L) shuffles of registers, in the place of H * log2(L).

    heads (H = 8):                                      (L = 16 lanes)
      dot (K = 16): init D[] = 0; D[] += u[h, k]        dot_terms (F = 128): P[f] = u[f // 16, f % 16]
      s[h] = D[]                                   ->   dot_8 (64): P_8[f] = P[f // 8 * 16 + f % 8] + P[... + 8]
                                                        dot_4 (32), dot_2 (16), dot_1 (8)
                                                        heads (H = 8): s[h] = P_1[h]
"""

from __future__ import annotations

from dataclasses import replace

from ...language.axes import Axis, StageIError, dense_fixed
from ...language.expr import Binary, Const, Expr, Load, Var
from ...language.program import Buffer, Iteration, Program, Store, walk_iterations
from ...language.traversal import rewrite
from .lanes import check_sum, in_stages


def reduce_together(program: Program, iteration_name: str, lanes: int) -> Program:
    """Run the sum `iteration_name` in `lanes` lanes, for all elements of the iteration around it at once.

    lanes: a power of two that divides the length of the sum's axis. The order of additions is that of
    ``reduce_in_lanes``.

    Refuses (StageIError) what ``reduce_in_lanes`` refuses, a length with a rest, and an iteration around the sum that
    is not over one static dense spatial axis, is itself not nested, or does more than the sum and stores of its result.
    """
    it = program.iteration(iteration_name)
    where = f"reduce_together: iteration {it.name!r}"
    store, value = check_sum(where, program, it)
    around = next((o for o in walk_iterations(program.iterations) if any(s is it for s in o.body)), None)
    length = it.axes[0].static_length
    if lanes < 2 or lanes & (lanes - 1) or length % lanes:
        raise StageIError(f"{where}: {lanes} lanes are no power of two that divides {length}, the axis's length")
    assert around is not None  # check_sum: it is nested
    _check_around(where, program, around, it, store)
    made = _Together(around, it, store, value.b, lanes)
    return in_stages(program, f"reduce_together({iteration_name}, {lanes})", around, made)


def _check_around(where: str, program: Program, around: Iteration, it: Iteration, store: Store) -> None:
    axis = around.axes[0]
    if around in program.iterations:
        raise StageIError(f"{where} is in {around.name!r}, which is not nested, so the lanes would live nowhere")
    one = len(around.axes) == 1 and around.kinds == "S" and axis.kind == "dense_fixed" and isinstance(axis.length, int)
    if not one or around.where is not None:
        raise StageIError(f"{where} is in {around.name!r}, which is not over one static dense spatial axis")
    rest = [s for s in around.body if s is not it]
    if around.body[0] is not it or not all(isinstance(s, Store) for s in rest):
        raise StageIError(f"{where} is not followed by stores alone in {around.name!r}")
    if store.indices or [b.name for b in around.locals] != [store.buffer.name]:
        raise StageIError(f"{where} does not add to the one number that {around.name!r} has for itself")


class _Together:
    """The iterations in the place of the one around the sum, and their axes and local buffers."""

    def __init__(self, around: Iteration, it: Iteration, store: Store, term: Expr, lanes: int) -> None:
        self.name, self.dtype = it.name, store.buffer.dtype
        self.heads, self.axis, self.term = around.variables[0], it.variables[0], term
        self.axes: list[Axis] = []
        self.locals: list[Buffer] = []
        self.stages: list[Iteration] = []
        count, rounds = around.axes[0].static_length, it.axes[0].static_length // lanes
        here = Var(f"{self.name}_lane")
        partial = self._local("partial", count * lanes)
        for step in range(rounds):
            own = _plus(Binary("%", here, _int(lanes)), step * lanes)
            term = self._term(Binary("//", here, _int(lanes)), own)
            total = Binary("+", partial[here], term) if step else term
            self._stage(f"terms_{step}" if step else "terms", count * lanes, here, Store(partial, (here,), total))
        while lanes > 1:
            half = lanes // 2
            halved = self._local(f"{half}_partial", count * half)
            left: Expr = Binary("*", Binary("//", here, _int(half)) if half > 1 else here, _int(lanes))
            if half > 1:
                left = Binary("+", left, Binary("%", here, _int(half)))
            total = Binary("+", partial[left], partial[_plus(left, half)])
            self._stage(str(half), count * half, here, Store(halved, (here,), total))
            partial, lanes = halved, half

        def of_sum(e: Expr) -> Expr | None:
            return partial[self.heads] if isinstance(e, Load) and e.buffer == store.buffer else None

        ends = tuple(
            Store(s.buffer, tuple(rewrite(i, of_sum) for i in s.indices), rewrite(s.value, of_sum))
            for s in around.body
            if isinstance(s, Store)
        )
        self.stages.append(replace(around, locals=(), body=ends))

    def _term(self, head: Expr, at: Expr) -> Expr:
        given = {self.heads: head, self.axis: at}
        return rewrite(self.term, lambda e: given.get(e) if isinstance(e, Var) else None)

    def _local(self, suffix: str, length: int) -> Buffer:
        axis = dense_fixed(f"{self.name}_{suffix}_lanes", length)
        self.axes.append(axis)
        self.locals.append(Buffer(f"{self.name}_{suffix}", (axis,), self.dtype, "local"))
        return self.locals[-1]

    def _stage(self, suffix: str, length: int, here: Var, store: Store) -> None:
        axis = dense_fixed(f"{self.name}_{suffix}_axis", length)
        self.axes.append(axis)
        self.stages.append(Iteration(f"{self.name}_{suffix}", (axis,), "S", (here,), (), (store,)))


def _int(value: int) -> Const:
    return Const(value, "int64")


def _plus(e: Expr, value: int) -> Expr:
    return Binary("+", e, _int(value)) if value else e
