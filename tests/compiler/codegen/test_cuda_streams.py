"""A launch: on the stream that the owner of its tensors says is current, and nothing beside it.

What capture in a CUDA graph asks of a kernel, shown without a GPU by a driver that is acted (`fake_cuda`);
`tests/ops/core/test_cuda.py` captures operators where there is a GPU.
"""

from __future__ import annotations

import ctypes

import pytest
import torch
import tvm_ffi

from gnn_sparse_backend.compiler.codegen.cuda.machine_code import nvcc_path, nvrtc_available
from tests.compiler import fake_cuda

EXCHANGE = """
import ctypes

class Exchange(ctypes.Structure):  # DLPackExchangeAPI of dlpack.h
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]
    _fields_ += [(name, ctypes.c_void_p) for name in ("before", "allocate", "from_object", "to_object")]
    _fields_ += [("borrow", ctypes.c_void_p), ("stream", ctypes.c_void_p)]

of_capsule = ctypes.pythonapi.PyCapsule_GetPointer
of_capsule.restype, of_capsule.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)

def exchange_of(kind):
    return Exchange.from_address(of_capsule(kind.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))
"""

PROGRAM = (
    EXCHANGE
    + """
import torch
import tvm
import tvm_ffi
from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.compiler.codegen import cuda_target
from gnn_sparse_backend.compiler.codegen.cuda.nvidia import DRIVER, find_library

Plain = tvm_ffi.core.DLTensorTestWrapper

# another owner of tensors, as PyTorch is one: its tensors are on a stream of its own
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def stream_of(kind, number, found):
    found[0] = 0x5000 + number
    return 0

theirs = Exchange.from_buffer_copy(exchange_of(Plain))
theirs.stream = ctypes.cast(stream_of, ctypes.c_void_p)
capsule = ctypes.pythonapi.PyCapsule_New
capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

class Theirs(Plain):
    __dlpack_c_exchange_api__ = capsule(ctypes.addressof(theirs), b"dlpack_exchange_api", None)

program = aggregate(AggregateSpec(parse("x0"), (Operand("column", (4,), "float32"),), (4,)))
kernel = compile_program(program, team_schedule(1), cuda_target("sm_80"))
acted = find_library(DRIVER)
launches, others = (ctypes.c_int * 8).in_dll(acted, "fake_launches"), ctypes.c_int.in_dll(acted, "fake_others")
stream = ctypes.c_void_p.in_dll(acted, "fake_stream")

def arguments(wrap, number=0):
    shapes = ((2,), "int32"), ((2,), "int32"), ((1,), "int32"), ((1, 4), "float32"), ((1, 4), "float32")
    return [1, 1, 1, 1, *(wrap(tvm.runtime.empty(shape, dtype, tvm.cuda(number))) for shape, dtype in shapes)]

given = [(arguments(lambda x: x), "plain"), (arguments(Theirs), "theirs")]
given.append((arguments(Theirs, 1), "theirs on the second"))
for operands, _ in given:
    kernel(*operands)  # the first call of a process loads the module
for operands, name in [*given, given[0]]:
    before = sum(launches), others.value
    kernel(*operands)
    print(name, hex(stream.value or 0), sum(launches) - before[0], others.value - before[1])
with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), 0x7000):
    kernel(*given[0][0])
    print("set", hex(stream.value))
    kernel(*given[1][0])
    print("theirs", hex(stream.value))
kernel(*given[0][0])
print("as before", hex(stream.value or 0))
"""
)


@pytest.mark.slow
@pytest.mark.skipif(nvcc_path() is None and not nvrtc_available(), reason="no compiler of CUDA source on this machine")
def test_a_launch_is_on_the_stream_of_its_tensors_and_nothing_else(tmp_path):
    """One launch, on the stream that is asked of the first tensor on a GPU for the GPU that it is on, and what was
    current before is again; nobody hands out memory, copies or waits. Tensors of TVM's own follow the stream that is
    set."""
    environment = fake_cuda.environment(fake_cuda.make(tmp_path, gpus=2))
    assert fake_cuda.run(PROGRAM, environment) == [
        "plain 0x0 1 0",
        "theirs 0x5000 1 0",
        "theirs on the second 0x5001 1 0",
        "plain 0x0 1 0",
        "set 0x7000",
        "theirs 0x5000",
        "as before 0x0",
    ]


def test_pytorch_says_what_stream_is_current():
    """By the same protocol, so that a launch with its tensors is on its current stream."""
    found = {}
    exec(EXCHANGE, found)
    exchange = found["exchange_of"](torch.Tensor)
    assert exchange.major == 1 and exchange.stream and exchange.from_object
    assert ctypes.sizeof(found["Exchange"]) == ctypes.sizeof(ctypes.c_void_p) * 7
    # and TVM's FFI takes them by it
    assert (
        tvm_ffi.core.DLTensorTestWrapper.__dlpack_c_exchange_api__ is not None
        and exchange.from_object != found["exchange_of"](tvm_ffi.core.DLTensorTestWrapper).from_object
    )
