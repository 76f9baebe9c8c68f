"""Facts of CSR structures: graphs, and pieces of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..formats.partitions.row_groups import look_at_rows
from ..frozen import dataclass
from ..runtime import devices
from .derived import Derived, fact
from .statistics import GraphStatistics, measure

if TYPE_CHECKING:
    from ..formats.composed.decomposition import Decomposition
    from ..formats.composed.spec import FormatSpec


@fact
def row_offsets(structure) -> np.ndarray:
    """``indptr`` of a structure on the CPU as NumPy sees it: a few of its operations on a mini-batch take as long as
    one of PyTorch's.
    """
    return structure.indptr.numpy()


@fact
def rows_looked_at(structure) -> np.ndarray:
    """`look_at_rows` of a structure on the CPU."""
    return look_at_rows(row_offsets(structure))


@fact
def in_degrees(structure) -> Tensor:
    """(rows,) number of non-zeros of each, in the index type."""
    if getattr(structure, "listed", None) is not None:
        return torch.bincount(structure.listed.read()[0], minlength=structure.shape[0])
    if not devices.on_cpu(structure.indptr.device):
        return structure.indptr.diff()
    offsets = row_offsets(structure)
    return torch.from_numpy(offsets[1:] - offsets[:-1])


@dataclass(frozen=True)
class InverseInDegrees(Derived[Tensor]):
    """(rows,) 1 / max(number of non-zeros, 1), in a floating type."""

    dtype: torch.dtype

    def compute(self, structure) -> Tensor:
        listed = getattr(structure, "listed", None)
        degrees = structure.indptr.diff() if listed is None else in_degrees(structure)
        return degrees.clamp(min=1).to(self.dtype).reciprocal()


@fact
def edge_numbers(structure) -> Tensor:
    """(edges,) counting up: the number of the edge at each position where edges are in CSR order."""
    indices = structure.indices
    return torch.arange(indices.numel(), dtype=indices.dtype, device=indices.device)


@fact
def columns_ascend(structure) -> bool:
    """Whether the columns of each row are in order, so that passes over ranges of columns keep that of the
    non-zeros.
    """
    falls = structure.indices[1:] < structure.indices[:-1]
    starts = structure.indptr[1:-1].long() - 1
    falls[starts[(starts >= 0) & (starts < falls.numel())]] = False
    return not bool(falls.any())


@fact
def statistics(structure) -> GraphStatistics:
    """Size and distribution of the lengths of rows."""
    return measure(structure.indptr, structure.shape[1])


@fact
def fingerprint(structure, numbered: bool) -> str:
    """32 hex digits of the content: shape and arrays, with the order in which the user numbers edges where
    ``numbered``.
    """
    return content_hash(structure.indptr, structure.indices, structure.edge_ids if numbered else None, structure.shape)


def content_hash(indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, shape: tuple[int, int]) -> str:
    """BLAKE2b of shape, index type and arrays, which identifies them: 32 hex digits, the same on every device and in
    every process.
    """
    header = f"{shape[0]},{shape[1]},{indices.numel()},{indices.dtype},{edge_ids is not None}"
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for array in (indptr, indices, edge_ids):
        if array is not None:
            digest.update(array.cpu().contiguous().numpy().data)
    return digest.hexdigest()


@fact
def decomposition(structure, formats: tuple[FormatSpec, ...], fill: float) -> Decomposition:
    """The structure in several formats (`formats.composed.decompose`)."""
    from ..formats.composed.decompose import decompose_csr

    return decompose_csr(
        structure.indptr, structure.indices, structure.edge_ids, structure.shape, formats, fill, check=False
    )
