"""Facts of CSR structures: graphs, and pieces of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..formats.partitions.row_groups import look_at_rows
from ..runtime import devices
from .derived import Derived
from .statistics import GraphStatistics, measure


class Offsets(Derived[np.ndarray]):
    """``indptr`` of a structure on the CPU as NumPy sees it: a few of its operations on a mini-batch take as long as
    one of PyTorch's.
    """

    def compute(self, structure) -> np.ndarray:
        return structure.indptr.numpy()


class RowsLookedAt(Derived[np.ndarray]):
    """`look_at_rows` of a structure on the CPU."""

    def compute(self, structure) -> np.ndarray:
        return look_at_rows(structure.derived(OFFSETS))


class InDegrees(Derived[Tensor]):
    """(rows,) number of non-zeros of each, in the index type."""

    def compute(self, structure) -> Tensor:
        if not devices.on_cpu(structure.indptr.device):
            return structure.indptr.diff()
        offsets = structure.derived(OFFSETS)
        return torch.from_numpy(offsets[1:] - offsets[:-1])


@dataclass(frozen=True)
class InverseInDegrees(Derived[Tensor]):
    """(rows,) 1 / max(number of non-zeros, 1), in a floating type."""

    dtype: torch.dtype

    def compute(self, structure) -> Tensor:
        return structure.indptr.diff().clamp(min=1).to(self.dtype).reciprocal()


class EdgeNumbers(Derived[Tensor]):
    """(edges,) counting up: the number of the edge at each position where edges are in CSR order."""

    def compute(self, structure) -> Tensor:
        indices = structure.indices
        return torch.arange(indices.numel(), dtype=indices.dtype, device=indices.device)


class ColumnsAscend(Derived[bool]):
    """Whether the columns of each row are in order, so that passes over ranges of columns keep that of the
    non-zeros.
    """

    def compute(self, structure) -> bool:
        falls = structure.indices[1:] < structure.indices[:-1]
        starts = structure.indptr[1:-1].long() - 1
        falls[starts[(starts >= 0) & (starts < falls.numel())]] = False
        return not bool(falls.any())


class Statistics(Derived[GraphStatistics]):
    """Size and distribution of the lengths of rows."""

    def compute(self, structure) -> GraphStatistics:
        return measure(structure.indptr, structure.shape[1])


@dataclass(frozen=True)
class Fingerprint(Derived[str]):
    """32 hex digits of the content: shape and arrays, with the order in which the user numbers edges where
    ``numbered``.
    """

    numbered: bool

    def compute(self, structure) -> str:
        return fingerprint(
            structure.indptr, structure.indices, structure.edge_ids if self.numbered else None, structure.shape
        )


def fingerprint(indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, shape: tuple[int, int]) -> str:
    """BLAKE2b of shape, index type and arrays, which identifies them: 32 hex digits, the same on every device and in
    every process.
    """
    header = f"{shape[0]},{shape[1]},{indices.numel()},{indices.dtype},{edge_ids is not None}"
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for array in (indptr, indices, edge_ids):
        if array is not None:
            digest.update(array.cpu().contiguous().numpy().data)
    return digest.hexdigest()


OFFSETS, LOOK, IN_DEGREES, EDGE_NUMBERS = Offsets(), RowsLookedAt(), InDegrees(), EdgeNumbers()
