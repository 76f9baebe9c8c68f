"""The parallel launcher: a few lines of LLVM text that run TVM's parallel loops on the OpenMP pool of this process.

TVM compiles a parallel loop to ``int lambda(int task, ParallelGroupEnv* env, void* data)``, which runs the task-th of
``env->num_task`` equal parts, and calls ``launch(lambda, data, num_task)`` through a pointer in the module. This launch
hands the parts out to the workers of ``GOMP_parallel`` (the entry of both GNU's and LLVM's OpenMP runtime) from an
atomic counter, so that a worker which meets cheap rows takes more of them (dynamic scheduling).

It is compiled by TVM itself, in the process, so that no C compiler is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path

import tvm_ffi

from ....deferred import can_compile, global_function, load_runtime, tirx, tvm
from ....frozen import dataclass
from ...packs.errors import MissingKernelError
from ...packs.file import identity_of
from ...packs.in_force import packs
from ..errors import BuildError
from ..kept import kept
from ..linker import find_linker, link
from ..opened import object_of, open_library, open_packed, readable
from ..target import Target
from .host import running_target


class LauncherState(ctypes.Structure):
    """The launcher's variables, which Python sets; the same layout as ``%State`` below.

    ``gomp_parallel`` null means that ``fallback``, TVM's own launch, is called instead. ``serial`` nonzero, or neither
    of the two, runs every loop in the calling thread.
    """

    _fields_ = [
        ("gomp_parallel", ctypes.c_void_p),
        ("max_threads", ctypes.c_void_p),
        ("in_parallel", ctypes.c_void_p),
        ("fallback", ctypes.c_void_p),
        ("take_raised_error", ctypes.c_void_p),
        ("set_raised_error", ctypes.c_void_p),
        ("release_object", ctypes.c_void_p),
        ("launch", ctypes.c_void_p),
        ("tasks_per_thread", ctypes.c_int32),
        ("serial", ctypes.c_int32),
    ]


SLOT_FUNCTION = "gsb_parallel_launch_slot"

# %Region: lambda, data, env = {sync handle, number of tasks}, first error code, error object of that task; and, on a
# cache line of its own because every worker writes it, the next task.
_LAUNCHER = """
%State = type { ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i32, i32 }
%Environment = type { ptr, i32 }
%Region = type { ptr, ptr, %Environment, i32, ptr, [128 x i8], i32, [124 x i8] }

@gsb_state = internal global %State { ptr null, ptr null, ptr null, ptr null, ptr null, ptr null, ptr null,
                                      ptr @gsb_parallel_launch, i32 8, i32 0 }

define internal void @gsb_worker(ptr %region) {
entry:
  %raised = alloca ptr
  %lambda = load ptr, ptr %region
  %data.p = getelementptr %Region, ptr %region, i32 0, i32 1
  %data = load ptr, ptr %data.p
  %env = getelementptr %Region, ptr %region, i32 0, i32 2
  %total.p = getelementptr %Region, ptr %region, i32 0, i32 2, i32 1
  %total = load i32, ptr %total.p
  %next.p = getelementptr %Region, ptr %region, i32 0, i32 6
  br label %take

take:
  %task = atomicrmw add ptr %next.p, i32 1 monotonic
  %more = icmp slt i32 %task, %total
  br i1 %more, label %run, label %done

run:
  %code = call i32 %lambda(i32 %task, ptr %env, ptr %data)
  %ok = icmp eq i32 %code, 0
  br i1 %ok, label %take, label %failed

failed:
  ; hand out no further task; the first failure is the one that the caller gets
  store atomic i32 %total, ptr %next.p monotonic, align 4
  store ptr null, ptr %raised
  %take.p = getelementptr %State, ptr @gsb_state, i32 0, i32 4
  %take.f = load ptr, ptr %take.p
  call void %take.f(ptr %raised)
  %error = load ptr, ptr %raised
  %code.p = getelementptr %Region, ptr %region, i32 0, i32 3
  %exchange = cmpxchg ptr %code.p, i32 0, i32 %code acq_rel monotonic
  %first = extractvalue { i32, i1 } %exchange, 1
  br i1 %first, label %keep, label %drop

keep:
  %error.p = getelementptr %Region, ptr %region, i32 0, i32 4
  store ptr %error, ptr %error.p
  br label %done

drop:
  %none = icmp eq ptr %error, null
  br i1 %none, label %done, label %release

release:
  %release.p = getelementptr %State, ptr @gsb_state, i32 0, i32 6
  %release.f = load ptr, ptr %release.p
  %ignored = call i32 %release.f(ptr %error)
  br label %done

done:
  ret void
}

