"""``gsb.memory``: what a structure holds, with bytes."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from ...deferred import console, table
from ...frozen import dataclass
from ..derived import Derived, Keeper

WIDTH = 100
"""Columns of the printed table."""
Span: TypeAlias = tuple[int, int]
"""Addresses of memory, the last exclusive."""
_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Held:
    """of: what of the structure holds it. what: its index arrays, a fact, or its calls. nbytes: of memory that nothing
    before it in the list holds. derived: whether ``release`` frees it.
    """

    of: str
    what: str
    nbytes: int
    derived: bool


@dataclass(frozen=True)
class Memory:
    """What a structure holds. Prints as a table.

    rows: what takes memory, the structure's index arrays first. calls: what is ready to run, by the shapes and types of
    a call. plans: of operators that ran.
    """

    rows: tuple[Held, ...]
    calls: int
    plans: int

    @property
    def nbytes(self) -> int:
        """Bytes of everything that it holds."""
        return sum(row.nbytes for row in self.rows)

    @property
    def derived(self) -> int:
        """Bytes that ``release`` frees. Groups of equal rows, a few numbers, stay where other graphs share them."""
        return sum(row.nbytes for row in self.rows if row.derived)

    def __str__(self) -> str:
        return tabulated(self.rows, f"{self.calls} calls and {self.plans} plans are known", self.nbytes)


def tabulated(held: Iterable[Held], words: str, total: int) -> str:
    """What takes memory as a table, whose last line has ``words`` and the total."""
    rows = table.Table("of", "what")
    rows.add_column("bytes", justify="right")
    for row in held:
        rows.add_row(row.of, row.what, f"{row.nbytes:,}")
    rows.add_section()
    rows.add_row("", words, f"{total:,}")
    text = io.StringIO()
    console.Console(file=text, width=WIDTH, markup=False, emoji=False).print(rows)
    return text.getvalue()


def memory_of(structure: Any) -> Memory:
    """The `Memory` of one structure.

    Raises:
        TypeError: it is no structure.
    """
    if not callable(getattr(structure, "keepers", None)):
        raise TypeError(
            "memory: expected a gsb.Graph, RelGraph, Segments, KernelMap, masks.Mask or nn.SparseTensor, got "
            f"{type(structure).__name__}"
        )
    keepers = list(structure.keepers())
    covered = Covered([keeper.it for keeper in keepers])
    own = [Held(keeper.of, "index arrays", covered.add(keeper.arrays), keeper.derived) for keeper in keepers]
    rows = [row for keeper, first in zip(keepers, own) for row in (first, *facts_of(keeper, covered))]
    calls, plans = (sum(len(getattr(keeper.it, name, ())) for keeper in keepers) for name in ("calls", "plans"))
    return Memory((rows[0], *(row for row in rows[1:] if row.nbytes)), calls, plans)


def facts_of(keeper: Keeper, covered: Covered) -> Iterable[Held]:
    """The facts of a keeper, and what its calls hold, with the bytes that are not covered yet."""
    for fact, value in list(keeper.it.facts.items()):
        yield Held(keeper.of, name_of(fact), covered.add(value), True)
    yield Held(keeper.of, "calls", covered.add(list(getattr(keeper.it, "calls", {}).values())), True)


def name_of(fact: Derived[Any]) -> str:
    """The class of a fact, and what tells it from others of its kind."""
    fields = dataclasses.fields(fact) if dataclasses.is_dataclass(fact) else ()
    given = [f"{field.name}={_word(getattr(fact, field.name))}" for field in fields if field.compare]
    return type(fact).__name__ + (f"({', '.join(given)})" if given else "")


def _word(value: object) -> str:
    if isinstance(value, Derived):
        return name_of(value)
    return value.__name__ if isinstance(value, FunctionType) else repr(value)


class Covered:
    """The memory that arrays were found to hold. apart: what is looked at by itself, wherever it is found."""

    def __init__(self, apart: list[Any]) -> None:
        self.apart = apart
        self.spans: list[Span] = []
        self.nbytes = 0

    def add(self, value: object) -> int:
        """Bytes that the arrays within ``value`` hold and none before did."""
        merged: list[Span] = []
        for begin, end in sorted([*self.spans, *spans_of(value, self.apart)]):
            if merged and begin <= merged[-1][1]:
                begin, end = merged[-1][0], max(end, merged.pop()[1])
            merged.append((begin, end))
        before, self.nbytes = self.nbytes, sum(end - begin for begin, end in merged)
        self.spans = merged
        return self.nbytes - before


def spans_of(value: object, apart: list[Any]) -> list[Span]:
    """The storage of every array within ``value``, but not within what is ``apart``: tensors, NumPy arrays, and what
    holds them.
    """
    spans: list[Span] = []
    met = {id(each): each for each in apart}
    left: list[Any] = [value]
    while left:
        each = left.pop()
        while isinstance(each, np.ndarray) and isinstance(each.base, (np.ndarray, Tensor)):
            each = each.base
        if isinstance(each, Tensor):
            for array in arrays_of(each):
                storage = array.untyped_storage()
                spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        elif isinstance(each, np.ndarray):
            begin = each.__array_interface__["data"][0]
            spans.append((begin, begin + each.nbytes))
        elif id(each) not in met:
            met[id(each)] = each
            left += _parts_of(each)
    return spans


_ROWS, _COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_ARRAYS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: _ROWS,
    torch.sparse_bsr: _ROWS,
    torch.sparse_csc: _COLUMNS,
    torch.sparse_bsc: _COLUMNS,
}


def arrays_of(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors that hold a tensor's numbers: those of a sparse one, and none of one that shows another's, as those
    of ``torch.func`` do.
    """
    if tensor.layout in _ARRAYS:
        yield from (getattr(tensor, name)() for name in _ARRAYS[tensor.layout])
    elif tensor.layout == torch.strided and not is_functorch_wrapped_tensor(tensor):
        yield tensor


def _parts_of(value: Any) -> list[Any]:
    """What a container holds, or an object of this package. Kernels have no arrays, nor has anything of the
    compiler.
    """
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (tuple, list, set, frozenset)):
        return list(value)
    package, *rooms = type(value).__module__.split(".")
    if package != _PACKAGE or rooms[:1] == ["compiler"]:
        return []
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*(getattr(value, name, None) for name in slots), *getattr(value, "__dict__", {}).values()]
