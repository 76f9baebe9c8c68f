"""Additions of several threads to one place."""

from __future__ import annotations

import tvm_ffi

from .....deferred import tir_builder as T
from .....deferred import tirx, tvm
from ....codegen.cpu.atomics import ADD, TYPES, addition
from ....codegen.nodes import importing
from ....language.axes import refuse
from ....position.function import PositionFunction
from ...sequence import primitive


@primitive(instructions=True)
def add_atomically(stage2: PositionFunction, name: str, on_gpu: bool, instructions: bool = True) -> PositionFunction:
    """Make every addition to the buffer of this name one that no other thread comes between.

    The order of additions is that of the threads, so the last bits of floating-point sums may differ between two runs.
    Without ``instructions``, where loops run one after the other, additions stay as they are.
    Preconditions, each refused with a StageIError: sums in float32, float64, int32 or int64, and for the GPU not int64.

        Y[i] = Y[i] + x  ->  atomic_add(address_of(Y[i]), x)
    """
    if not instructions:
        return stage2
    dtype = ""

    def store(node: tirx.BufferStore, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        nonlocal dtype
        node = mutator.default_mutate(node)
        term = _added(node) if node.buffer.name == name else None
        if term is None:
            return node
        dtype = str(node.buffer.ty.dtype)
        address = tirx.address_of(node.buffer[tuple(node.indices)])
        if on_gpu:
            return tirx.Evaluate(T.cuda.atomic_add(address, term))
        return tirx.Evaluate(tirx.call_extern("int32", f"{ADD}_{dtype}", address, term))

    stage2 = stage2.mutated((tirx.BufferStore, store))
    unknown = dtype and (dtype not in TYPES or (on_gpu and dtype == "int64"))
    refuse(f"add_atomically: buffer {name!r}", f"is of {dtype}, which is not added atomically" if unknown else None)
    if on_gpu or not dtype:
        return stage2
    return stage2.with_function(importing(stage2.function, stage2.function.body, addition(dtype)))


def _added(store: tirx.BufferStore) -> tirx.Expr | None:
    """The term of a store of the form X = X + term; None of any other."""
    value = store.value
    if not isinstance(value, tirx.Add) or not isinstance(value.a, tvm.ir.TensorLoad):
        return None
    if value.a.source != store.buffer or not tvm_ffi.structural_equal(list(value.a.indices), list(store.indices)):
        return None
    return value.b
