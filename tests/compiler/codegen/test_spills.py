"""Kernels whose registers are put aside in memory are compiled with room for more of them."""

from __future__ import annotations

import pytest

from gnn_sparse_backend.compiler.codegen.cuda import machine_code as cuda
from gnn_sparse_backend.compiler.codegen.cuda.ptxas import PtxasStatistics
from gnn_sparse_backend.compiler.codegen.cuda.spills import with_more_room

SOURCE = """extern "C" __global__ void __launch_bounds__(128) one(float* x);
extern "C" __global__ void __launch_bounds__(128) one(float* x) { x[0] = 1; }
extern "C" __global__ void __launch_bounds__(32) one_more(float* x) { x[0] = 1; }"""


def spilled(registers, kernel="one"):
    return PtxasStatistics(kernel, registers, spill_stores=12, spill_loads=12)


@pytest.mark.parametrize(
    "registers, blocks",
    [
        (72, 6),  # 65,536 registers: 7 blocks of 128 threads with 72 each, 6 with 80
        (40, 10),  # 12; 11 would have 46, of which a thread gets 40, and 10 have 48
        (41, 9),  # of which ptxas gives 48; 9 blocks have 56
    ],
)
def test_one_block_fewer_that_leaves_more_registers(registers, blocks):
    eased = with_more_room(SOURCE, [spilled(registers), PtxasStatistics("one_more", 16)], 512)
    assert eased == SOURCE.replace("(128) one(", f"(128, {blocks}) one(")


@pytest.mark.parametrize("least, blocks", [(512, (5, 4, 4, 4, 4)), (256, (5, 4, 3, 3, 2))])
def test_again_until_the_least_number_of_threads(least, blocks):
    source, seen = SOURCE, []
    for registers in (80, 96, 104, 128, 160):
        eased = with_more_room(source, [spilled(registers)], least)
        seen.append(eased)
        source = eased or source
    expected = [2 if before != after else None for before, after in zip((0, *blocks), blocks)]
    assert [text and text.count(f"(128, {count}) one(") for text, count in zip(seen, blocks)] == expected
    assert with_more_room(SOURCE, [spilled(200, "one_more")], 512) is None


def test_nothing_to_mend():
    assert with_more_room(SOURCE, [], 512) is None
    assert with_more_room(SOURCE, [PtxasStatistics("one", 255)], 512) is None
    assert with_more_room("__global__ void one(float* x) {}", [spilled(32)], 512) is None  # blocks of one thread


def test_compiling_goes_on_until_nothing_spills(monkeypatch):
    logs = {
        "(128)": "40 registers, 8 bytes spill stores, 8 bytes spill loads",
        "(128, 10)": "Used 48 registers, 4 bytes spill stores",
        "(128, 9)": "Used 51 registers",
    }
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


@pytest.mark.parametrize(
    "at_5, with_three, with_two, asked, chosen",
    [
        (0, None, None, [(10, 4), (5, 4)], (5, 4)),
        (4, 0, None, [(10, 4), (5, 4), (10, 4), (10, 3)], (10, 3)),
        (4, 4, 4, [(10, 4), (5, 4), (10, 4), (10, 3), (10, 2)], (5, 4)),
        (8, 8, 8, [(10, 4), (5, 4), (10, 4), (10, 3), (10, 2)], (10, 4)),
    ],
)
def test_where_no_room_is_left_ptxas_optimises_less(at_5, with_three, with_two, asked, chosen, monkeypatch):
    """Four blocks of 128 threads have 128 registers each, three 168 and two all that a thread can have. What spills
    less is kept, and the first of equals."""
    seen = []
    spills = {(10, 4): 8, (5, 4): at_5, (10, 3): with_three, (10, 2): with_two}
    registers = {4: 128, 3: 168, 2: 255}

    def nvcc(source, arch, format, kernel, level):
        blocks = next((n for n in (3, 2) if f"(128, {n}) one(" in source), 4)
        seen.append((level, blocks))
        return (
            str(seen[-1]).encode(),
            f"Compiling entry function 'one' for 'sm_80'\n{spills[level, blocks]} bytes spill stores\n"
            f"Used {registers[blocks]} registers",
        )

    monkeypatch.setattr(cuda, "_nvcc", nvcc)
    binary = cuda.compile_cuda(SOURCE, "sm_80")
    assert seen == asked and binary.code == str(chosen).encode()
    assert binary.statistics[0].spill_stores == spills[chosen]
