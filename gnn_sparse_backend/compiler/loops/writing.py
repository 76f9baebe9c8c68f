"""Words for functions that are written at stage III."""

from __future__ import annotations

import numpy as np

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T


def argument(name: str, dtype: str) -> tirx.Var:
    return T.arg(name, getattr(T, dtype)())


def array(name: str, size: tirx.Expr | int, dtype: str) -> tirx.Buffer:
    """A vector that the caller gives."""
    return T.arg(name, T.buffer((size,), dtype, layout=None, align=np.dtype(dtype).itemsize))


def local(name: str, shape: tuple[int, ...], dtype: str) -> tirx.Buffer:
    """Memory of the function's own, or of one turn of a parallel loop. In TVM's scope "local" it would be asked of an
    allocator, in each turn."""
    buffer = T.sblock_alloc_buffer(shape, dtype, layout=None)
    ir_builder.IRBuilder.name(name, buffer)
    return buffer


def named(name: str, value: tirx.Expr) -> tirx.Var:
    variable = T.bind(value)
    ir_builder.IRBuilder.name(name, variable)
    return variable


def long(value: int) -> tirx.Expr:
    return tirx.const(value, "int64")


def unsigned(value: int) -> tirx.Expr:
    """A uint64 constant: its sums and products wrap around, which those of int64 must not."""
    return tirx.const(value, "uint64")


def finished(builder: ir_builder.IRBuilder, name: str) -> tirx.PrimFunc:
    return builder.get().with_attr("global_symbol", name)
