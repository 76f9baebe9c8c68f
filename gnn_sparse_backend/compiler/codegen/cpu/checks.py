"""The function that checks the arguments of every kernel by the kernel's table (`argument_checks`).

It is machine code of its own: in each kernel it was a third of what LLVM had to compile of a small one. A kernel's
library has a pointer to it (`SLOT`), which is set when the library is loaded.
"""

from __future__ import annotations

import functools

import tvm_ffi

from .launcher import NativeText, exported_address, provide

SLOT = "__GSBMisfit"
COMPACT, ANY = -1, -2
"""In the place of a stride: that of a tensor without gaps, and any."""

# args points to TVMFFIAny: {type index, padding, value}. Type indices: 1 int, 2 bool, 7 DLTensor*, 70 tensor object, in
# which the DLTensor stands 24 bytes in. DLTensor: data 0, device type 8 (1 is the CPU), ndim 16, dtype 20, shape 24,
# strides 32, byte offset 40. The result is -1, or the position of the first argument of a wrong type, or, plus the
# number of arguments, of a wrong shape. Strides of no elements, or along a length of 1, may be anything; no strides at
# all are those of a compact tensor.
_TEXT = """
define internal i32 @gsb_misfit(ptr %args, ptr %table, i32 %count) {
entry:
  br label %next

next:
  %i = phi i32 [ 0, %entry ], [ %i.next, %fits ]
  %row = phi ptr [ %table, %entry ], [ %row.next, %fits ]
  %more = icmp slt i32 %i, %count
  br i1 %more, label %argument, label %done

done:
  ret i32 -1

misfit:
  ret i32 %i

misshaped:
  %shape.code = add i32 %i, %count
  ret i32 %shape.code

argument:
  %any = getelementptr { i32, i32, i64 }, ptr %args, i32 %i
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
  %after.tensor = getelementptr { i64, i64, i64, i64 }, ptr %lengths.row, i64 %ndim
  br i1 %fits.3, label %dimension, label %misfit

dimension:
  %left = phi i64 [ %ndim, %header ], [ %d, %compare ]
  %size = phi i64 [ 1, %header ], [ %size.next, %compare ]
  %along = phi i1 [ true, %header ], [ %along.next, %compare ]
  %any.left = icmp sgt i64 %left, 0
  br i1 %any.left, label %length, label %whole

length:
  %d = sub i64 %left, 1
  %position.p = getelementptr { i64, i64, i64, i64 }, ptr %lengths.row, i64 %d
  %factor.p = getelementptr i64, ptr %position.p, i32 1
  %plus.p = getelementptr i64, ptr %position.p, i32 2
  %position = load i64, ptr %position.p
  %factor = load i64, ptr %factor.p
  %plus = load i64, ptr %plus.p
  %of.any = getelementptr { i32, i32, i64 }, ptr %args, i64 %position
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
  %is.compact = icmp eq i64 %stride.wanted, -1
  %exact = select i1 %is.compact, i64 %size, i64 %stride.wanted
  %step.fits = icmp eq i64 %step, %exact
  %step.free = icmp eq i64 %stride.wanted, -2
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
}
"""
CHECKS = NativeText("argument_checks", _TEXT + exported_address("gsb_misfit"))


@functools.cache
def provide_checks() -> tvm_ffi.Module:
    """Have the libraries of kernels that are loaded from now on check their arguments."""
    return provide(CHECKS, {SLOT: "gsb_misfit"})  # kept, and with it the function
