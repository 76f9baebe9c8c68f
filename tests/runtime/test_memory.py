"""Where results are put: huge pages for large outputs, and memory that is used again."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.runtime import memory
from gnn_sparse_backend.runtime import pool as pools


def printed(body: str) -> list[int]:
    """What a fresh process prints that runs ``body``."""
    script = textwrap.dedent(HELPERS) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


# faults() prints the minor page faults of 16 tensors of 64 MB, each of 16,384 pages; left() the bytes more than at the
# start
HELPERS = """
    import resource, psutil, torch, gnn_sparse_backend as gsb

    def loop(times):
        for _ in range(times):
            torch.empty(1 << 24).fill_(1)

    def faults():
        loop(6)
        start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        loop(16)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)

    def left():
        print(psutil.Process().memory_info().rss - start)

    torch.ones(8).sum()
    gsb.enable("pyg")
    gsb.disable()
    start = psutil.Process().memory_info().rss
"""
FRESH, GIVEN_BACK = 16 * 1000, 32 << 20


def much_fewer(again: int, fresh: int) -> bool:
    return fresh > FRESH and again < fresh / 16


@pytest.fixture
def known():
    if not gsb.reuse_memory(False):
        pytest.skip("another system, or a PyTorch whose allocators are not known")


@pytest.mark.slow
@pytest.mark.parametrize(
    "on, off",
    [
        pytest.param("gsb.reuse_memory()", "gsb.reuse_memory(False)", id="asked for"),
        pytest.param("gsb.enable('pyg')", "gsb.disable()", id="while a framework is enabled"),
    ],
)
def test_freed_memory_is_used_again(on, off, known):
    fresh, again, left = printed(f"faults(); {on}; faults(); {off}; left()")
    assert much_fewer(again, fresh) and left < GIVEN_BACK


@pytest.mark.slow
def test_what_the_user_says_goes_before_what_a_framework_asks_for(known):
    declined, wanted = printed(
        "gsb.reuse_memory(False); gsb.enable('pyg'); faults(); gsb.disable(); gsb.reuse_memory(); "
        "gsb.enable('pyg'); gsb.disable(); faults()"
    )
    assert much_fewer(wanted, declined)


@pytest.mark.slow
def test_results_of_one_size_do_not_make_the_process_grow(known):
    """Two results of 64 MB live at a time, and what is kept after sixteen steps is little more than that."""
    (left,) = printed(
        """
        gsb.enable("pyg")
        nodes = torch.arange(1 << 16)
        graph = gsb.Graph.from_coo(nodes, nodes, (1 << 16, 1 << 16))
        x, cotangent = torch.ones(1 << 16, 256, requires_grad=True), torch.ones(1 << 16, 256)
        start = psutil.Process().memory_info().rss
        for _ in range(16):
            x.grad = None
            gsb.spmm(graph, x).backward(cotangent)
        left()
        """
    )
    assert left < 3 * (64 << 20)


@pytest.mark.parametrize("shape", [(0, 4), (3, 5), (1 << 20, 2), (1 << 19, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_are_plain_tensors(shape, dtype):
    out = memory.empty(torch.empty(1, dtype=dtype), *shape)
    assert out.shape == shape and out.dtype == dtype and out.is_contiguous() and not out.requires_grad
    out.fill_(2)
    assert bool((out == 2).all())


@pytest.fixture
def pool(monkeypatch):
    fresh = pools.Pool(64 << 20)
    monkeypatch.setattr(memory, "POOL", fresh)
    return fresh


def large(rows: int = 1 << 19) -> torch.Tensor:
    return memory.empty(torch.empty(1), rows, 4)  # 8 MiB


def test_a_dropped_result_leaves_its_memory(pool):
    first = large()
    address = first.data_ptr()
    del first
    assert pool.kept == 8 << 20
    assert large().data_ptr() == address


@pytest.mark.parametrize("rows", [(1 << 18) + 1, 300_000, 330_001, (1 << 19) - 1, 700_000, 1_000_003])
def test_every_size_is_used_again(pool, rows):
    first = large(rows)
    address = first.data_ptr()
    del first
    assert large(rows).data_ptr() == address


def test_views_and_gradients_keep_the_memory(pool):
    first = large()
    view = first[7:9]
    view.fill_(5)
    del first
    assert pool.kept == 0
    other = large().fill_(1)
    assert bool((view == 5).all()) and bool((other == 1).all())


def test_no_two_live_results_share_memory(pool):
    live = [large().fill_(i) for i in range(6)]
    assert all(bool((t == i).all()) for i, t in enumerate(live))
    assert len({t.data_ptr() for t in live}) == 6


def test_the_pool_is_bounded_and_can_be_emptied(pool):
    del_me = [large() for _ in range(20)]
    del del_me
    assert 0 < pool.kept <= 64 << 20
    memory.empty_cache()
    assert pool.kept == 0


def test_another_size_takes_other_memory(pool):
    first = large()
    address = first.data_ptr()
    del first
    assert large(1 << 20).data_ptr() != address and large(1 << 18).data_ptr() != address
    # nearly the same size is the same memory
    assert large((1 << 19) - 1000).data_ptr() == address


def test_threads_get_memory_of_their_own(pool):
    from concurrent.futures import ThreadPoolExecutor

    def work(i):
        for _ in range(20):
            mine = large().fill_(i)
            if not bool((mine == i).all()):
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(8)))


def test_nothing_is_kept_without_a_limit(monkeypatch):
    monkeypatch.setattr(memory, "POOL", pools.Pool(0))
    large().fill_(1)
    assert memory.POOL.kept == 0


def test_a_limit_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("GSB_POOL_BYTES", "1 cup")
    with pytest.raises(ValueError, match="GSB_POOL_BYTES must be a number of bytes, .*got '1 cup'"):
        pools._limit(16)


def test_results_of_the_operator_come_from_the_pool(pool):
    graph = gsb.Graph.from_coo(torch.arange(1 << 15), torch.arange(1 << 15), (1 << 15, 1 << 15))
    x = torch.randn(1 << 15, 64, requires_grad=True)
    y = gsb.spmm(graph, x)
    assert torch.equal(y, x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    y = y.detach()
    y += 1
    del y
    gradient = x.grad
    del x
    assert pool.kept > 0 and torch.equal(gradient, torch.ones_like(gradient))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_the_pool_is_locked_can_use_it(pool):
    locked, done = threading.Event(), threading.Event()

    def hold():
        with pool._lock:
            locked.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for the lock dies of this
        os._exit(0 if pool.lease(8 << 20).nbytes == 8 << 20 else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    holder.join()
    assert status == 0
