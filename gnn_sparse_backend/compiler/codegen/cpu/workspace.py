"""What kernels call of TVM's runtime, for processes without it: memory for arrays too large for the stack."""

from __future__ import annotations

import functools

import tvm_ffi

from ....deferred import can_compile, load_runtime
from .launcher import NativeText, exported_address, provide

# The functions have TVM's signatures: (device type, device, bytes, type code, bits) and (device type, device, memory).
_TEXT = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)

define internal ptr @gsb_allocate(i32 %kind, i32 %device, i64 %bytes, i32 %code, i32 %bits) {
  %up = add i64 %bytes, 127
  %whole = and i64 %up, -64
  %memory = call ptr @aligned_alloc(i64 64, i64 %whole)
  ret ptr %memory
}

define internal i32 @gsb_free(i32 %kind, i32 %device, ptr %memory) {
  call void @free(ptr %memory)
  ret i32 0
}
"""
WORKSPACE = NativeText("workspace", _TEXT + exported_address("gsb_allocate") + exported_address("gsb_free"))


@functools.cache
def provide_runtime() -> tvm_ffi.Module | None:
    """Have what kernels of packs call: TVM's runtime where it is installed, else the two functions above."""
    if can_compile():
        load_runtime()
        return None
    functions = {"__TVMBackendAllocWorkspace": "gsb_allocate", "__TVMBackendFreeWorkspace": "gsb_free"}
    return provide(WORKSPACE, functions)  # kept, and with it the functions
