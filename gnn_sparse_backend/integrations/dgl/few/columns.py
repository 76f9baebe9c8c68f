"""Features of all nodes or edges that are set: ``g.ndata["h"] = x``.

DGL asks its graph for sizes, the device and pinned memory at each of them, which takes longer than a kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from dgl.base import is_all
from dgl.frame import Column, Frame
from torch import Tensor

from ..structure import structures_of


def make_store(original: Callable, frames: str) -> Callable:
    """``DGLGraph._set_n_repr`` or ``_set_e_repr``. frames: the attribute with the features of each type."""

    @functools.wraps(original)
    def store(self, kind, ids, data):
        if is_all(ids) and type(data) is dict:
            frame = getattr(self, frames)[kind]
            if all(_fits(x, frame) for x in data.values()) and structures_of(self._graph)[0].is_on_cpu(self._graph):
                for name, x in data.items():
                    put(frame, name, x)
                return
        original(self, kind, ids, data)

    return store


def put(frame: Frame, name: str, x: Tensor) -> None:
    """Set a feature of as many rows as the frame has."""
    frame._columns[name] = Column(x)


def _fits(x, frame: Frame) -> bool:
    return type(x) is Tensor and x.is_cpu and x.dim() > 0 and x.shape[0] == frame._num_rows
