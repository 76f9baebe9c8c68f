"""The task: every token of a long sequence has to say which symbol the one marked token has."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SYMBOLS = 8
FIRST = SYMBOLS
"""The symbol of the first token, which stands for the whole sequence."""


class Sequences(NamedTuple):
    """symbols: (batch, length) random, the first one FIRST. marks: (batch, length) 1 at the needle, else 0. needle:
    (batch,) where it is. answer: (batch,) its symbol.
    """

    symbols: Tensor
    marks: Tensor
    needle: Tensor
    answer: Tensor


def draw(batch: int, length: int, generator: torch.Generator) -> Sequences:
    symbols = torch.randint(0, SYMBOLS, (batch, length), generator=generator)
    symbols[:, 0] = FIRST
    needle = torch.randint(1, length, (batch,), generator=generator)
    rows = torch.arange(batch)
    marks = torch.zeros_like(symbols)
    marks[rows, needle] = 1
    return Sequences(symbols, marks, needle, symbols[rows, needle])


def reached(sequences: Sequences, reach: int) -> Tensor:
    """(batch, length) whether the needle is at most so far away."""
    at = torch.arange(sequences.symbols.shape[1])
    return (at - sequences.needle[:, None]).abs() <= reach


def best_within(sequences: Sequences, reach: int) -> float:
    """The accuracy of a network that knows the needle where it is at most so far away, and guesses elsewhere."""
    near = reached(sequences, reach).double().mean().item()
    return near + (1 - near) / SYMBOLS
