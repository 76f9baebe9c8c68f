"""Put small local buffers on the stack of the function, where LLVM turns them into registers."""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi

from .....deferred import s_tir, tirx
from ....codegen.nodes import buffer_like, on_buffers, with_parts
from ....position.function import PositionFunction
from ...sequence import primitive


@primitive()
def in_shared_memory(stage2: PositionFunction, names: tuple[str, ...]) -> PositionFunction:
    """Give the local buffers of these names the scope "shared": all threads of a block see them.

    TVM puts barriers between what is stored there and loaded again, so the threads of a block must run through the same
    iterations of the loops around.
    """
    return _in_scope(stage2, lambda buffer: buffer.name in names and buffer.ty.storage_scope == "local", "shared")


def locals_on_stack(stage2: PositionFunction, scopes: tuple[str, ...] = ("local",)) -> PositionFunction:
    """Give every buffer of one of the scopes, which are those of a GPU, the scope "global".

    On a CPU TVM takes memory of any other scope from a pool at run time, which LLVM can only read and write; a small
    array of constant size with scope "global" is a stack slot, which becomes registers. Larger ones come from the pool
    either way.

        S = alloc_buffer((64,), scope="local")  ->  S = alloc_buffer((64,))
    """
    return _in_scope(stage2, lambda buffer: buffer.ty.storage_scope in scopes, "global")


def _in_scope(stage2: PositionFunction, chosen: Callable[[tirx.Buffer], bool], scope: str) -> PositionFunction:
    moved: dict[tirx.Buffer, tirx.Buffer] = {}

    def allocate(block: s_tir.SBlock, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        for buffer in block.alloc_buffers:
            if chosen(buffer):
                moved[buffer] = buffer_like(buffer, buffer.name, scope=scope)
        block = mutator.default_mutate(block)
        return with_parts(
            block,
            reads=[_moved(r) for r in block.reads],
            writes=[_moved(r) for r in block.writes],
            alloc_buffers=[moved.get(b, b) for b in block.alloc_buffers],
        )

    def _moved(region: tirx.BufferRegion) -> tirx.BufferRegion:
        return tirx.BufferRegion(moved[region.source], region.region) if region.source in moved else region

    return stage2.mutated(*on_buffers(moved), (s_tir.SBlock, allocate))
