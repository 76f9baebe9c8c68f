"""The checks of arguments at the start of a compiled function for the CPU: a table, and one small function that reads
it.

TVM asserts one property of one argument at a time, 57 asserts for nine arguments, and LLVM spends more time on them
than on the kernel behind them. Here the same properties stand in a table of integers, which leaves nothing to optimise;
and the function that reads it is compiled once for all kernels (`checks`).
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm_ffi

from ....deferred import ir, tirx, tvm
from ..nodes import importing
from .checks import ANY, COMPACT, SLOT

_TABLE = "gsb.parameters"


def describe_parameters(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function with an attribute that says, as a row of integers for each parameter, what an argument must be.

    An integer is [-1]. A tensor is [ndim, dtype, then position, factor, offset, stride for each dimension]: dtype as
    DLPack packs it, the length of a dimension is factor times the integer argument at that position, plus offset, and
    its stride is a number of elements, or `COMPACT`, or `ANY`.

    A function with another kind of parameter, length or stride keeps TVM's own checks.
    """
    positions = {variable: at for at, variable in enumerate(function.params)}
    rows: list[list[int]] = []
    free: list[ir.Var] = []
    for parameter in function.params:
        row = _row(parameter.ty, positions, free)
        if row is None:
            return function
        rows.append(row)
    if len({*free, *positions}) < len(free) + len(positions):  # a stride that is another one, or an argument
        return function
    return function.with_attr(_TABLE, "\n".join(" ".join(map(str, row)) for row in rows))


def _row(kind: ir.Type, positions: Mapping[ir.Var, int], free: list[ir.Var]) -> list[int] | None:
    """``free`` is given the variables that take on whatever a stride is."""
    if isinstance(kind, ir.PrimType):
        return [-1] if str(kind.dtype).startswith("int") else None
    if not isinstance(kind, tirx.BufferType) or not isinstance(kind.elem_offset, (tirx.IntImm, type(None))):
        return None
    dtype = tvm.DataType(str(kind.dtype))
    row = [len(kind.shape), dtype.type_code | dtype.bits << 8 | dtype.lanes << 16]
    for length, stride in zip(kind.shape, list(kind.strides) or [None] * len(kind.shape), strict=True):
        numbers = _linear(length, positions)
        if numbers is None:
            return None
        row += numbers
        if stride is None:
            row.append(COMPACT)
        elif isinstance(stride, tirx.IntImm):
            row.append(int(stride))
        elif isinstance(stride, ir.Var):
            free.append(stride)
            row.append(ANY)
        else:
            return None
    return row


def _linear(length: ir.Expr, positions: Mapping[ir.Var, int]) -> tuple[int, int, int] | None:
    """Position, factor and offset of ``factor * integer argument + offset``; None where a length is something else."""
    if isinstance(length, tirx.IntImm):
        return 0, 0, int(length)
    if isinstance(length, ir.Var):
        return (positions[length], 1, 0) if length in positions else None
    if isinstance(length, (tirx.Add, tirx.Mul)) and isinstance(length.b, tirx.IntImm):
        inner, by = _linear(length.a, positions), int(length.b)
        if inner is None:
            return None
        position, factor, offset = inner
        return (position, factor, offset + by) if isinstance(length, tirx.Add) else (position, factor * by, offset * by)
    return None


def check_by_table(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function made by MakePackedAPI whose checks are one call of a function that reads its table. It carries the
    table in LLVM's language.

    It is as it was where `describe_parameters` left no table.
    """
    if _TABLE not in function.attrs:
        return function
    rows = [list(map(int, row.split())) for row in str(function.attrs[_TABLE]).splitlines()]
    count = len(rows)
    body, signature = _without_checks(function.body)
    _, arguments, given, _ = function.params
    name = f"gsb_misfit_{function.attrs['global_symbol']}"
    misfit = ir.Var("misfit", "int32")
    statements: list[tirx.Stmt] = [
        _check("TypeError", tirx.EQ(given, tirx.IntImm("int32", count)), f"Expected {count} arguments", signature),
        tirx.Bind(misfit, tirx.call_pure_extern("int32", name, arguments)),
    ]
    for at, row in enumerate(rows):
        is_tensor = row[0] >= 0
        properties = "type, ndim, dtype or device" if is_tensor else "type"
        statements.append(
            _check("TypeError", _is_not(misfit, at), f"Mismatched {properties} of argument #{at}", signature)
        )
        if is_tensor:
            message = f"Mismatched shape or strides of argument #{at}"
            statements.append(_check("ValueError", _is_not(misfit, count + at), message, signature))
    table = ", ".join(f"i64 {number}" for row in rows for number in row)
    text = _TEXT.format(name=name, size=sum(map(len, rows)), count=count, table=table, slot=SLOT)
    return importing(function, tirx.SeqStmt([*statements, body]), text)


def _is_not(misfit: ir.Var, code: int) -> ir.Expr:
    return tirx.NE(misfit, tirx.IntImm("int32", code))


_CALLING = " when calling:"  # what the message of each of TVM's checks has, and no assert of a program


def _check(kind: str, condition: ir.Expr, message: str, signature: str) -> tirx.AssertStmt:
    parts = [message, f"{_CALLING}\n  `", signature, "`"]
    return tirx.AssertStmt(condition, ir.StringImm(kind), [ir.StringImm(part) for part in parts])


def _without_checks(body: tirx.Stmt) -> tuple[tirx.Stmt, str]:
    """The body without TVM's checks, and what they all call the function: "f(n: int64, x: Tensor([n], float32))"."""
    nothing, messages = tirx.Evaluate(tirx.IntImm("int32", 0)), []

    def visit(check: tirx.AssertStmt, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        message = "".join(str(part.value) for part in check.message_parts)
        if _CALLING not in message:
            return check
        messages.append(message)
        return nothing

    body = tvm_ffi.structural_mutate(body, [(tirx.AssertStmt, visit)])
    return body, messages[0].partition("`")[2].partition("`")[0]


# A library that is loaded by other means than ours, where nobody provides the function, refuses all arguments.
_TEXT = """
@{name}_table = internal unnamed_addr constant [{size} x i64] [{table}]
@{slot} = weak dllexport global ptr null

define linkonce_odr hidden i32 @{name}(ptr %args) {{
  %check = load ptr, ptr @{slot}
  %none = icmp eq ptr %check, null
  br i1 %none, label %unprovided, label %provided

unprovided:
  ret i32 0

provided:
  %code = call i32 %check(ptr %args, ptr @{name}_table, i32 {count})
  ret i32 %code
}}
"""
