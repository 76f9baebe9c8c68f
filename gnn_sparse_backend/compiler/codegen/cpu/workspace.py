"""What kernels call of TVM's runtime, for processes without it: memory for arrays too large for the stack."""

from __future__ import annotations

import ctypes
import functools

import tvm_ffi

from ....deferred import can_compile, load_runtime
from .launcher import NativeText, load_text

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

define dllexport i32 @__tvm_ffi_gsb_allocate_address(ptr %self, ptr %arguments, i32 %count, ptr %result) {
  %value = getelementptr { i32, i32, i64 }, ptr %result, i32 0, i32 2
  store i32 1, ptr %result
  store i64 ptrtoint (ptr @gsb_allocate to i64), ptr %value
  ret i32 0
}

define dllexport i32 @__tvm_ffi_gsb_free_address(ptr %self, ptr %arguments, i32 %count, ptr %result) {
  %value = getelementptr { i32, i32, i64 }, ptr %result, i32 0, i32 2
  store i32 1, ptr %result
  store i64 ptrtoint (ptr @gsb_free to i64), ptr %value
  ret i32 0
}
"""
WORKSPACE = NativeText("workspace", _TEXT)


@functools.cache
def provide_runtime() -> tvm_ffi.Module | None:
    """Have what kernels of packs call: TVM's runtime where it is installed, else the two functions above."""
    if can_compile():
        load_runtime()
        return None
    module = load_text(WORKSPACE)
    for symbol, name in (("Alloc", "gsb_allocate_address"), ("Free", "gsb_free_address")):
        address = module.get_function(name)()
        code = tvm_ffi.LIB.TVMFFIEnvModRegisterContextSymbol(
            f"__TVMBackend{symbol}Workspace".encode(), ctypes.c_void_p(address)
        )
        if code:
            raise RuntimeError(f"__TVMBackend{symbol}Workspace cannot be registered")
    return module  # kept, and with it the functions
