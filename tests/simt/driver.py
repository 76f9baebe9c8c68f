"""A driver that runs kernels on the CPU, and kernels as the operators build them for a GPU, whose source it runs.

All of the way to a GPU is the product's own: the program's schedule, TVM's code of the host, its checks and the sizes
of its launch, and the CUDA source. What is in place of the machine is the driver (`fake_cuda`), which hands a launch to
`simt.h`, and the memory, which is the CPU's.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from pathlib import Path

import torch
import tvm_ffi

from gnn_sparse_backend.compiler.cache.kernel import Kernel
from gnn_sparse_backend.compiler.codegen import cuda_target
from gnn_sparse_backend.compiler.codegen.cuda import machine_code as cuda
from gnn_sparse_backend.compiler.compile import compile_program
from tests.simt.source import library_of

ARCH = "sm_80"
LOADING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
typedef struct { void (*launch)(void*, const unsigned*, const unsigned*, void**, unsigned); void* entry; } Function;
unsigned fake_order = 0;
int cuModuleLoadData(void** module, const char* image) {
  *module = strncmp(image, "simt:", 5) ? 0 : dlopen(image + 5, RTLD_NOW | RTLD_LOCAL);
  if (!*module) fprintf(stderr, "simt: %s\\n", dlerror());
  return *module ? 0 : 200;
}
int cuModuleGetFunction(Function** function, void* module, const char* name) {
  char entry[512];
  snprintf(entry, sizeof(entry), "%s_entry", name);
  *function = calloc(1, sizeof(Function));
  (*function)->launch = dlsym(module, "simt_launch");
  (*function)->entry = dlsym(module, entry);
  return (*function)->entry ? 0 : 500;
}
int cuLaunchKernelEx(const Configuration* how, Function* function, void** parameters, void** more) {
  const unsigned *grid = how->grid, *block = how->block;
  unsigned threads = block[0] * block[1] * block[2];
  fake_launches[fake_current]++;
  // what a GPU refuses, too
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535 ||
      !threads || threads > 1024) return 1;
  function->launch(function->entry, grid, block, parameters, fake_order);
  return 0;
}
"""
"""What the acted driver does with modules and launches.

fake_order: in which blocks and threads take turns, as of ``simt_launch``.
"""


def orders() -> list[int]:
    """Those that GSB_SIMT_ORDERS names, one run of each launch for each; by default threads as they are numbered."""
    return [int(order) for order in os.environ.get("GSB_SIMT_ORDERS", "0").split(",")]


def build(program, schedule) -> Kernel:
    """The kernel of a program for CUDA, for tensors of the CPU.

    Where several orders are asked for, every launch runs in each of them, from the same state of its tensors; an
    AssertionError says what differs.
    """
    compiled, cuda.compile_cuda = cuda.compile_cuda, _compile
    try:
        kernel = compile_program(program, schedule, cuda_target(ARCH))
    finally:
        cuda.compile_cuda = compiled
    wanted = orders()
    order = ctypes.c_uint.in_dll(ctypes.CDLL("libcuda.so.1"), "fake_order")

    def launch(*arguments):
        arguments = [
            torch.from_dlpack(argument) if isinstance(argument, tvm_ffi.Tensor) else argument for argument in arguments
        ]
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        assert all(tensor.is_contiguous() for tensor in tensors)
        given = [_OnGpu(argument) if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        before = [_bytes(tensor) for tensor in tensors] if len(wanted) > 1 else []
        first = None
        for order.value in wanted:
            if first is not None:
                for tensor, held in zip(tensors, before):
                    ctypes.memmove(tensor.data_ptr(), held, len(held))
            kernel.entry(*(tvm_ffi.from_dlpack(one) if isinstance(one, _OnGpu) else one for one in given))
            if len(wanted) == 1:
                return
            found = [_bytes(tensor) for tensor in tensors]
            first = found if first is None else first
            for at, (a, b) in enumerate(zip(first, found)):
                assert a == b, (
                    f"{program.name}: tensor {at} of {len(found)} is another in order {order.value} of the threads: "
                    f"they race"
                )

    return dataclasses.replace(kernel, entry=launch)


def _compile(source: str, arch: str, format: str = "cubin", compiler: str = "") -> cuda.CudaBinary:
    path = library_of(source, Path(os.environ["GSB_CACHE_DIR"]) / "simt")
    return cuda.CudaBinary(f"simt:{path}".encode() + b"\0", format, arch, ())


class _OnGpu:
    """A tensor of the CPU as one of the first GPU, for whoever takes DLPack."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        capsule = torch.utils.dlpack.to_dlpack(self.tensor.detach())
        # DLManagedTensor begins with the address of the data, and the kind and number of the device
        device = ctypes.cast(_pointer(capsule, b"dltensor") + 8, ctypes.POINTER(ctypes.c_int32))
        device[0], device[1] = 2, 0
        return capsule


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _bytes(tensor: torch.Tensor) -> bytes:
    """Below PyTorch, where those who watch it for reads do not see it."""
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)


__all__ = ["LOADING", "build", "orders"]