define internal i32 @gsb_parallel_launch(ptr %lambda, ptr %data, i32 %requested) {
entry:
  %env = alloca %Environment
  %region = alloca %Region, align 64
  %serial.p = getelementptr %State, ptr @gsb_state, i32 0, i32 9
  %serial = load atomic i32, ptr %serial.p monotonic, align 4
  %is.serial = icmp ne i32 %serial, 0
  br i1 %is.serial, label %inline, label %choose

choose:
  %gomp = load atomic ptr, ptr @gsb_state acquire, align 8
  %no.pool = icmp eq ptr %gomp, null
  br i1 %no.pool, label %fallback, label %count

fallback:
  %fallback.p = getelementptr %State, ptr @gsb_state, i32 0, i32 3
  %fallback.f = load ptr, ptr %fallback.p
  %no.fallback = icmp eq ptr %fallback.f, null
  br i1 %no.fallback, label %inline, label %elsewhere

elsewhere:
  %fallback.code = call i32 %fallback.f(ptr %lambda, ptr %data, i32 %requested)
  ret i32 %fallback.code

count:
  %max.p = getelementptr %State, ptr @gsb_state, i32 0, i32 1
  %max.f = load ptr, ptr %max.p
  %threads = call i32 %max.f()
  %one = icmp sle i32 %threads, 1
  br i1 %one, label %inline, label %nested

nested:
  %in.p = getelementptr %State, ptr @gsb_state, i32 0, i32 2
  %in.f = load ptr, ptr %in.p
  %inside = call i32 %in.f()
  %is.inside = icmp ne i32 %inside, 0
  br i1 %is.inside, label %inline, label %pool

pool:
  %each.p = getelementptr %State, ptr @gsb_state, i32 0, i32 8
  %each = load atomic i32, ptr %each.p monotonic, align 4
  %product = mul i32 %threads, %each
  %asked = icmp sgt i32 %requested, 0
  %total = select i1 %asked, i32 %requested, i32 %product
  %few = icmp slt i32 %total, %threads
  %workers = select i1 %few, i32 %total, i32 %threads
  store ptr %lambda, ptr %region
  %data.p = getelementptr %Region, ptr %region, i32 0, i32 1
  store ptr %data, ptr %data.p
  %sync.p = getelementptr %Region, ptr %region, i32 0, i32 2, i32 0
  store ptr null, ptr %sync.p
  %total.p = getelementptr %Region, ptr %region, i32 0, i32 2, i32 1
  store i32 %total, ptr %total.p
  %code.p = getelementptr %Region, ptr %region, i32 0, i32 3
  store i32 0, ptr %code.p
  %error.p = getelementptr %Region, ptr %region, i32 0, i32 4
  store ptr null, ptr %error.p
  %next.p = getelementptr %Region, ptr %region, i32 0, i32 6
  store i32 0, ptr %next.p
  call void %gomp(ptr @gsb_worker, ptr %region, i32 %workers, i32 0)
  %code = load i32, ptr %code.p
  %error = load ptr, ptr %error.p
  %quiet = icmp eq ptr %error, null
  br i1 %quiet, label %finish, label %raise

raise:
  ; the error was raised in a worker, and errors are kept per thread: raise it again in the caller
  %raise.p = getelementptr %State, ptr @gsb_state, i32 0, i32 5
  %raise.f = load ptr, ptr %raise.p
  call void %raise.f(ptr %error)
  %release.p = getelementptr %State, ptr @gsb_state, i32 0, i32 6
  %release.f = load ptr, ptr %release.p
  %ignored = call i32 %release.f(ptr %error)
  br label %finish

finish:
  ret i32 %code

inline:
  %inline.asked = icmp sgt i32 %requested, 0
  %inline.total = select i1 %inline.asked, i32 %requested, i32 1
  %inline.sync.p = getelementptr %Environment, ptr %env, i32 0, i32 0
  store ptr null, ptr %inline.sync.p
  %inline.total.p = getelementptr %Environment, ptr %env, i32 0, i32 1
  store i32 %inline.total, ptr %inline.total.p
  br label %loop

loop:
  %task = phi i32 [ 0, %inline ], [ %after, %continue ]
  %task.code = call i32 %lambda(i32 %task, ptr %env, ptr %data)
  %task.ok = icmp eq i32 %task.code, 0
  br i1 %task.ok, label %continue, label %stop

continue:
  %after = add i32 %task, 1
  %again = icmp slt i32 %after, %inline.total
  br i1 %again, label %loop, label %stop

stop:
  ret i32 %task.code
}

; TVM's calling convention: arguments and the result are { type index, padding, value }, and type 1 is an integer
define dllexport i32 @__tvm_ffi_gsb_launcher_state(ptr %self, ptr %arguments, i32 %count, ptr %result) {
  %value = getelementptr { i32, i32, i64 }, ptr %result, i32 0, i32 2
  store i32 1, ptr %result
  store i64 ptrtoint (ptr @gsb_state to i64), ptr %value
  ret i32 0
}
"""

_SLOT = """
@__TVMBackendParallelLaunch = external global ptr

