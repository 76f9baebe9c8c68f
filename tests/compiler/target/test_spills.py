"""Kernels whose registers are put aside in memory are compiled with room for more of them."""

from __future__ import annotations

import pytest

from gnn_sparse_backend.compiler.target import cuda
from gnn_sparse_backend.compiler.target.ptxas import PtxasStatistics
from gnn_sparse_backend.compiler.target.spills import with_more_room

SOURCE = '''extern "C" __global__ void __launch_bounds__(128) one(float* x);
extern "C" __global__ void __launch_bounds__(128) one(float* x) { x[0] = 1; }
extern "C" __global__ void __launch_bounds__(32) one_more(float* x) { x[0] = 1; }'''


def spilled(registers, kernel="one"):
    return PtxasStatistics(kernel, registers, spill_stores=12, spill_loads=12)


@pytest.mark.parametrize("registers, blocks", [
    (72, 6),   # 65,536 registers: 7 blocks of 128 threads with 72 each, 6 with 80
    (40, 10),  # 12; 11 would have 46, of which a thread gets 40, and 10 have 48
    (41, 9),   # of which ptxas gives 48; 9 blocks have 56
])  # fmt: skip
def test_one_block_fewer_that_leaves_more_registers(registers, blocks):
    eased = with_more_room(SOURCE, [spilled(registers), PtxasStatistics("one_more", 16)])
    assert eased == SOURCE.replace("(128) one(", f"(128, {blocks}) one(")


def test_again_until_the_least_number_of_threads():
    source, seen = SOURCE, []
    for registers in (80, 96, 104, 128, 160):
        eased = with_more_room(source, [spilled(registers)])
        seen.append(eased)
        source = eased or source
    assert [text and text.count(f"(128, {blocks}) one(") for text, blocks in zip(seen, (5, 4, 4, 4, 4))] == [2, 2, None, None, None]
    assert with_more_room(SOURCE, [spilled(200, "one_more")]) is None


def test_nothing_to_mend():
    assert with_more_room(SOURCE, []) is None
    assert with_more_room(SOURCE, [PtxasStatistics("one", 255)]) is None
    assert with_more_room("__global__ void one(float* x) {}", [spilled(32)]) is None  # blocks of one thread


def test_compiling_goes_on_until_nothing_spills(monkeypatch):
    logs = {"(128)": "40 registers, 8 bytes spill stores, 8 bytes spill loads", "(128, 10)": "Used 48 registers, 4 bytes spill stores",
            "(128, 9)": "Used 51 registers"}
    seen = []

    def nvcc(source, arch, format, kernel, level):
        assert level == 10
        bounds = next(text for text in logs if f"__launch_bounds__{text} one(" in source)
        seen.append(bounds)
        return bounds.encode(), f"Compiling entry function 'one' for 'sm_90'\nUsed {logs[bounds].removeprefix('Used ')}"

    monkeypatch.setattr(cuda, "_nvcc", nvcc)
    binary = cuda.compile_cuda(SOURCE, "sm_90")
    assert seen == list(logs) and binary.code == b"(128, 9)"
    assert binary.statistics == (PtxasStatistics("one", 51),)


@pytest.mark.parametrize("spilled_then, chosen", [(0, 5), (4, 5), (8, 10), (12, 10)])
def test_where_no_room_is_left_ptxas_optimises_less(spilled_then, chosen, monkeypatch):
    """Four blocks of 128 threads have 128 registers each. What spills less is kept, and the first of equals."""
    seen = []

    def nvcc(source, arch, format, kernel, level):
        assert source == SOURCE
        seen.append(level)
        spills = {10: 8, 5: spilled_then}[level]
        return str(level).encode(), f"Compiling entry function 'one' for 'sm_80'\n{spills} bytes spill stores\nUsed 128 registers"

    monkeypatch.setattr(cuda, "_nvcc", nvcc)
    binary = cuda.compile_cuda(SOURCE, "sm_80")
    assert seen == [10, 5] and binary.code == str(chosen).encode()
    assert binary.statistics[0].spill_stores == min(8, spilled_then)
