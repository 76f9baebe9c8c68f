"""The allocator of large tensors: what it hands out again, how much it keeps, and what it never replaces."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import gnn_sparse_backend as gsb
from gnn_sparse_backend.runtime import large_blocks

MIB = 1 << 20


@pytest.fixture
def blocks():
    if not gsb.reuse_memory():
        pytest.skip("another system, or a PyTorch whose allocators are not known")
    found = large_blocks.blocks()
    found.clear()
    yield found
    gsb.reuse_memory(False)
    assert found.kept == 0


def made(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8)


def run(body: str) -> str:
    """What a fresh process prints, which must end well."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(body)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("mib", [4, 5, 16, 17, 63, 64])
def test_a_freed_tensor_leaves_its_memory_to_the_next_of_its_size(mib, blocks):
    address = made(mib).data_ptr()
    other = torch.ones(3)  # a small one between, as networks make them
    assert made(mib).data_ptr() == address and other.sum() == 3


def test_small_tensors_do_not_come_from_there(blocks):
    least = made(large_blocks.LEAST // MIB)
    before = blocks.used
    small = least[:-1].clone()
    assert blocks.used == before and small.nbytes < large_blocks.LEAST <= before


def test_nothing_large_is_twice_in_use(blocks):
    live = [made(16 + i % 3).fill_(i) for i in range(12)]
    assert all(bool((x == i).all()) for i, x in enumerate(live))
    assert len({x.data_ptr() for x in live}) == 12


def test_what_is_kept_and_used_stays_within_nine_eighths_of_the_most_used(blocks):
    chance, live, most = random.Random(0), [], 0
    start = blocks.used
    for _ in range(400):
        if len(live) > 6 or (live and chance.random() < 0.4):
            live.pop(chance.randrange(len(live)))
        else:
            live.append(made(chance.randrange(16, 80)))
        most = max(most, blocks.most)
        assert blocks.used + blocks.kept <= most * 9 / 8
    assert blocks.used - start >= sum(x.nbytes for x in live)
    live.clear()
    assert blocks.used == start


def test_no_more_is_kept_than_the_limit(blocks):
    assert blocks.use(64 * MIB)
    first = [made(32) for _ in range(5)]
    del first
    assert blocks.kept == 64 * MIB
    gsb.empty_cache()
    assert blocks.kept == 0


def test_more_tensors_than_it_has_entries_for(blocks):
    before = blocks.used
    live = [made(16) for _ in range(1100)]  # never touched
    assert blocks.used - before <= 1024 * 16 * MIB
    for i in (0, 1099):
        live[i].fill_(i % 7)
    assert live[0][-1] == 0 and live[1099][-1] == 0
    del live
    assert blocks.used == before


@pytest.mark.slow
def test_threads_get_memory_of_their_own(blocks):
    def work(i):
        for _ in range(30):
            mine = made(16 + i % 2).fill_(i)
            if not bool((mine == i).all()):
                return False
        return True

    before = blocks.used
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(8)))
    assert blocks.used == before


def test_results_of_operators_come_from_there(blocks):
    before = blocks.used
    nodes = torch.arange(1 << 16)
    graph = gsb.Graph.from_coo(nodes, nodes, (1 << 16, 1 << 16))
    x = torch.randn(1 << 16, 64)
    y = gsb.spmm(graph, x)
    assert torch.equal(x, y) and blocks.used - before == 2 * 16 * MIB


def test_a_profile_of_memory_sees_large_tensors(blocks):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        del_me = made(32)
        del del_me
    sizes = [event.nbytes() for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert sizes == [32 * MIB, -32 * MIB]


def test_a_tensor_outlives_the_switch(blocks):
    x = made(32).fill_(3)
    gsb.reuse_memory(False)
    fresh = made(32)
    before = blocks.used
    del fresh
    assert blocks.used == before and bool((x == 3).all())
    del x
    assert (blocks.used, blocks.kept) == (before - 32 * MIB, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_its_own(blocks):
    x = made(32).fill_(1)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        # a byte at a time: threads do not survive a fork
        x[0], other = 2, made(32)
        other[0] = 5
        del x
        again = made(32)
        again[-1] = 6
        os._exit(0 if other[0] == 5 and again[-1] == 6 else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0 and bool((x == 1).all())


def test_a_process_ends_well_with_tensors_that_are_alive(blocks):
    run("""
        import torch, gnn_sparse_backend as gsb
        assert gsb.reuse_memory()
        torch.kept_for_ever = torch.ones(1 << 24)
        waits = torch.ones(1 << 24)
        del waits
    """)


@pytest.mark.slow
def test_dgl_gives_back_to_whichever_allocator_is_there(blocks):
    """It frees by a pointer alone: what was made before, while and after the allocator serves."""
    pytest.importorskip("dgl")
    run("""
        import gc, dgl, torch, gnn_sparse_backend as gsb

        def graph():
            g = dgl.graph((torch.arange(1 << 20) % 1000, torch.arange(1 << 20) % 999))
            g.create_formats_()
            return g

        before = graph()
        gsb.enable("dgl")
        between, gone = graph(), graph()
        del gone, before
        gc.collect()
        gsb.disable()
        after = graph()
        del between
        gc.collect()
        gsb.enable("dgl")
        del after
    """)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        pytest.param('large_blocks._virtual_functions = lambda: ("~Allocator", "allocate")', id="another class"),
        pytest.param("large_blocks._CPU = 0", id="tensors that lie in another way"),
        pytest.param('large_blocks._REPORTER = "no such function"', id="a function that is gone"),
        pytest.param('large_blocks.platform.machine = lambda: "riscv64"', id="another machine"),
    ],
)
def test_what_is_not_known_is_left_alone(change, blocks):
    printed = run(f"""
        import torch, gnn_sparse_backend as gsb
        from gnn_sparse_backend.runtime import large_blocks
        {change}
        print(gsb.reuse_memory(), large_blocks.in_use(), torch.ones(1 << 24).sum().item())
        gsb.empty_cache()
    """)
    assert printed.split() == ["False", "False", "16777216.0"]


@pytest.mark.slow
def test_the_allocator_of_somebody_else_stays(blocks):
    printed = run("""
        import ctypes, torch, gnn_sparse_backend as gsb
        from gnn_sparse_backend.runtime import large_blocks
        assert gsb.reuse_memory() and gsb.reuse_memory(False)
        libc10 = ctypes.CDLL("libc10.so")
        get, put = libc10["_ZN3c1015GetCPUAllocatorEv"], libc10["_ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh"]
        get.restype, put.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_uint8)
        mobile = libc10["_ZN3c1028GetDefaultMobileCPUAllocatorEv"]
        mobile.restype = ctypes.c_void_p
        put(mobile(), 0)
        print(gsb.reuse_memory(), get() == mobile(), large_blocks.in_use())
    """)
    assert printed.split() == ["False", "True", "False"]