define i64 @gsb_slot_address() alwaysinline {
  ret i64 ptrtoint (ptr @__TVMBackendParallelLaunch to i64)
}
"""


def slot_function() -> tuple[str, tirx.PrimFunc]:
    """Name and body of a function to compile into a module: it returns the address of the module's launch pointer.

    The module must contain a parallel loop, for otherwise it has no such pointer.
    """
    address = tirx.Return(tirx.call_extern("int64", "gsb_slot_address"))
    body = tirx.AttrStmt(tirx.IntImm("int32", 0), "pragma_import_llvm", tvm.ir.StringImm(_SLOT), address)
    function = tirx.PrimFunc([], body, ret_type=tvm.ir.PrimType("int64"))
    return SLOT_FUNCTION, function.with_attr("global_symbol", SLOT_FUNCTION)


def redirect_launches(module: tvm.runtime.Module) -> bool:
    """Make the parallel loops of a compiled module use this launcher; False when it has none of them."""
    try:
        # not implements_function, which knows nothing of a module loaded from LLVM text
        address = module.get_function(SLOT_FUNCTION)()
    except AttributeError:
        return False
    slot = ctypes.c_void_p.from_address(address)
    current = launcher_state()
    if current.fallback is None:
        current.fallback = slot.value
    if slot.value != current.launch:
        slot.value = current.launch
    return True


@functools.cache
def launcher_state() -> LauncherState:
    """The launcher of this process, from a pack, or loaded or compiled at the first call (1 or 20 ms), and kept until
    the process ends.

    The caller holds a lock.
    """
    module = load_text(LAUNCHER)
    state = LauncherState.from_address(module.get_function("gsb_launcher_state")())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))  # the memory of the state is the module's, and stays
    ffi = tvm_ffi.LIB
    state.take_raised_error = ctypes.cast(ffi.TVMFFIErrorMoveFromRaised, ctypes.c_void_p).value
    state.set_raised_error = ctypes.cast(ffi.TVMFFIErrorSetRaised, ctypes.c_void_p).value
    state.release_object = ctypes.cast(ffi.TVMFFIObjectDecRef, ctypes.c_void_p).value
    return state


@dataclass(frozen=True)
class NativeText:
    """Functions in LLVM's language. name: of what they are together, for people."""

    name: str
    text: str

    def identity(self, target: Target) -> str:
        """What a pack knows their library for a target by."""
        return identity_of(self.text, "LLVM text", target.key, self.name)


LAUNCHER = NativeText("parallel_launcher", _LAUNCHER)


def load_text(native: NativeText) -> tvm_ffi.Module:
    """The module of functions in LLVM's language: from a pack, else from a file that is kept, else
    compiled for this machine into this process.

    Raises MissingKernelError where they are in no pack and TVM is not installed.
    """
    target = running_target()
    found = packs.find(native.identity(target))
    if found is not None:
        return open_packed(native.name, found.read())
    if not can_compile():
        raise MissingKernelError(f"{native.name} for {target.key} is in no pack: make the pack anew, or install TVM")
    if find_linker() is not None:
        path = kept(native.name, native.identity(target), functools.partial(build_text, native, target))
        if path is not None:
            load_runtime()
            with contextlib.suppress(BuildError):  # where the system loads no library
                return open_library(path)
    return _module_of(native, target)


def exported_address(function: str) -> str:
    """LLVM's text of ``{function}_address``, which gives Python the address of a function in the same text."""
    return f"""
define dllexport i32 @__tvm_ffi_{function}_address(ptr %self, ptr %arguments, i32 %count, ptr %result) {{
  %value = getelementptr {{ i32, i32, i64 }}, ptr %result, i32 0, i32 2
  store i32 1, ptr %result
  store i64 ptrtoint (ptr @{function} to i64), ptr %value
  ret i32 0
}}
"""


def provide(native: NativeText, functions: Mapping[str, str]) -> tvm_ffi.Module:
    """Have libraries that are loaded from now on find functions by their symbols. functions: of a text that exports
    their addresses, by symbol. They are there while the module that is returned is kept.
    """
    module = load_text(native)
    for symbol, function in functions.items():
        address = ctypes.c_void_p(module.get_function(f"{function}_address")())
        if tvm_ffi.LIB.TVMFFIEnvModRegisterContextSymbol(symbol.encode(), address):
            raise RuntimeError(f"{symbol} cannot be registered")
    return module


def build_text(native: NativeText, target: Target, folder: str | os.PathLike[str]) -> Path:
    """Compile functions in LLVM's language into a shared object in ``folder``. Raises BuildError."""
    path = Path(folder, f"{native.name}.so")
    with object_of(_module_of(native, target)) as (object_file, inherited):
        link(native.name, [object_file], path, target, inherited=inherited)
    return path


def _module_of(native: NativeText, target: Target) -> tvm_ffi.Module:
    text = f"{_llvm_header(target)}\n{native.text}"
    with readable(text.encode(), "functions.ll") as path:
        module: tvm_ffi.Module = tvm_ffi.get_global_func("ffi.Module.load_from_file.ll")(path, "ll")
        return module


def _llvm_header(target: Target) -> str:
    """The target lines of LLVM text for a target and TVM's note of it, taken from an empty module."""
    nothing = global_function("codegen.LLVMModuleCreate")(json.dumps(target.host), "nothing")
    lines = nothing.inspect_source("ll").splitlines()
    note = next(line.partition(" = ")[2] for line in lines if "tvm_target" in line)
    return "\n".join(
        [line for line in lines if line.startswith("target ")] + ["!llvm.module.flags = !{!0}", f"!0 = {note}"]
    )
