"""The task: tokens far apart state facts and ask for them, and rules that no sequence states turn facts into answers.

A fact is a token with a key and a value. A question is one with a key and an operation, anywhere before or behind. Its
answer is what the operation makes of the key's value: attention has to find the fact, and weights have to remember the
table of the operations.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

VALUES = 16
OPERATIONS = 8
SECOND = VALUES + OPERATIONS
"""What the second part of a token may be: a value, or an operation behind all values."""


class Facts(NamedTuple):
    """keys, seconds: (batch, length) the two parts of each token. asked: whether it is a question. answers: its answer,
    0 where nothing is asked.
    """

    keys: Tensor
    seconds: Tensor
    asked: Tensor
    answers: Tensor


def table() -> Tensor:
    """(OPERATIONS, VALUES) what each operation makes of each value: permutations, always the same."""
    generator = torch.Generator().manual_seed(2023)
    return torch.stack([torch.randperm(VALUES, generator=generator) for _ in range(OPERATIONS)])


def draw(batch: int, length: int, generator: torch.Generator) -> Facts:
    """Sequences with as many facts as questions, in any order; keys of facts are all of 0 to length // 2 - 1."""
    facts = length // 2
    shape = batch, length - facts
    stated = torch.rand(batch, facts, generator=generator).argsort(1)
    values = torch.randint(0, VALUES, (batch, facts), generator=generator)
    at = torch.randint(0, facts, shape, generator=generator)
    operations = torch.randint(0, OPERATIONS, shape, generator=generator)
    answers = table()[operations, values.gather(1, at)]
    order = torch.rand(batch, length, generator=generator).argsort(1)
    keys = torch.cat([stated, stated.gather(1, at)], 1)
    seconds = torch.cat([values, VALUES + operations], 1)
    answers = torch.cat([torch.zeros_like(values), answers], 1)
    mixed = [x.gather(1, order) for x in (keys, seconds, answers)]
    return Facts(mixed[0], mixed[1], mixed[1] >= VALUES, mixed[2])
