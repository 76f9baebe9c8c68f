"""Exponentials that are to be rounded to bfloat16, with fewer digits."""

from __future__ import annotations

import tvm_ffi

from .....deferred import s_tir, tirx, tvm
from ....codegen.nodes import with_parts
from ....language.axes import StageIError
from ....language.program import Iteration
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.loops import rewrite_block

LOG2_E = 1.4426950408889634


@iteration_primitive()
def brief_exponentials(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Take exponentials of float32 in an iteration as powers of 2, which `instructions.exp2` computes to 13 bits.

        S[c] = T.exp(S[c] - M[c])    ->    S[c] = T.exp2((S[c] - M[c]) * 1.442695)

    Precondition, refused with a StageIError: there is one exponential at least, of float32.
    """
    found: list[tvm.ir.Call] = []

    def visit(call: tvm.ir.Call, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        call = mutator.default_mutate(call)
        if getattr(call.op, "name", "") != "tirx.exp" or str(call.ty.dtype) != "float32":
            return call
        found.append(call)
        return tirx.exp2(call.args[0] * tirx.FloatImm("float32", LOG2_E))

    def change(realize: s_tir.SBlockRealize) -> tirx.Stmt:
        block = realize.block
        body = tvm_ffi.structural_mutate(block.body, [(tvm.ir.Call, visit)])
        return s_tir.SBlockRealize(realize.iter_values, realize.predicate, with_parts(block, body=body))

    stage2 = rewrite_block(stage2, iteration.name, change)
    if not found:
        raise StageIError(f"brief_exponentials: iteration {iteration.name!r} has no exponential of float32")
    return stage2
