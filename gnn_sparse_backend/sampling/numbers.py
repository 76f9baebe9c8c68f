"""Nodes of one type in a sample: a list of keys in the order in which they were met, and a table that finds them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..compiler.compile import compile_loops
from ..compiler.loops.numbering import FILL, FIND, NUMBER, numbering_function
from ..runtime.memory import empty
from ..structures.checks import as_kernels_read

DIRECT = 1 << 20
"""Nodes up to which a table has a place for each, which is filled anew for each sample: 4 MiB."""
PART = 10
"""A table of more nodes has a place for each where a sample may have met more than one in ``PART`` of them."""


class Numbers:
    """Keys of nodes and their numbers.

    span: nodes of this type; a key is ``tree * span + node``. trees: whether there are several.
    """

    def __init__(self, span: int, trees: bool, seeds: Tensor) -> None:
        """seeds: (n,) int64 keys, which have the first numbers; equal ones keep a row each, and the first one's number
        is that of their key."""
        self.span, self.trees = span, trees
        self._table: Tensor | None = None
        self._hashed = False
        self._shift = 0
        self._keys = as_kernels_read(seeds)
        self.size = seeds.shape[0]
        self._make_room(0)

    @property
    def keys(self) -> Tensor:
        return self._keys[: self.size]

    def number(self, rows: Tensor, span: int, pointers: Tensor, neighbours: Tensor) -> Tensor:
        """(drawn,) the numbers of neighbours, of which new ones get the next. rows: keys with the span ``span``."""
        drawn = neighbours.shape[0]
        self._make_room(drawn)
        return self._run(NUMBER, rows, span, pointers, neighbours)

    def find(self, rows: Tensor, span: int, pointers: Tensor, neighbours: Tensor) -> Tensor:
        """(drawn,) the numbers of neighbours, -1 of those that have none."""
        return self._run(FIND, rows, span, pointers, neighbours)

    def _run(self, what: str, rows: Tensor, span: int, pointers: Tensor, neighbours: Tensor) -> Tensor:
        size, numbers = torch.tensor([self.size]), empty(neighbours, neighbours.shape[0])
        count, drawn = rows.shape[0], neighbours.shape[0]
        given = (count, drawn, span, self.span, rows, pointers, neighbours, size, numbers)
        compile_loops(numbering_function, what, self._hashed).entry(*self._known(), *given)
        self.size = int(size)
        return numbers

    def _known(self) -> tuple[Any, ...]:
        table = self._table
        assert table is not None
        return table.shape[0], table.shape[0] - 1, self._shift, self._keys.shape[0], table, self._keys

    def _make_room(self, more: int) -> None:
        """Make room for ``more`` keys behind those that there are, in the list and in the table."""
        most = self.size + more
        if not self.trees:
            most = min(most, self.size + self.span)
        if most >= 1 << 31:
            raise ValueError(f"a sample has less than 2**31 nodes of a type, this one may have {most}")
        if most > self._keys.shape[0]:
            keys = torch.empty(most, dtype=torch.int64)
            keys[: self.size] = self.keys
            self._keys = keys
        places = 0 if self._table is None else self._table.shape[0]
        direct = not self.trees and (self.span <= DIRECT or most > self.span // PART)
        if direct and (self._table is None or self._hashed):
            self._hashed, self._table = False, torch.full((self.span,), -1, dtype=torch.int32)
        elif not direct and (self._table is None or 2 * most > places):
            bits = max((2 * most - 1).bit_length(), 4)
            self._hashed, self._shift = True, 32 - bits
            self._table = torch.full((1 << bits,), -1, dtype=torch.int32)
        else:
            return
        compile_loops(numbering_function, FILL, self._hashed).entry(*self._known(), 0, self.size)
