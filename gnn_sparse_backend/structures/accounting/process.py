"""``gsb.memory()``: what the process holds, so that it adds up to what the system says of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from torch import Tensor
from torch.nn import Parameter

from ...frozen import dataclass
from ...runtime.accounts import ACCOUNTS, file_of
from ...system import process_memory
from ..csr import live_pairs
from ..derived import Keeps
from ..graph import Graph
from ..immutable import Structure
from .held import Covered, Held, arrays_of, facts_of, tabulated


@dataclass(frozen=True)
class ProcessMemory:
    """What the process holds. Prints as a table.

    rows: structures, tensors of the program, what is kept for later, files, and the rest; they add up to ``nbytes``.
    nbytes: bytes of the process in memory now. peak: the most there were at a time; 0 where the system does not say.
    """

    rows: tuple[Held, ...]
    nbytes: int
    peak: int

    def __str__(self) -> str:
        words = f"in memory now; the most at a time: {self.peak:,}" if self.peak else "in memory now"
        return tabulated(self.rows, words, self.nbytes)


def memory_of_process() -> ProcessMemory:
    """Account for the memory of this process."""
    program = _of_program()  # before the process is measured: a list of all objects takes megabytes
    resident, files, peak = process_memory()
    covered = Covered([])
    rows = [
        *_of_structures(covered),
        *(Held("kept", words, nbytes(), False) for words, nbytes in list(ACCOUNTS.items())),
        Held("files", "libraries, and data that is mapped into memory", files, False),
    ]
    for words, tensors in program.items():
        # what was never touched is in no memory
        left = resident - sum(row.nbytes for row in rows)
        rows.append(Held("program", words, max(min(covered.add(tensors), left), 0), False))
    left = max(resident - sum(row.nbytes for row in rows), 0)
    rows.append(Held("the rest", "PyTorch, Python, kernels, tensors that gradients alone hold", left, False))
    return ProcessMemory(tuple(row for row in rows if row.nbytes), resident, peak)


def _of_program() -> dict[str, list[Tensor]]:
    """Tensors on the CPU that Python holds, by what they are."""
    found: dict[str, list[Tensor]] = {"parameters": [], "their gradients": [], "tensors": []}
    for each in gc.get_objects():
        if type(each) not in (Tensor, Parameter) or not each.is_cpu:
            continue
        found["parameters" if type(each) is Parameter else "tensors"] += [
            array for array in arrays_of(each) if file_of(array) is None
        ]
        if each.is_leaf and each.grad is not None:
            found["their gradients"].append(each.grad)
    return found


def _of_structures(covered: Covered) -> Iterator[Held]:
    """Index arrays and derived arrays of the live structures of each kind. What two share is counted once."""
    kinds: dict[str, list[Keeps]] = {}
    for structure in _live_structures():
        kinds.setdefault(type(structure).__name__, []).append(structure)
    keepers = [keeper for structures in kinds.values() for each in structures for keeper in each.keepers()]
    covered.apart += [keeper.it for keeper in keepers]
    for kind, structures in kinds.items():
        of_kind = [keeper for each in structures for keeper in each.keepers()]
        words = f"{kind} ({len(structures)})"
        yield Held(words, "index arrays", sum(covered.add(keeper.arrays) for keeper in of_kind), False)
        yield Held(words, "derived", sum(row.nbytes for each in of_kind for row in facts_of(each, covered)), True)


def _live_structures() -> Iterator[Keeps]:
    yield from (graph for pair in live_pairs() if (graph := Graph._showing(pair)) is not None)
    kinds = [Structure]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        yield from list(kind._live.values()) if "_live" in kind.__dict__ else ()
