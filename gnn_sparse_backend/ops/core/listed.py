"""Kernels that read the edges of a graph as they are listed: when they run, and what tells that an index is wrong."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...compiler.cache.kernel import Kernel
from ...planner.cpu.listed import pays_to_convert
from .ran import note


class OutOfRange(IndexError):
    """An edge names a node that is not there."""


class _Wrong(threading.local):
    """Where kernels of a thread count edges that are out of range."""

    def __init__(self) -> None:
        self.count = torch.zeros(1, dtype=torch.int64)
        self.read = self.count.numpy()


wrong = _Wrong()


def settle_list(graph: Any, operands: Sequence[Tensor | None]) -> None:
    """Convert a graph that is listed, where rows pay for themselves from a pass over such operands on."""
    features = max([x.numel() // max(x.shape[0], 1) for x in operands if x is not None and x.dim()], default=1)
    if pays_to_convert(graph.listed, *graph.shape, features, torch.get_num_threads()):
        graph.indptr  # noqa: B018  (asked for, it is made)


class OnList:
    """A kernel over listed edges (`Executable`). plan: in words."""

    __slots__ = ("entry", "kernels")

    plan = "edges as they are listed, 1 thread"

    def __init__(self, kernel: Kernel):
        self.entry, self.kernels = kernel.entry, (kernel,)

    def __call__(self, graph: Any, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Raises OutOfRange where an edge is."""
        row, col = graph.listed.read()
        note(self, "")
        self.entry(*graph.shape, graph.num_edges, row, col, *operands, *results, wrong.count)
        if wrong.read[0]:
            raise OutOfRange(
                f"{wrong.read[0]} of {graph.num_edges} edges are out of range: there are {graph.shape[0]} destinations "
                f"and {graph.shape[1]} sources"
            )
