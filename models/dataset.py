"""A data set for the classification of nodes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


class DataError(ValueError):
    """A data set that cannot be had; the message says why and what to do."""


@dataclass(frozen=True)
class Dataset:
    """One graph for full-batch node classification with N nodes, E edges and F features.

    origin: one line on where graph, features and labels come from.
    edge_index: (2, E) int64; row 0 the sources, row 1 the destinations.
    features: (N, F) float32. labels: (N,) int64, -1 where unknown.
    train, val, test: (N,) bool masks, disjoint, on labelled nodes.
    """

    name: str
    origin: str
    edge_index: Tensor
    features: Tensor
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor

    def to(self, device: torch.device | str) -> Dataset:
        """Return a copy whose tensors are on a device."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: x.to(device) for name, x in given.items() if isinstance(x, Tensor)})

    @property
    def num_nodes(self) -> int:
        return self.features.shape[0]

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.num_nodes:,} nodes, {self.num_edges:,} edges, {self.features.shape[1]} features, "
            f"{self.num_classes} classes ({self.origin})"
        )
