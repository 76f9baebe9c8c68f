"""The checks of arguments at the start of a compiled function for the CPU: a table, and one small function that reads
it.

TVM asserts one property of one argument at a time, 57 asserts for nine arguments, and LLVM spends more time on them
than on the kernel behind them. Here the same properties stand in a table of integers, which leaves nothing to optimise.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm_ffi

from ....deferred import ir, tirx, tvm
from ..nodes import importing

_TABLE = "gsb.parameters"
_COMPACT, _ANY = -1, -2


def describe_parameters(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function with an attribute that says, as a row of integers for each parameter, what an argument must be.

    An integer is [-1]. A tensor is [ndim, dtype, then position, factor, offset, stride for each dimension]: dtype as
    DLPack packs it, the length of a dimension is factor times the integer argument at that position, plus offset, and
    its stride is a number of elements, or `_COMPACT`, or `_ANY`.

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
            row.append(_COMPACT)
        elif isinstance(stride, tirx.IntImm):
            row.append(int(stride))
        elif isinstance(stride, ir.Var):
            free.append(stride)
            row.append(_ANY)
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
    """A function made by MakePackedAPI whose checks are one call of a function whose text, in LLVM's language, it
    carries.

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
    text = _TEXT.format(name=name, size=sum(map(len, rows)), count=count, table=table, compact=_COMPACT, any=_ANY)
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


