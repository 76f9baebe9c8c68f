"""One pool of threads for the compiled kernels and PyTorch.

TVM's own pool beside PyTorch's would put two sets of workers on the same cores, each spinning while the other works.
Modules that this package compiles or loads run their parallel loops on the OpenMP runtime that PyTorch already uses
instead; other users of TVM in the process keep TVM's pool. Without PyTorch (or with a PyTorch that has no OpenMP with a
``GOMP_parallel`` entry) TVM's pool is used, and `description` says so.

The number of threads is PyTorch's for the calling thread, so ``torch.set_num_threads`` and ``OMP_NUM_THREADS`` are
honoured. A kernel called with one thread, inside a parallel region, or in a forked child runs in the calling thread. A
task of a parallel loop must not wait for another one (no barrier): a worker may run them one after the other.
"""

from __future__ import annotations

import ctypes
import sys
import threading

from .... import system
from ....deferred import can_compile, global_function, tvm
from ....frozen import dataclass
from .launcher import LauncherState, launcher_state, redirect_launches

_lock = threading.RLock()
_pool: OpenMPPool | None = None


@dataclass(frozen=True)
class OpenMPPool:
    """Entry points of an OpenMP runtime in this process (addresses)."""

    gomp_parallel: int
    max_threads: int
    in_parallel: int

    @property
    def library(self) -> str:
        """The file that it was loaded from."""
        return system.library_at(self.gomp_parallel)


def share(module: tvm.runtime.Module) -> None:
    """Make the parallel loops of a module that was just compiled or loaded run on PyTorch's threads."""
    with _lock:
        if redirect_launches(module):
            _attach()


def attach() -> bool:
    """Look for PyTorch's OpenMP runtime now, and use it from the next kernel call on; True when it is in use.

    `share` does this by itself. Needed only when PyTorch was imported after the last kernel was loaded.
    """
    with _lock:
        return _attach()


def _state() -> LauncherState:
    # functools.lru_cache alone may build twice when two threads come at once
    with _lock:
        return launcher_state()


def _attach() -> bool:
    global _pool
    if _forked:
        _state().serial = 1
    if _pool is None and "torch" in sys.modules:
        _pool = find_torch_openmp()
        if _pool is not None:
            state = _state()
            state.max_threads = _pool.max_threads
            state.in_parallel = _pool.in_parallel
            state.gomp_parallel = _pool.gomp_parallel  # last: the launcher takes it as the sign that the others are set
    return _pool is not None


def find_torch_openmp() -> OpenMPPool | None:
    """The OpenMP runtime that the PyTorch of this process is linked to; None where there is none that can be shared."""
    # a runtime that was preloaded is the one that PyTorch uses: its names are the program's own
    scopes = system.open_loaded("torch_cpu")
    if scopes is None:
        return None
    parallel = _address(scopes, "GOMP_parallel")
    in_parallel = _address(scopes, "omp_in_parallel")
    # at::get_num_threads() applies torch.set_num_threads to a thread that OpenMP has not seen before
    max_threads = _address(scopes, "_ZN2at15get_num_threadsEv") or _address(scopes, "omp_get_max_threads")
    if parallel is None or in_parallel is None or max_threads is None:
        return None
    return OpenMPPool(parallel, max_threads, in_parallel)


def num_threads() -> int:
    """Threads that a kernel called from this thread would use."""
    if _state().serial:
        return 1
    if not attach() or _pool is None:
        return int(global_function("runtime.NumThreads")()) if can_compile() else 1
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(_pool.max_threads)())


def tasks_per_thread() -> int:
    """Parts that a parallel loop is cut into, per thread."""
    return int(_state().tasks_per_thread)


def description() -> str:
    """One line for people: which pool of threads the kernels use."""
    if _state().serial:
        return "the calling thread only (this process was forked, and threads do not survive that)"
    if attach() and _pool is not None:
        return f"shared with PyTorch: {_pool.library}, {num_threads()} threads, {tasks_per_thread()} tasks each"
    reason = (
        "PyTorch is not imported"
        if "torch" not in sys.modules
        else "this PyTorch has no OpenMP runtime with GOMP_parallel"
    )
    if not can_compile():
        return f"the calling thread only ({reason}, and TVM is not installed)"
    return f"TVM's own pool, {num_threads()} threads ({reason})"


_forked = False


def _after_fork_in_child() -> None:
    # The workers of neither pool survive a fork, and waiting for them would last for ever.
    global _lock, _forked
    _lock = threading.RLock()
    _forked = True
    if launcher_state.cache_info().currsize:
        _state().serial = 1


system.after_fork(_after_fork_in_child)


def _address(scopes: list[ctypes.CDLL], symbol: str) -> int | None:
    for scope in scopes:
        function = getattr(scope, symbol, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return None
