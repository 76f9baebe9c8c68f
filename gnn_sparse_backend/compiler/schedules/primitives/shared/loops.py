"""The rewrites below our loop primitives: of a loop that stands above a block, and of a block with what is in it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import tvm_ffi

from .....deferred import s_tir, tirx
from ....language.axes import StageIError
from ....position.function import PositionFunction


def set_loop_kind(stage2: PositionFunction, block: str, kind: tirx.ForKind, level: int = 0) -> PositionFunction:
    """Make a loop around the block of this name a loop of `kind`. level: 0 the innermost of its segment, 1 the next."""
    return rewrite_loop(
        stage2, block, level, lambda loop: tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body)
    )


def bind_loop(stage2: PositionFunction, block: str, tag: str, level: int = 0) -> PositionFunction:
    """Bind a loop around the block of this name to the GPU index `tag` ("blockIdx.x", "threadIdx.x")."""

    return rewrite_loop(stage2, block, level, lambda loop: bound_loop(loop.loop_var, loop.extent, loop.body, tag))


def bound_loop(var: tirx.Var, extent: tirx.Expr, body: tirx.Stmt, tag: str) -> tirx.For:
    """A loop from 0 over `extent` values of the GPU index `tag`."""
    thread = tirx.IterVar(None, tirx.Var(tag, "int64"), tirx.IterVar.ThreadIndex, tag)
    return tirx.For(var, tirx.IntImm("int64", 0), extent, tirx.ForKind.THREAD_BINDING, body, thread)


def rewrite_loop(
    stage2: PositionFunction, block: str, level: int, change: Callable[[tirx.For], tirx.Stmt]
) -> PositionFunction:
    """Apply `change` to the loop `level` loops above the block of this name (0: directly above).

    Raises StageIError where there is no such loop, as after a reduction above the block has been decomposed.
    """
    return rewrite_loops(stage2, (block,), level, change)


def rewrite_loops(
    stage2: PositionFunction, blocks: Collection[str], level: int, change: Callable[[tirx.For], tirx.Stmt]
) -> PositionFunction:
    """Apply `change` to the loop `level` loops above each of the blocks of these names, in one walk over the function.

    Raises StageIError where a block has no such loop.
    """
    found = dict.fromkeys(blocks, 0)

    def below(loop: tirx.For) -> str | None:
        body = loop.body
        for _ in range(level):
            if not isinstance(body, tirx.For):
                return None
            body = body.body
        return str(body.block.name_hint) if isinstance(body, s_tir.SBlockRealize) else None

    def visit(loop: tirx.For, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        inner = mutator.default_mutate(loop)
        block = below(loop)
        if block not in found:
            return inner
        found[block] += 1
        return change(inner)

    stage2 = stage2.mutated((tirx.For, visit))
    for block, count in found.items():
        if count != 1:
            raise StageIError(f"there are {count} loops {level} levels above block {block!r}, expected one")
    return stage2


def rewrite_block(
    stage2: PositionFunction, block: str, change: Callable[[s_tir.SBlockRealize], tirx.Stmt]
) -> PositionFunction:
    """Apply `change` to the block of this name, and what is in it."""

    def visit(realize: s_tir.SBlockRealize, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        inner = mutator.default_mutate(realize)
        return change(inner) if inner.block.name_hint == block else inner

    return stage2.mutated((s_tir.SBlockRealize, visit))