# args points to TVMFFIAny: {type index, padding, value}. Type indices: 1 int, 2 bool, 7 DLTensor*, 70 tensor object, in
# which the DLTensor stands 24 bytes in. DLTensor: data 0, device type 8 (1 is the CPU), ndim 16, dtype 20, shape 24,
# strides 32, byte offset 40. The result is -1, or the position of the first argument of a wrong type, or, plus the
# number of arguments, of a wrong shape. Strides of no elements, or along a length of 1, may be anything; no strides at
# all are those of a compact tensor.
_TEXT = """
@{name}_table = internal unnamed_addr constant [{size} x i64] [{table}]

define linkonce_odr hidden i32 @{name}(ptr %args) nounwind {{
entry:
  br label %next

next:
  %i = phi i32 [ 0, %entry ], [ %i.next, %fits ]
  %row = phi ptr [ @{name}_table, %entry ], [ %row.next, %fits ]
  %more = icmp slt i32 %i, {count}
  br i1 %more, label %argument, label %done

done:
  ret i32 -1

misfit:
  ret i32 %i

misshaped:
  %shape.code = add i32 %i, {count}
  ret i32 %shape.code

argument:
  %any = getelementptr {{ i32, i32, i64 }}, ptr %args, i32 %i
  %value.p = getelementptr i8, ptr %any, i32 8
  %type = load i32, ptr %any
  %ndim = load i64, ptr %row
  %is.int = icmp slt i64 %ndim, 0
  br i1 %is.int, label %integer, label %tensor

integer:
  %after.int = getelementptr i64, ptr %row, i32 1
  %type.int = sub i32 %type, 1
  %int.fits = icmp ult i32 %type.int, 2
  br i1 %int.fits, label %fits, label %misfit

tensor:
  %is.object = icmp eq i32 %type, 70
  %is.pointer = icmp eq i32 %type, 7
  %is.tensor = or i1 %is.object, %is.pointer
  %base = load ptr, ptr %value.p
  %some = icmp ne ptr %base, null
  %tensor.fits = and i1 %is.tensor, %some
  br i1 %tensor.fits, label %header, label %misfit

header:
  %skip = select i1 %is.object, i32 24, i32 0
  %t = getelementptr i8, ptr %base, i32 %skip
  %device.p = getelementptr i8, ptr %t, i32 8
  %ndim.p = getelementptr i8, ptr %t, i32 16
  %dtype.p = getelementptr i8, ptr %t, i32 20
  %shape.p = getelementptr i8, ptr %t, i32 24
  %strides.p = getelementptr i8, ptr %t, i32 32
  %offset.p = getelementptr i8, ptr %t, i32 40
  %data = load ptr, ptr %t
  %device = load i32, ptr %device.p
  %ndim.32 = load i32, ptr %ndim.p
  %dtype.32 = load i32, ptr %dtype.p
  %shape = load ptr, ptr %shape.p
  %strides = load ptr, ptr %strides.p
  %offset = load i64, ptr %offset.p
  %dtype.row = getelementptr i64, ptr %row, i32 1
  %dtype.wanted = load i64, ptr %dtype.row
  %dtype = zext i32 %dtype.32 to i64
  %ndim.given = zext i32 %ndim.32 to i64
  %device.fits = icmp eq i32 %device, 1
  %ndim.fits = icmp eq i64 %ndim.given, %ndim
  %dtype.fits = icmp eq i64 %dtype, %dtype.wanted
  %offset.fits = icmp eq i64 %offset, 0
  %fits.1 = and i1 %device.fits, %ndim.fits
  %fits.2 = and i1 %dtype.fits, %offset.fits
  %fits.3 = and i1 %fits.1, %fits.2
  %lengths.row = getelementptr i64, ptr %row, i32 2
  %after.tensor = getelementptr {{ i64, i64, i64, i64 }}, ptr %lengths.row, i64 %ndim
  br i1 %fits.3, label %dimension, label %misfit

dimension:
  %left = phi i64 [ %ndim, %header ], [ %d, %compare ]
  %size = phi i64 [ 1, %header ], [ %size.next, %compare ]
  %along = phi i1 [ true, %header ], [ %along.next, %compare ]
  %any.left = icmp sgt i64 %left, 0
  br i1 %any.left, label %length, label %whole

length:
  %d = sub i64 %left, 1
  %position.p = getelementptr {{ i64, i64, i64, i64 }}, ptr %lengths.row, i64 %d
  %factor.p = getelementptr i64, ptr %position.p, i32 1
  %plus.p = getelementptr i64, ptr %position.p, i32 2
  %position = load i64, ptr %position.p
  %factor = load i64, ptr %factor.p
  %plus = load i64, ptr %plus.p
  %of.any = getelementptr {{ i32, i32, i64 }}, ptr %args, i64 %position
  %of.p = getelementptr i8, ptr %of.any, i32 8
  %of = load i64, ptr %of.p
  %scaled = mul i64 %factor, %of
  %wanted = add i64 %scaled, %plus
  %length.p = getelementptr i64, ptr %shape, i64 %d
  %given = load i64, ptr %length.p
  %length.fits = icmp eq i64 %given, %wanted
  br i1 %length.fits, label %stride, label %misshaped

stride:
  %implied = icmp eq ptr %strides, null
  br i1 %implied, label %compare, label %explicit

explicit:
  %stride.p = getelementptr i64, ptr %strides, i64 %d
  %stride.given = load i64, ptr %stride.p
  br label %compare

compare:
  %step = phi i64 [ %size, %stride ], [ %stride.given, %explicit ]
  %stride.row = getelementptr i64, ptr %position.p, i32 3
  %stride.wanted = load i64, ptr %stride.row
  %is.compact = icmp eq i64 %stride.wanted, {compact}
  %exact = select i1 %is.compact, i64 %size, i64 %stride.wanted
  %step.fits = icmp eq i64 %step, %exact
  %step.free = icmp eq i64 %stride.wanted, {any}
  %alone = icmp eq i64 %given, 1
  %free = or i1 %step.free, %alone
  %this = or i1 %step.fits, %free
  %along.next = and i1 %along, %this
  %size.next = mul i64 %size, %given
  br label %dimension

whole:
  %empty = icmp eq i64 %size, 0
  %data.some = icmp ne ptr %data, null
  %usable = and i1 %along, %data.some
  %whole.fits = or i1 %empty, %usable
  br i1 %whole.fits, label %fits, label %misshaped

fits:
  %row.next = phi ptr [ %after.int, %integer ], [ %after.tensor, %whole ]
  %i.next = add i32 %i, 1
  br label %next
}}
"""
