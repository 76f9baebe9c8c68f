"""Room for kernels whose registers the compiler has put aside in memory.

ptxas chooses by itself how many blocks of a kernel a multiprocessor should have room for, and spills a few registers
where that lets one more run. Our loops touch every register for each non-zero or so, and would pay for that each time.
The source of a kernel that spills therefore asks for one block fewer, which leaves more registers to each thread, and
is compiled again. Others do not ask for it: offered 128 registers, they take up to twice what they take by themselves.
For how few threads there may be room, `compile_cuda` says: for fewer than 512 only where leaving out optimisations that
take registers does not help either.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from .ptxas import PtxasStatistics

# Limits of a multiprocessor from sm_80 on: registers, the step in which a thread gets them, and blocks.
REGISTERS = 65536
STEP = 8
MOST_BLOCKS = 32


def spilled_bytes(statistics: Iterable[PtxasStatistics]) -> int:
    """Bytes that a thread of each kernel stores and loads for want of registers, of all kernels."""
    return sum(kernel.spill_stores + kernel.spill_loads for kernel in statistics)


def with_more_room(source: str, statistics: Iterable[PtxasStatistics], least: int) -> str | None:
    """CUDA source in which every kernel that spilled asks for fewer blocks side by side; None where there is none, or
    no room.

        __launch_bounds__(128) kernel(   ->   __launch_bounds__(128, 6) kernel(       where 72 registers left room for 7

    least: threads of a multiprocessor that have to have room, whatever a kernel spills.
    """
    changed = source
    for kernel in statistics:
        if spilled_bytes([kernel]):
            bounds = re.compile(rf"__launch_bounds__\((\d+)(?:, \d+)?\) {re.escape(kernel.kernel)}\(")
            changed = bounds.sub(functools.partial(_eased, kernel, least), changed)
    return None if changed == source else changed


def _eased(kernel: PtxasStatistics, least: int, bounds: re.Match[str]) -> str:
    threads = int(bounds[1])
    blocks = _blocks(threads, kernel.registers) - 1
    while blocks > 0 and _registers(threads, blocks) <= kernel.registers:
        blocks -= 1
    return bounds[0] if blocks * threads < least else f"__launch_bounds__({threads}, {blocks}) {kernel.kernel}("


def _blocks(threads: int, registers: int) -> int:
    """Blocks that fit on a multiprocessor."""
    return min(MOST_BLOCKS, REGISTERS // (threads * -(-registers // STEP) * STEP))


def _registers(threads: int, blocks: int) -> int:
    """Registers that a thread may have for ``blocks`` blocks to fit on a multiprocessor."""
    return REGISTERS // (threads * blocks) // STEP * STEP
