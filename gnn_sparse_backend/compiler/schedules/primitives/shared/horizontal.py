"""Horizontal fusion: the grids of the sub-kernels that a format decomposition leaves lie side by side in one launch
(SparseTIR, section 3.4.2).

    for b in blocks(3): bucket_1(b)                   for b in blocks(3 + 5):
    for b in blocks(5): bucket_2(b)            ->         if b < 3: bucket_1(b)
                                                          else: bucket_2(b - 3)
"""

from __future__ import annotations

from .....deferred import s_tir, tirx
from ....codegen.nodes import substitute, with_parts
from ....language.axes import StageIError
from ....language.expr import Load
from ....language.program import Buffer, Iteration, Program, loads_in, stores_in
from ...sequence import flat_primitive


@flat_primitive
def fuse_grids(function: tirx.PrimFunc, program: Program, apart: tuple[str, ...] = ()) -> tirx.PrimFunc:
    """Put the grids of all top-level iterations of a scheduled stage III function side by side in one launch.

    apart: parameters that several iterations store to, at elements which index arrays of the caller's keep apart.
    Preconditions, refused with a StageIError: all outermost loops are over the blocks of a GPU, or serial as the
    interpreters want them; no iteration stores to what another one touches, but for ``apart``, which nothing may load.
    """
    if len(program.iterations) == 1:
        return function
    for it in program.iterations:
        written = {store.buffer for store in stores_in((it,))}
        for other in program.iterations:
            met = sorted(b.name for b in written & _touched(other) if b.name not in apart) if other is not it else []
            met += sorted({e.buffer.name for e in loads_in((other,)) if e.buffer in written and e.buffer.name in apart})
            if met:
                raise StageIError(
                    f"fuse_grids: iteration {it.name!r} stores to {met[0]!r}, and so may {other.name!r} or read it"
                )
    loops = _loops(function, program, "fuse_grids")
    head = loops[0]
    if any(_binding(loop) != _binding(head) for loop in loops) or _binding(head)[1] not in ("", "blockIdx.x"):
        raise StageIError("fuse_grids: the loops are not all bound to blocks")
    starts, total = [None], head.extent
    for loop in loops[1:]:
        starts.append(total)
        total = total + loop.extent
    body = None
    for loop, start in reversed(list(zip(loops, starts))):
        own = substitute(loop.body, {loop.loop_var: head.loop_var if start is None else head.loop_var - start})
        end = loop.extent if start is None else start + loop.extent
        body = own if body is None else tirx.IfThenElse(head.loop_var < end, own, body)
    return _with_body(function, tirx.For(head.loop_var, head.min, total, head.kind, body, head.thread_binding))


def _loops(function: tirx.PrimFunc, program: Program, what: str) -> list[tirx.For]:
    """The outermost loops of a function, one for each iteration."""
    root = function.body.block
    loops = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    if len(loops) != len(program.iterations) or not all(isinstance(loop, tirx.For) for loop in loops):
        raise StageIError(f"{what}: the function is not one loop per iteration")
    return loops


def _with_body(function: tirx.PrimFunc, body: tirx.Stmt) -> tirx.PrimFunc:
    """The function with another statement in its root block."""
    root = function.body
    return function.with_body(s_tir.SBlockRealize(root.iter_values, root.predicate, with_parts(root.block, body=body)))


def _binding(loop: tirx.For) -> tuple[tirx.ForKind, str]:
    return loop.kind, loop.thread_binding.thread_tag if loop.thread_binding is not None else ""


def _accesses(it: Iteration) -> list[Load]:
    return [*(Load(store.buffer, store.indices) for store in stores_in((it,))), *loads_in((it,))]


def _touched(it: Iteration) -> set[Buffer]:
    return {access.buffer for access in _accesses(it)}
