"""Samples of a data set as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..conventions import convention
from ..tensor import SparseTensor

__all__ = ["sparse_collate", "sparse_collate_fn"]


def sparse_collate(inputs: Sequence[SparseTensor]) -> SparseTensor:
    """One tensor of all, whose batch is the place in ``inputs``. Their ``coords`` have no batch, and may be NumPy's."""
    if not len(inputs):
        raise ValueError("sparse_collate takes at least one SparseTensor, got none")
    stride, coords, feats = inputs[0].stride, [], []
    for number, x in enumerate(inputs):
        if x.stride != stride:
            raise ValueError(f"sparse_collate wants tensors of one stride, got {stride} and {x.stride}")
        cells = torch.as_tensor(x.coords)
        batch = torch.full((len(cells), 1), number, dtype=torch.int, device=cells.device)
        coords.append(convention().joined(batch, cells))
        feats.append(torch.as_tensor(x.feats))
    return SparseTensor(torch.cat(feats), torch.cat(coords), stride)


def sparse_collate_fn(inputs: Sequence[Any]) -> Any:
    """Collate dictionaries entry by entry: sparse tensors as above, arrays and tensors stacked, dictionaries by the
    same rule, and all else as a list. Samples that are no dictionaries are returned as they are.
    """
    first = inputs[0]
    if not isinstance(first, dict):
        return inputs
    return {name: _entry([each[name] for each in inputs]) for name in first}


def _entry(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return sparse_collate_fn(values)
    if isinstance(first, SparseTensor):
        return sparse_collate(values)
    if isinstance(first, (np.ndarray, torch.Tensor)):
        return torch.stack([torch.as_tensor(x) for x in values])
    return values
