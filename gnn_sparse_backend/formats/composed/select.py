"""Which non-zeros a format takes of a matrix: those of the blocks, columns, rows or diagonals that are full enough."""

from __future__ import annotations

import torch
from torch import Tensor

from ..counts import distinct
from .spec import FormatSpec


def taken(spec: FormatSpec, rows: Tensor, columns: Tensor, shape: tuple[int, int], fill: float) -> Tensor:
    """(nnz,) which of the non-zeros at these int64 coordinates, each of which occurs once, the format takes."""
    height, width = spec.block
    match spec.kind:
        case "bsr" | "dbsr":
            return _full(rows // height * -(-shape[1] // width) + columns // width, fill * height * width)
        case "sr_bcrs":
            return _full(rows // height * shape[1] + columns, fill * height)
        case "dia":
            offset = columns - rows
            longest = torch.minimum(shape[0] + offset.clamp(max=0), shape[1] - offset.clamp(min=0)).clamp(
                max=min(shape)
            )
            return _full(offset + shape[0], fill * longest)
        case "ell":
            found = _counts(rows)
            return (found >= fill * spec.numbers[0]) & (found <= spec.numbers[0])
    return torch.ones_like(rows, dtype=torch.bool)


def _full(keys: Tensor, least: float | Tensor) -> Tensor:
    return _counts(keys) >= least


def _counts(keys: Tensor) -> Tensor:
    """(n,) how often the key of each occurs."""
    _, which = distinct(keys)
    return torch.bincount(which).index_select(0, which) if keys.numel() else keys
