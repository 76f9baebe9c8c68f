"""Segments as the rows of a graph, whose edges are what the segments consist of."""

from __future__ import annotations

import numpy as np
import torch

from ..runtime import devices
from .build import index_dtype
from .graph import Graph
from .segments import Segments


def rows_of(segments: Segments) -> Graph:
    """Segments as destinations, rows as edges, all from one source: made once, and kept with the segments."""
    return segments.once("rows", lambda: _rows_of(segments))


def _rows_of(segments: Segments) -> Graph:
    """The indices are an array of zeros, which nobody reads.

    NumPy takes them from pages that the system has already zeroed, and which cost nothing as long as nobody does.
    """
    offsets, count, shape = segments.offsets, segments.num_rows, (segments.num_segments, 1)
    dtype = index_dtype(shape, count)
    if devices.on_cpu(offsets.device):
        indices = torch.from_numpy(np.zeros(count, np.int32 if dtype == torch.int32 else np.int64))
    else:
        indices = torch.zeros(count, dtype=dtype, device=offsets.device)
    if segments.unread:
        return Graph._unread(offsets, indices, segments.order, shape, count)
    return Graph.from_csr(offsets, indices, shape, segments.order, trusted=True)


__all__ = ["rows_of"]
