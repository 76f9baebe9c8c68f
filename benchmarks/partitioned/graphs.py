"""Graphs of communities, of any size in a moment; communities have numbers in a row, so that ranges cut few edges."""

from __future__ import annotations

import numpy as np
import torch

import gnn_sparse_backend as gsb

COMMUNITY = 2_000
"""Nodes of a community."""
LOCALITY = 0.9
"""Share of the edges that stay in theirs."""
CLASSES = 16


def edges_of(nodes: int, edges: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(destination, source): destinations at random, sources of the same community or anywhere."""
    rng = np.random.default_rng(seed)
    row = rng.integers(nodes, size=edges)
    near = row - row % COMMUNITY + rng.integers(COMMUNITY, size=edges)
    column = np.where(rng.random(edges, dtype=np.float32) < LOCALITY, near, rng.integers(nodes, size=edges))
    return row, np.minimum(column, nodes - 1)


def graph_of(nodes: int, edges: int, seed: int) -> gsb.Graph:
    row, column = edges_of(nodes, edges, seed)
    return gsb.Graph.from_coo(torch.from_numpy(row), torch.from_numpy(column), (nodes, nodes))


def rows_of(nodes: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and labels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, width, generator=generator), torch.randint(CLASSES, (nodes,), generator=generator)
