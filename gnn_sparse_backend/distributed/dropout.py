"""``Dropout`` whose zeros depend on the node, and not on the process that has it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..structures.checks import INTEGERS

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 1 << 64


class Dropout(nn.Module):
    """Dropout with the same zeros on any number of processes: a function of seed, call, node and feature.

    The numbers are SplitMix64's (Steele et al., OOPSLA 2014). Calls are counted in ``state_dict``, so that a training
    that goes on from a checkpoint goes on with them.

    Args:
        rows: (n,) numbers in the whole graph of the rows of the inputs: ``graph.row_ids`` of a ``DistGraph``, or
            ``torch.arange(n)`` in a process alone.
        p: the chance of a zero, in [0, 1); all else is divided by 1 - p.
        seed: give each layer another one.
    """

    calls: Tensor

    def __init__(self, rows: Tensor, p: float = 0.5, seed: int = 0) -> None:
        super().__init__()
        if not isinstance(p, (int, float)) or not 0 <= p < 1:
            raise ValueError(f"Dropout: p must be in [0, 1), got {p!r:.80}")
        if not isinstance(seed, int):
            raise TypeError(f"Dropout: seed must be a number, got {seed!r:.80}")
        if not isinstance(rows, Tensor):
            raise TypeError(f"Dropout: rows must be a tensor of integers, got {type(rows).__name__}")
        if rows.dim() != 1 or rows.dtype not in INTEGERS or rows.layout is not torch.strided:
            raise ValueError(f"Dropout: rows must be (n,) integers, got {rows.dtype} of shape {tuple(rows.shape)}")
        self.rows, self.p, self.seed = rows.long(), p, seed  # rows are no buffer: processes have others
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """(n, ...) to the same."""
        if x.dim() == 0 or x.shape[0] != self.rows.numel():
            raise ValueError(f"Dropout: x must have {self.rows.numel()} rows, got shape {tuple(x.shape)}")
        if not self.training or self.p == 0:
            return x
        key = _mix(_mix(torch.tensor(_signed(self.seed * _GOLDEN))) + self.calls)
        self.calls += 1
        width = x[:1].numel() if x.shape[0] else 0
        index = self.rows.to(x.device)[:, None] * width + torch.arange(width, device=x.device)
        drawn = _shifted(_mix(index * _signed(_GOLDEN) + key), 32)
        return x * (drawn >= int(self.p * 2**32)).view_as(x) / (1 - self.p)

    def extra_repr(self) -> str:
        return f"{self.rows.numel()} rows, p={self.p}, seed={self.seed}"


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's last step, of each number; products leave out what does not fit 64 bits."""
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """A shift to the right that brings in zeros."""
    return (z >> bits) & ((1 << 64 - bits) - 1)


def _signed(number: int) -> int:
    """The last 64 bits of a number, as a tensor of int64 holds them."""
    word = number % _WORD
    return word - _WORD if word >> 63 else word
