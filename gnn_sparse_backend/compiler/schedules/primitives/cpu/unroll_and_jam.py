"""Visit several elements of a run-time number together: their statements in turns, over what they share."""

from __future__ import annotations

import tvm_ffi

from .....deferred import s_tir, tirx
from ....codegen.nodes import blocks, buffer_like, int64, on_buffers, own_block, sequence, substitute
from ....language.axes import StageIError, refuse
from ....language.program import Iteration, Program, walk_iterations
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..cuda.side_by_side import outlives
from ..shared.loops import rewrite_loop


@iteration_primitive()
def unroll_and_jam(stage2: PositionFunction, iteration: Iteration, count: int) -> PositionFunction:
    """Visit the elements of `iteration` along its innermost axis `count` at a time (unroll-and-jam); what is left over
    one by one.

    Rows that several elements gather are then read side by side, so that the processor fetches all of them ahead, and
    what the elements have in common is loaded once for all.

        for j in range(n):                              for q in range(n // 2):
            with block("edges"):                            S_0[0:8] = 0; S_1[0:8] = 0
                S[0:8] = 0                                  for k in range(64):
                for k in range(64):               ->            S_0[0:8] += U[8 * k:] * V[x[2 * q], 8 * k:]
                    S[0:8] += U[8 * k:] * V[x[vj], 8 * k:]      S_1[0:8] += U[8 * k:] * V[x[2 * q + 1], 8 * k:]
                ...                                         ...
                                                        for j in range(n % 2):
                                                            with block("edges"): ...   (vj = n - n % 2 + j)

    Elements keep the order of their own operations, so that every bit stays as it is. Last of all primitives: it parts
    the loop from the block.

    Preconditions, each refused with a StageIError: what `refuses` names; a count of at least two.
    """
    where = f"unroll_and_jam: iteration {iteration.name!r}"
    if count < 2:
        raise StageIError(f"{where}: {count} at a time are not several")
    refuse(where, refuses(stage2.program, iteration))
    return rewrite_loop(stage2, iteration.name, 0, lambda loop: _jammed(loop, count))


def refuses(program: Program, iteration: Iteration) -> str | None:
    """Why the elements of `iteration` cannot be visited several at a time, or None."""
    if iteration in program.iterations:
        return "is not nested in another"
    if set(iteration.kinds) != {"S"} or iteration.fused:
        return "is not over spatial axes"
    if iteration.where is not None:
        return "has a condition"
    innermost = iteration.axes[-1]
    for it in list(walk_iterations((iteration,)))[1:]:
        if it.where is not None:
            return f"holds iteration {it.name!r}, which has a condition"
        if it.fused or any(innermost in axis.chain for axis in it.axes):
            return f"holds iteration {it.name!r}, which differs from element to element"
    return outlives(iteration)


def _jammed(loop: tirx.For, count: int) -> tirx.Stmt:
    """The statements that take the place of the loop."""
    realize = loop.body
    block = realize.block
    many, turn = int64(count), tirx.Var("turn", "int64")
    local = [buffer for inner in blocks(block) for buffer in inner.alloc_buffers]
    copies: list[tirx.Stmt] = []
    buffers: list[tirx.Buffer] = []
    for number in range(count):
        own = {buffer: buffer_like(buffer, f"{buffer.name}_{number}") for buffer in local}
        buffers += own.values()
        element = substitute(realize, {loop.loop_var: turn * many + int64(number)})
        copies.append(_copy(element, own))
    together = own_block(f"{block.name_hint}_together", _merged(copies), buffers)
    turns = tirx.For(turn, int64(0), tirx.floordiv(loop.extent, many), tirx.ForKind.SERIAL, together)
    rest = tirx.floormod(loop.extent, many)
    later = {loop.loop_var: loop.extent - rest + loop.loop_var}
    left = s_tir.SBlockRealize([substitute(v, later) for v in realize.iter_values], realize.predicate, block)
    return tirx.SeqStmt([turns, tirx.For(loop.loop_var, int64(0), rest, tirx.ForKind.SERIAL, left)])


def _merged(copies: list[tirx.Stmt]) -> tirx.Stmt:
    """One statement that does what all of the copies of one do, in turns as fine as loops allow."""
    first = copies[0]
    if isinstance(first, tirx.SeqStmt):
        return tirx.SeqStmt([_merged(list(each)) for each in zip(*(copy.seq for copy in copies))])
    if isinstance(first, tirx.For) and first.kind == tirx.ForKind.SERIAL:
        bodies = [substitute(copy.body, {copy.loop_var: first.loop_var}) for copy in copies]
        return tirx.For(first.loop_var, first.min, first.extent, first.kind, _merged(bodies))
    return sequence(copies)


def _copy(statement: tirx.Stmt, own: dict[tirx.Buffer, tirx.Buffer]) -> tirx.Stmt:
    """The statement with buffers and loop variables of its own, and without blocks: one around all has the buffers."""

    def inside(realize: s_tir.SBlockRealize, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        realize = mutator.default_mutate(realize)
        return substitute(
            realize.block.body, {v.var: value for v, value in zip(realize.block.iter_vars, realize.iter_values)}
        )

    def renamed(loop: tirx.For, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        loop = mutator.default_mutate(loop)
        var = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
        return tirx.For(var, loop.min, loop.extent, loop.kind, substitute(loop.body, {loop.loop_var: var}))

    return tvm_ffi.structural_mutate(statement, [*on_buffers(own), (s_tir.SBlockRealize, inside), (tirx.For, renamed)])
