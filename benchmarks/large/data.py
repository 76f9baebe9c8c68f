"""A generated graph of the size of ogbn-products, or a part of that: edges, features and labels in files.

Every edge has its reverse, as there; degrees follow a power law, and neighbours are drawn anywhere: a graph without
communities, whose gathers find less in caches than those of the data set itself.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

NODES, EDGES, FEATURES, CLASSES, TRAINED = 2_449_029, 123_718_280, 100, 47, 196_615
"""The sizes of ogbn-products: edges in both directions; nodes with a label to train on."""
ALPHA, MAX_DEGREE = 2.2, 17_481
"""P(degree) ~ degree^-ALPHA up to the largest degree of ogbn-products."""


DRAWN = 1 << 16
"""Rows of features that are drawn at a time."""


class Files(NamedTuple):
    """Arrays of a graph: edges (2, E) int64, by source and then by destination; features (N, F) float32; labels (N,)
    and trained, numbers of nodes, int64.
    """

    edges: Path
    features: Path
    labels: Path
    trained: Path

    def load(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return tuple(torch.from_numpy(np.load(path)) for path in self)


def files(folder: Path, scale: Fraction, seed: int) -> Files:
    """The files of a graph, which need not be there yet."""
    name = f"products-{scale.numerator}-{scale.denominator}-{seed}"
    return Files(*(folder / f"{name}-{each}.npy" for each in Files._fields))


def sizes(scale: Fraction) -> tuple[int, int]:
    """Nodes, and edges in both directions."""
    return max(int(NODES * scale), 64), max(int(EDGES * scale) // 2, 32) * 2


def write(to: Files, scale: Fraction, seed: int) -> None:
    """Generate the graph, unless its files are there. Takes about 40 bytes of memory for each edge."""
    if all(path.exists() for path in to):
        return
    to.edges.parent.mkdir(parents=True, exist_ok=True)
    nodes, edges = sizes(scale)
    rng = np.random.default_rng(seed)
    save(to.edges, undirected(nodes, edges, rng))
    write_features(to.features, nodes, rng)
    save(to.labels, rng.integers(CLASSES, size=nodes))
    save(to.trained, np.sort(rng.permutation(nodes)[: max(nodes * TRAINED // NODES, 1)]))


def save(path: Path, array: np.ndarray) -> None:
    """Write an array so that a run that is stopped leaves no half of it."""
    part = path.with_suffix(".part.npy")
    np.save(part, array)
    part.rename(path)


def write_features(path: Path, nodes: int, rng: np.random.Generator) -> None:
    """(nodes, FEATURES) float32, drawn into the file a part at a time."""
    part = path.with_suffix(".part.npy")
    rows = np.lib.format.open_memmap(part, "w+", np.float32, (nodes, FEATURES))
    for first in range(0, nodes, DRAWN):
        rows[first : first + DRAWN] = rng.standard_normal((min(DRAWN, nodes - first), FEATURES), np.float32)
        rows.flush()
    del rows
    part.rename(path)


def undirected(nodes: int, edges: int, rng: np.random.Generator) -> np.ndarray:
    """(2, edges) int64: distinct edges without loops, each with its reverse, by source and then by destination.

    Ends are drawn by expected degrees (Chung and Lu, 2002), and drawn again for those that were there already.
    """
    if edges // 2 > nodes * (nodes - 1) // 4:
        raise ValueError(f"{edges} distinct edges do not fit {nodes} nodes: choose a larger scale")
    weights = np.minimum(rng.random(nodes) ** (-1 / (ALPHA - 1)), MAX_DEGREE * nodes / edges)
    bounds = np.cumsum(weights)
    keys = np.empty(0, np.int64)
    while (missing := edges // 2 - keys.size) > 0:
        ends = (np.searchsorted(bounds, rng.random(missing + missing // 8 + 8) * bounds[-1]) for _ in range(2))
        one, other = (each.clip(max=nodes - 1) for each in ends)
        new = (np.minimum(one, other) * nodes + np.maximum(one, other))[one != other]
        keys = np.unique(np.concatenate((keys, new)))
    keys = rng.permutation(keys)[: edges // 2]
    both = np.empty(edges, np.int64)
    both[: edges // 2] = keys
    np.floor_divide(keys, nodes, out=both[edges // 2 :])
    both[edges // 2 :] += (keys % nodes) * nodes
    both.sort()
    found = np.empty((2, edges), np.int64)
    np.floor_divide(both, nodes, out=found[0])
    np.remainder(both, nodes, out=found[1])
    return found
