"""Every operator under threads, forks and interrupts, on empty structures, and bit for bit at every run."""

import functools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import gnn_sparse_backend as gsb
from tests.ops.operators import OPERATORS, step

ROWS, COLUMNS, EDGES = 300, 200, 4000


@pytest.fixture(scope="module")
def graph():
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(0, ROWS - 3, (EDGES,), generator=generator)
    row[:1000] = 7  # one long row
    return gsb.Graph.from_coo(row, torch.randint(0, COLUMNS, (EDGES,), generator=generator), (ROWS, COLUMNS))


def drawn(name, graph, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return OPERATORS[name].operands(graph, dtype)


def same_bits(a, b) -> bool:
    return all(
        x.dtype == y.dtype and x.shape == y.shape and torch.equal(x.view(torch.uint8), y.view(torch.uint8))
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.short(8)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_same_bits_at_every_run(graph, name):
    """What ``torch.use_deterministic_algorithms`` asks for holds always, with two threads and with one."""
    operands = drawn(name, graph)
    torch.manual_seed(1)
    out = OPERATORS[name].run(graph, *operands)
    cotangent = torch.randn_like(out)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first = step(name, graph, operands, cotangent)
        torch.use_deterministic_algorithms(True)
        for _ in range(5):
            assert same_bits(step(name, graph, operands, cotangent), first)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(before)


# the framework's own maxima and softmax keep their results for the backward pass, too
KEEPS_ITS_RESULT = ("max", "min", "edge_softmax")


@functools.cache
def large_graph():
    generator = torch.Generator().manual_seed(0)
    return gsb.Graph.from_coo(*torch.randint(0, 200_000, (2, 300_000), generator=generator), (200_000, 200_000))


@pytest.mark.short(8)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("size", ["small", "large"])
def test_results_may_be_written_to(graph, name, size):
    if size == "large":
        graph = large_graph()
    operands = drawn(name, graph)
    out = OPERATORS[name].run(graph, *operands)
    cotangent = torch.randn_like(out)
    expected = torch.autograd.grad(out * 2, operands, cotangent, retain_graph=True)
    again = torch.autograd.grad(out * 2, operands, cotangent)
    out = OPERATORS[name].run(graph, *operands)
    plain = out.detach().clone()
    out.mul_(2)
    torch.testing.assert_close(out.detach(), plain * 2)
    assert same_bits(again, expected)
    if not name.endswith(KEEPS_ITS_RESULT):
        assert same_bits(torch.autograd.grad(out, operands, cotangent), expected)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shape, edges", [((0, 0), 0), ((4, 0), 0), ((0, 4), 0), ((5, 3), 0)])
def test_structures_without_edges(name, shape, edges):
    none = torch.zeros(0, dtype=torch.long)
    empty = gsb.Graph.from_coo(none, none, shape)
    operands = drawn(name, empty)
    results = step(name, empty, operands)
    assert all(x.isfinite().all() or name == "gspmm_last_max" for x in results)
    for x, grad in zip(operands, results[1:], strict=True):
        assert grad.shape == x.shape and not grad.any()


def test_threads_that_call_at_once(graph):
    names = list(OPERATORS)
    operands = {name: drawn(name, graph) for name in names}
    expected = {name: step(name, graph, operands[name]) for name in names}
    barrier = threading.Barrier(4)

    def work(start):
        barrier.wait()
        for _turn in range(3):
            for at in range(len(names)):
                name = names[(at + start * 5) % len(names)]
                assert same_bits(step(name, graph, operands[name]), expected[name]), name
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_threads_that_meet_a_new_structure_at_once():
    """The first calls on a graph build its transpose and its row groups."""
    generator = torch.Generator().manual_seed(3)
    for _turn in range(10):
        row, column = torch.randint(0, 500, (2, 20000), generator=generator)
        reference = gsb.Graph.from_coo(row, column, (500, 500))
        x = torch.randn(500, 16, generator=generator, requires_grad=True)
        expected = torch.autograd.grad(gsb.spmm(reference, x).square().sum(), x)
        fresh = gsb.Graph.from_coo(row, column, (500, 500))
        barrier = threading.Barrier(4)

        def work(_, fresh=fresh, x=x, barrier=barrier):
            barrier.wait()
            return torch.autograd.grad(gsb.spmm(fresh, x).square().sum(), x)

        with ThreadPoolExecutor(4) as pool:
            assert all(same_bits(found, expected) for found in pool.map(work, range(4)))


class _Steps(torch.utils.data.Dataset):
    """Training steps on a graph, run by the workers of a DataLoader: after a fork."""

    def __init__(self, graph, operands):
        self.graph, self.operands = graph, operands

    def __len__(self):
        return len(OPERATORS)

    def __getitem__(self, at):
        name = list(OPERATORS)[at]
        return at, step(name, self.graph, self.operands[name])


def test_workers_forked_after_use(graph):
    operands = {name: drawn(name, graph) for name in OPERATORS}
    expected = {name: step(name, graph, operands[name]) for name in OPERATORS}
    loader = DataLoader(
        _Steps(graph, operands), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=120
    )
    seen = 0
    for at, found in loader:
        seen += 1
        name = list(OPERATORS)[at]
        torch.testing.assert_close(found, expected[name], rtol=0, atol=0)
    assert seen == len(OPERATORS)
    name = next(iter(OPERATORS))
    assert same_bits(step(name, graph, operands[name]), expected[name])


_INTERRUPTED = """
import faulthandler
faulthandler.dump_traceback_later(150, exit=True)  # where a call hangs, it says where
import os, signal, sys, threading, time
import torch
sys.path.insert(0, {folder!r})
import gnn_sparse_backend as gsb
from tests.ops.operators import OPERATORS, step

# a shell that starts the tests in the background has it ignored, which children inherit
signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(2)
names = ["spmm_weighted_mean", "gspmm_mul_max", "gat_attention", "edge_softmax"]
graph = gsb.Graph.from_coo(torch.randint(0, 10000, (100000,)), torch.randint(0, 10000, (100000,)), (10000, 10000))
operands = {{name: OPERATORS[name].operands(graph) for name in names}}
expected = {{name: step(name, graph, operands[name]) for name in names}}
caught = 0
for turn in range(12):
    name = names[turn % len(names)]
    timer = threading.Timer(0.002 + 0.003 * turn, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            step(name, graph, operands[name])
    except KeyboardInterrupt:
        caught += 1
    timer.join()
    again = step(name, graph, operands[name])
    assert all(torch.equal(a, b) for a, b in zip(again, expected[name])), name
print("caught", caught)
"""


@pytest.mark.slow
def test_interrupts_in_the_middle_of_calls():
    """Ctrl-C is raised as soon as the kernel at work returns, and what comes after is right."""
    script = _INTERRUPTED.format(folder=str(Path(__file__).parents[3]))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["caught", "12"]
