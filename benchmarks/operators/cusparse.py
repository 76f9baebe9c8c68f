"""cuSPARSE's product of a CSR matrix and a dense one, row by row, with its analysis done beforehand: by ctypes, for
neither PyTorch nor CuPy call ``cusparseSpMM_preprocess``.

Numbers are those of cusparse.h and library_types.h of CUDA 12 and 13.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.operators.suite import CannotDo
from benchmarks.support.gpu import timing as gpu_timing

LIBRARIES = ("libcusparse.so.12", "libcusparse.so.13", "libcusparse.so")
TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}
INT32, ROW_ORDER, FLOAT32 = 2, 2, 0
ALGORITHMS = {"CSR_ALG1": 4, "CSR_ALG2": 6, "CSR_ALG3": 12}

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_PRODUCT = [_POINTER, _INT, _INT, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _INT, _INT, _POINTER]
SIGNATURES = {
    "cusparseCreate": [_POINTER],
    "cusparseSetStream": [_POINTER, _POINTER],
    "cusparseCreateCsr": [_POINTER, _LONG, _LONG, _LONG, _POINTER, _POINTER, _POINTER, _INT, _INT, _INT, _INT],
    "cusparseCreateDnMat": [_POINTER, _LONG, _LONG, _LONG, _POINTER, _INT, _INT],
    "cusparseSpMM_bufferSize": _PRODUCT,
    "cusparseSpMM_preprocess": _PRODUCT,
    "cusparseSpMM": _PRODUCT,
}


@functools.lru_cache(maxsize=1)
def load():
    """The library with its signatures. Raises CannotDo where it is not there, or has no preprocessing."""
    for name in LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        try:
            for function, arguments in SIGNATURES.items():
                getattr(library, function).argtypes = arguments
        except AttributeError as error:
            raise CannotDo(f"not available: {name} has no {function}") from error
        return library
    raise CannotDo("not available: no libcusparse on this machine")


def product(indptr: Tensor, indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Callable[[], Tensor]:
    """A call that gives the product; its result is written anew by the next. By the fastest of cuSPARSE's algorithms
    for CSR, each analysed.

    indptr, indices: int32. values: (nnz,), x: (columns, F) row by row, of one type. Raises CannotDo with cuSPARSE's
    status where it fails.
    """
    if x.device.type != "cuda":
        raise CannotDo("not available: on a GPU alone")
    if x.dtype not in TYPES:
        raise CannotDo(f"no {x.dtype}")
    return _fastest(load(), indptr.int(), indices.int(), values.contiguous(), x.detach().contiguous(), rows)


def _do(library, function: str, *arguments) -> None:
    if status := getattr(library, function)(*arguments):
        raise CannotDo(f"not available: {function} gives status {status}")


@functools.lru_cache(maxsize=1)
def _handle(library) -> ctypes.c_void_p:
    """One for the process: it holds memory on the GPU."""
    handle = ctypes.c_void_p()
    _do(library, "cusparseCreate", ctypes.byref(handle))
    return handle


def _fastest(library, indptr: Tensor, indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Callable[[], Tensor]:
    kind, (columns, width) = TYPES[x.dtype], x.shape
    out = x.new_empty(rows, width)
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    do, handle = functools.partial(_do, library), _handle(library)
    dense, result = ctypes.c_void_p(), ctypes.c_void_p()
    for descriptor, tensor in ((dense, x), (result, out)):
        do(
            "cusparseCreateDnMat",
            ctypes.byref(descriptor),
            tensor.shape[0],
            width,
            width,
            tensor.data_ptr(),
            kind,
            ROW_ORDER,
        )

    def prepared(algorithm: int) -> Callable[[], Tensor]:
        # of its own: the library keeps the analysis, and where its buffer is, with the matrix
        matrix = ctypes.c_void_p()
        do(
            "cusparseCreateCsr",
            ctypes.byref(matrix),
            rows,
            columns,
            len(values),
            indptr.data_ptr(),
            indices.data_ptr(),
            values.data_ptr(),
            INT32,
            INT32,
            0,
            kind,
        )
        # operations: neither is transposed; sums in float32
        given = (handle, 0, 0, ctypes.addressof(one), matrix, dense, ctypes.addressof(zero), result, FLOAT32, algorithm)
        size = ctypes.c_size_t()
        do("cusparseSpMM_bufferSize", *given, ctypes.addressof(size))
        buffer = torch.empty(max(1, size.value), dtype=torch.uint8, device=x.device)
        do("cusparseSetStream", handle, torch.cuda.current_stream(x.device).cuda_stream)
        do("cusparseSpMM_preprocess", *given, buffer.data_ptr())

        def call() -> Tensor:
            do("cusparseSpMM", *given, buffer.data_ptr())
            return out

        # what the library reads stays as long as the call does
        call.kept = (indptr, indices, values, x, one, zero, buffer)
        call()
        return call

    ready, reasons = [], []
    for algorithm in ALGORITHMS.values():
        try:
            ready.append(prepared(algorithm))
        except CannotDo as reason:
            reasons.append(reason)
    if not ready:
        raise reasons[0]
    return min(ready, key=lambda call: gpu_timing.seconds(call, x.device, False)) if len(ready) > 1 else ready[0]
