"""A function scheduled for a GPU as a serial one: its thread loops run one after the other, on any CPU.

A schedule binds loops of a sequential program to threads and changes nothing of what the program means. What this shows
are wrong indices, guards and orders. What it cannot show are races: there the argument is the schedule's own, and each
primitive states it.
"""

from __future__ import annotations

import tvm_ffi

from ...deferred import tirx
from ..position.function import PositionFunction
from .primitives.shared.local_memory import locals_on_stack


def serialise(stage2: PositionFunction) -> PositionFunction:
    """Make all loops serial, and put local and shared buffers into ordinary memory.

    Before and after:

        for i in thread_binding(m, "blockIdx.x"): ...  ->  for i in range(m): ...
    """

    def visit(loop: tirx.For, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        loop = mutator.default_mutate(loop)
        if loop.kind == tirx.ForKind.SERIAL:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return locals_on_stack(stage2.mutated((tirx.For, visit)), ("local", "shared", "warp"))
