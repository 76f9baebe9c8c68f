"""Compiled loops on PyTorch's threads: results, load balance, thread counts, forks, errors, several callers."""

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gnn_sparse_backend.compiler.codegen import build_jit, build_shared, host_target, load
from gnn_sparse_backend.compiler.codegen.cpu import threads
from gnn_sparse_backend.compiler.codegen.cpu.launcher import launcher_state
from tests.compiler.codegen.kernels import double, positive_to_one, record_thread, row_sums

pytestmark = pytest.mark.skipif(not threads.attach(), reason=threads.description())


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads(), threads.tasks_per_thread()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before[0])
    launcher_state().tasks_per_thread = before[1]


@pytest.fixture(scope="module", params=["jit", "shared object"])
def compiled(request, tmp_path_factory):
    """Build by either way: function -> callable."""

    def build(function):
        name = str(function.attrs["global_symbol"])
        if request.param == "jit":
            return build_jit(function, host_target())[name]
        return load(build_shared(function, host_target(), tmp_path_factory.mktemp("built")))[name]

    return build


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("tasks", [1, 8, 100])
@pytest.mark.parametrize("rows", [0, 1, 3, 1000])
def test_skewed_rows_are_summed_right(compiled, count, tasks, rows):
    torch.set_num_threads(count)
    launcher_state().tasks_per_thread = tasks
    rng = np.random.default_rng(rows)
    lengths = np.minimum(rng.zipf(1.4, rows) - 1, 5000)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype("int32")
    values = rng.integers(-1000, 1000, indptr[-1]).astype("float64")  # exact in float64: the order of the sum is free
    out = torch.full((rows,), float("nan"), dtype=torch.float64)
    compiled(row_sums)(rows, len(values), torch.tensor(indptr), torch.tensor(values.tolist(), dtype=torch.float64), out)
    expected = [values[first:last].sum() for first, last in itertools.pairwise(indptr)]
    np.testing.assert_array_equal(out.numpy(), expected)


def threads_of(function, microseconds):
    """The thread that ran each iteration; iteration i sleeps for microseconds[i]."""
    seen = torch.zeros(len(microseconds), dtype=torch.int64)
    function(len(seen), torch.tensor(microseconds, dtype=torch.int32), seen)
    assert (seen != 0).all()
    return seen.tolist()


def threads_used(function):
    return set(threads_of(function, [2000] * 40))


def caller():
    library = ctypes.CDLL(None)
    library.pthread_self.restype = ctypes.c_int64
    return library.pthread_self()


def test_number_of_threads_is_torchs(compiled):
    function = compiled(record_thread)
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        assert threads.num_threads() == count
        used = threads_used(function)
        assert len(used) == count and caller() in used
        assert threads_used(function) == used, "the same workers serve every call"


def test_a_long_task_does_not_hold_up_the_others(compiled):
    launcher_state().tasks_per_thread = 8
    ran = threads_of(compiled(record_thread), [200_000] + [2000] * 15)
    assert len(set(ran)) == 2
    assert ran.count(ran[0]) == 1, "the other worker takes all that is left"


def test_a_new_python_thread_honours_torchs_setting(compiled):
    function = compiled(record_thread)
    torch.set_num_threads(1)
    results = []
    worker = threading.Thread(
        target=lambda: results.append((threads.num_threads(), threads_used(function) == {caller()}))
    )
    worker.start()
    worker.join(60)
    assert results == [(1, True)]


def test_workers_are_those_of_torch(compiled):
    """No thread is added by a kernel once torch has its pool."""
    torch.ones(1_000_000).add_(1)
    before = set(os.listdir("/proc/self/task"))
    threads_used(compiled(record_thread))
    assert set(os.listdir("/proc/self/task")) <= before, (
        "one may still be leaving: a thread that was joined is listed a little longer"
    )


def test_inside_a_parallel_region_a_kernel_runs_in_place(compiled):
    function = compiled(record_thread)
    state = launcher_state()
    inside = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)
    original = state.in_parallel
    state.in_parallel = ctypes.cast(inside, ctypes.c_void_p).value
    try:
        assert threads_used(function) == {caller()}
    finally:
        state.in_parallel = original


def test_an_error_in_a_task_reaches_the_caller(compiled):
    function = compiled(positive_to_one)
    for count in (1, 2):
        torch.set_num_threads(count)
        for bad in ([0], [99_999], [50_000], list(range(100_000))):
            a = torch.full((100_000,), 3.0)
            a[bad] = -1
            with pytest.raises(RuntimeError, match="entry is not positive"):
                function(len(a), a)
            fine = torch.full((100_000,), 3.0)
            function(len(fine), fine)
            assert (fine == 1).all(), "the call after a failed one is not disturbed"


def test_several_python_threads_at_once(compiled):
    function = compiled(double)
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for n in torch.randint(1, 20_000, (100,), generator=generator).tolist():
            a, b = torch.randn(n, generator=generator), torch.full((n,), float("nan"))
            function(n, a, b)
            if not np.array_equal(b.numpy(), 2 * a.numpy()):
                failures.append((seed, n))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert not any(worker.is_alive() for worker in workers) and not failures


def exit_code_of_child(body, timeout=60):
    """Run ``body`` in a forked child; its exit code, or None if it hung and was killed."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if body() else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_runs_kernels(compiled):
    function = compiled(double)
    n = 100_000
    a, b = np.ones(n, dtype="float32"), np.zeros(n, dtype="float32")
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    function(n, ta, tb)  # the parent's workers exist, and the child does not inherit them
    b[:] = 0

    def child():
        function(n, ta, tb)
        return bool((b == 2).all()) and "forked" in threads.description() and threads.num_threads() == 1

    assert exit_code_of_child(child) == 0
    assert "shared with PyTorch" in threads.description()
    assert exit_code_of_child(lambda: exit_code_of_child(child, 30) == 0) == 0, "a child of a child"


@pytest.mark.slow
def test_tvms_pool_is_used_without_torch():
    code = """
import sys
import numpy as np, tvm
from gnn_sparse_backend.compiler.codegen import build_jit, host_target
from gnn_sparse_backend.compiler.codegen.cpu import threads
if "torch" in sys.modules:
    sys.exit(77)
sys.path.insert(0, sys.argv[1])
from tests.compiler.codegen.kernels import double
function = build_jit(double, host_target())["double"]
a, b = tvm.runtime.tensor(np.arange(1000, dtype="float32")), tvm.runtime.tensor(np.zeros(1000, dtype="float32"))
function(1000, a, b)
assert (b.numpy() == 2 * a.numpy()).all()
assert threads.description().startswith("TVM's own pool"), threads.description()
import torch
assert threads.attach() and "shared with PyTorch" in threads.description()
c = torch.zeros(1000)
function(1000, torch.arange(1000.0), c)
assert torch.equal(c, 2 * torch.arange(1000.0))
"""
    done = subprocess.run([sys.executable, "-c", code, str(Path(__file__).parents[3])], timeout=120)
    if done.returncode == 77:
        pytest.skip("importing the package imports torch here")
    assert done.returncode == 0


def test_other_users_of_tvm_keep_its_pool():
    import tvm

    name, module = "double", tvm.compile(double, target=host_target().to_tvm()).mod
    a, b = torch.randn(1000), torch.zeros(1000)
    module[name](1000, a, b)
    assert torch.equal(b, 2 * a)
    assert not module.implements_function("gsb_parallel_launch_slot")
