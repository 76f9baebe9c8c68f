"""The one rewrite below our loop primitives: change the kind of the loop that stands directly above a block."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from ...position.function import PositionFunction


def set_loop_kind(stage2: PositionFunction, block: str, kind, level: int = 0) -> PositionFunction:
    """Make a loop around the block of this name a loop of `kind`. level: 0 the innermost of its segment, 1 the next."""

    def above(loop) -> bool:
        body = loop.body
        for _ in range(level):
            if not isinstance(body, tirx.For):
                return False
            body = body.body
        return isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == block

    def visit(loop, mutator):
        inner = mutator.default_mutate(loop)
        if not above(loop):
            return inner
        return tirx.For(inner.loop_var, inner.min, inner.extent, kind, inner.body)

    function = stage2.function
    body = tvm_ffi.structural_mutate(function.body, [(tirx.For, visit)])
    return stage2.with_function(tirx.PrimFunc(function.params, body, function.ret_type, function.attrs))
