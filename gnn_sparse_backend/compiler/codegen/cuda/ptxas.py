"""What ``ptxas -v`` says of the kernels that it assembles."""

from __future__ import annotations

import re

from ....frozen import dataclass


@dataclass(frozen=True)
class PtxasStatistics:
    """What ptxas reports of one kernel: registers per thread; bytes per thread of stack and of spilled stores and
    loads; bytes of static shared memory per block."""

    kernel: str
    registers: int
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    shared: int = 0


def parse_ptxas(log: str) -> tuple[PtxasStatistics, ...]:
    """Statistics from the output of ``ptxas -v``, one entry per kernel, in its order."""
    found = []
    for section in re.split(r"Compiling entry function '", log)[1:]:
        name = section.partition("'")[0]

        def number(pattern: str, text: str = section) -> int:
            match = re.search(pattern, text)
            return int(match.group(1)) if match else 0

        found.append(
            PtxasStatistics(
                name,
                registers=number(r"Used (\d+) registers"),
                spill_stores=number(r"(\d+) bytes spill stores"),
                spill_loads=number(r"(\d+) bytes spill loads"),
                stack=number(r"(\d+) bytes stack frame"),
                shared=number(r"(\d+) bytes smem"),
            )
        )
    return tuple(found)
