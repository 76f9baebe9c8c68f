"""Where random numbers begin."""

from __future__ import annotations

import torch


def drawn_seed() -> int:
    """One of torch's default generator: the same after ``torch.manual_seed``, another one at each call."""
    return int(torch.empty((), dtype=torch.int64).random_())
