"""Structures on which the search of plans is measured: no rule and no constant was fitted to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.layers.sparse_conv import clouds
from benchmarks.support import graphs
from benchmarks.support.generators import power_law
from gnn_sparse_backend import Graph, RelGraph


@dataclass(frozen=True)
class Recipe:
    """A structure by its seed; ``make`` raises `graphs.Unavailable` where its data are not there. quick: whether it is
    of the small selection.
    """

    make: Callable[[int], Any]
    quick: bool = False


def uniform(rows: int, cols: int, degree: int) -> Callable[[int], Graph]:
    """Every row has about as many columns, drawn from all."""

    def make(seed: int) -> Graph:
        rng = np.random.default_rng(seed)
        return Graph.from_coo(rng.integers(0, rows, rows * degree), rng.integers(0, cols, rows * degree), (rows, cols))

    return make


def skewed(nodes: int, edges: int, alpha: float, largest: int, locality: float) -> Callable[[int], Graph]:
    """Degrees by a power law, some edges within communities."""
    return lambda seed: of_matrix(
        power_law(nodes, edges, alpha, largest, seed, communities=16, locality=locality, shuffled=True)
    )


def banded(nodes: int, reach: int) -> Callable[[int], Graph]:
    """Four in five of the columns at most ``reach`` from the diagonal."""

    def make(seed: int) -> Graph:
        rows = np.repeat(np.arange(nodes), 2 * reach + 1)
        columns = rows + np.tile(np.arange(-reach, reach + 1), nodes)
        kept = (columns >= 0) & (columns < nodes) & (np.random.default_rng(seed).random(rows.size) < 0.8)
        return Graph.from_coo(rows[kept], columns[kept], (nodes, nodes))

    return make


def batch(count: int, least: int, most: int, degree: int) -> Callable[[int], Graph]:
    """Small graphs side by side, as a batch of molecules."""

    def make(seed: int) -> Graph:
        rng = np.random.default_rng(seed)
        sizes = rng.integers(least, most + 1, count)
        first = np.concatenate(([0], sizes.cumsum()))
        owner = np.repeat(np.arange(count), sizes * degree)
        rows, columns = ((first[owner] + rng.random(owner.size) * sizes[owner]).astype(np.int64) for _ in range(2))
        return Graph.from_coo(rows, columns, (first[-1], first[-1]))

    return make


def few_long(rows: int, cols: int, degree: int, long: int, length: int) -> Callable[[int], Graph]:
    """Short rows, and a few that are very long."""

    def make(seed: int) -> Graph:
        rng = np.random.default_rng(seed)
        hubs = np.repeat(rng.choice(rows, long, replace=False), length)
        all_rows = np.concatenate((rng.integers(0, rows, rows * degree), hubs))
        return Graph.from_coo(all_rows, rng.integers(0, cols, all_rows.size), (rows, cols))

    return make


def mostly_empty(rows: int, cols: int, some: int, degree: int) -> Callable[[int], Graph]:
    """All edges in a few of the rows."""

    def make(seed: int) -> Graph:
        rng = np.random.default_rng(seed)
        chosen = rng.choice(rows, some, replace=False)
        return Graph.from_coo(rng.choice(chosen, some * degree), rng.integers(0, cols, some * degree), (rows, cols))

    return make


def of_matrix(matrix: scipy.sparse.csr_matrix) -> Graph:
    return Graph.from_scipy(matrix)


def real(name: str) -> Callable[[int], Graph]:
    """A graph of $GSB_DATA."""

    def make(seed: int) -> Graph:
        found = graphs.load(name, seed)
        return Graph.from_csr(found.indptr, found.indices, found.shape)

    return make


def typed(make: Callable[[int], Graph], relations: int) -> Callable[[int], RelGraph]:
    """Edges of relations some of which are much rarer than others."""

    def of(seed: int) -> RelGraph:
        share = 1 / np.arange(1, relations + 1)
        graph = make(seed)
        relation = np.random.default_rng(seed + 1).choice(relations, graph.num_edges, p=share / share.sum())
        return RelGraph.from_graph(graph, relation, relations)

    return of


def real_relations(file: str) -> Callable[[int], RelGraph]:
    """A typed graph of $GSB_DATA."""

    def make(seed: int) -> RelGraph:
        path = Path(os.environ.get("GSB_DATA", "")) / file
        if not path.is_file():
            raise graphs.Unavailable(f"GSB_DATA names no folder with {file}")
        with np.load(path) as data:
            nodes = len(data["label"])
            return RelGraph.from_triples(data["src"], data["dst"], data["etype"], (nodes, nodes))

    return make


def layer(scan: str, voxel: float, kind: str) -> Callable[[int], Any]:
    """The map of the first layer of a kind in MinkUNet on a cloud."""

    def make(seed: int) -> Any:
        cloud = clouds.Place(scan, voxel, seed).cloud()
        if cloud is None:
            raise graphs.Unavailable(clouds.MISSING)
        return next(each for each in clouds.layers(cloud) if each.kind == kind and each.kernel > 1).kernel_map

    return make


GRAPHS: Mapping[str, Recipe] = {
    "uniform": Recipe(uniform(14_000, 14_000, 11), quick=True),
    "power law": Recipe(skewed(18_000, 160_000, 2.15, 900, 0.5), quick=True),
    "band": Recipe(banded(9_000, 9)),
    "batch": Recipe(batch(600, 12, 40, 3), quick=True),
    "bipartite": Recipe(uniform(2_500, 45_000, 60)),
    "few long rows": Recipe(few_long(20_000, 20_000, 4, 3, 25_000)),
    "empty rows": Recipe(mostly_empty(60_000, 20_000, 2_500, 40)),
    "cora": Recipe(real("cora")),
    "debian": Recipe(real("debian")),
    "wordnet": Recipe(real("wordnet")),
}
RELATIONS: Mapping[str, Recipe] = {
    "uniform, typed": Recipe(typed(uniform(7_000, 7_000, 10), 6), quick=True),
    "power law, typed": Recipe(typed(skewed(9_000, 80_000, 2.15, 700, 0.5), 12)),
    "debian, typed": Recipe(real_relations("debian.npz")),
    "wordnet, typed": Recipe(real_relations("wordnet.npz")),
}
MAPS: Mapping[str, Recipe] = {
    "scan, submanifold": Recipe(layer("kitti", 0.1, "submanifold")),
    "scan, strided": Recipe(layer("kitti", 0.1, "strided")),
    "scan, transposed": Recipe(layer("kitti", 0.1, "transposed")),
    "generated scan": Recipe(layer("small", 0.1, "submanifold"), quick=True),
}
OPERATORS: Mapping[str, tuple[Mapping[str, Recipe], tuple[tuple[str, Any], ...]]] = {
    "spmm": (GRAPHS, (("weighted_sum", 64), ("mean", 8))),
    "sddmm": (GRAPHS, (("dot", 32),)),
    "attention": (GRAPHS, (("gat_attention", (4, 16)),)),
    "rgms": (RELATIONS, (("rgms", (32, 16)),)),
    "sparse_conv": (MAPS, (("sparse_conv", (32, 32)),)),
}
"""By operator: its structures, and the names and widths by which ``gsb.precompile`` knows it."""
