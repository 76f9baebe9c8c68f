"""``gsb.memory``: what a structure holds beside its own arrays, with bytes."""

from __future__ import annotations

import dataclasses
import io
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from .derived import Derived, arrays_of

WIDTH = 100


@dataclass(frozen=True)
class Held:
    """of: whose it is, as "graph" or "transpose". what: its own arrays, or a fact. nbytes: of the storage that nothing
    above it in the list has.
    """

    of: str
    what: str
    nbytes: int


@dataclass(frozen=True)
class Memory:
    """What a structure holds. Prints as a table.

    calls: what is ready to run by the signature of a call. plans: of operators that ran.
    """

    rows: tuple[Held, ...]
    calls: int
    plans: int

    @property
    def nbytes(self) -> int:
        """Of all of it."""
        return sum(row.nbytes for row in self.rows)

    @property
    def derived(self) -> int:
        """Bytes that ``release`` frees: of all but the arrays that the structure was made of."""
        return self.nbytes - self.rows[0].nbytes

    def __str__(self) -> str:
        table = Table("of", "what")
        table.add_column("bytes", justify="right")
        for row in self.rows:
            table.add_row(row.of, row.what, f"{row.nbytes:,}")
        table.add_section()
        table.add_row("", f"{self.calls} calls and {self.plans} plans are known", f"{self.nbytes:,}")
        text = io.StringIO()
        Console(file=text, width=WIDTH).print(table)
        return text.getvalue()


def memory(structure: Any) -> Memory:
    """What a structure holds: the arrays that it was made of, and every fact that it has derived, with bytes.

        print(gsb.memory(graph))
        graph.release()            # frees all but the arrays; it is derived again where it is needed

    Storage that several facts share is counted once. On a GPU bytes are those of the GPU. Kernels are the process's and
    are not in it.

    Raises TypeError for anything but a ``Graph``, ``RelGraph``, ``Segments``, ``KernelMap`` or ``nn.SparseTensor``.
    """
    if not callable(getattr(structure, "keepers", None)):
        raise TypeError(
            "memory: expected a gsb.Graph, RelGraph, Segments, KernelMap or nn.SparseTensor, got "
            f"{type(structure).__name__}"
        )
    seen: set[int] = set()
    rows, calls, plans = [], 0, 0
    for of, keeper, arrays in structure.keepers():
        rows.append(Held(of, "index arrays", _fresh(arrays, seen)))
        rows += [Held(of, name_of(fact), _fresh(value, seen)) for fact, value in list(keeper.facts.items())]
        calls += len(getattr(keeper, "calls", ()))
        plans += len(getattr(keeper, "plans", ()))
    return Memory(tuple(row for at, row in enumerate(rows) if at == 0 or row.nbytes), calls, plans)


def name_of(fact: Derived) -> str:
    """The class of a fact, and what tells it from others of its kind."""
    if not dataclasses.is_dataclass(fact):
        return type(fact).__name__
    fields = [f"{field.name}={getattr(fact, field.name)!r}" for field in dataclasses.fields(fact) if field.compare]
    return f"{type(fact).__name__}({', '.join(fields)})"


def _fresh(value: object, seen: set[int]) -> int:
    """Bytes of the storage in ``value`` that was not seen before, which is now."""
    total = 0
    for address, nbytes in arrays_of(value):
        if address not in seen:
            seen.add(address)
            total += nbytes
    return total


__all__ = ["Held", "Memory", "memory"]
