"""The graphs of the benchmarks: real ones from ``$GSB_DATA``, and generated ones with the sizes of known data sets."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import platformdirs
import scipy.sparse
from rich.console import Console

from benchmarks.operators.work import Pattern
from benchmarks.support import generators
from benchmarks.support.generators import power_law


class Unavailable(Exception):
    """A graph whose data are not on this machine; the message says what is missing."""


@dataclass(frozen=True)
class BenchmarkGraph:
    """A CSR graph on the host: rows are destinations, columns sources; int32 indices sorted in each row.

    ``origin`` says where it comes from, for the reports.
    """

    name: str
    origin: str
    indptr: np.ndarray
    indices: np.ndarray
    shape: tuple[int, int]

    @classmethod
    def of(cls, name: str, origin: str, matrix: scipy.sparse.csr_matrix) -> BenchmarkGraph:
        matrix.sort_indices()
        return cls(name, origin, matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.shape)

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    @cached_property
    def pattern(self) -> Pattern:
        return Pattern.of(self.indptr, self.indices, self.shape)

    @cached_property
    def wide_indices(self) -> np.ndarray:
        """(E,) ``indices`` in int64, for all contenders that want them so."""
        return self.edge_index[0]

    @cached_property
    def ones(self) -> np.ndarray:
        """(E,) float32."""
        return np.ones(self.num_edges, np.float32)

    @cached_property
    def mean_weights(self) -> np.ndarray:
        """(E,) float32: one over the in-degree of the destination of every edge."""
        degrees = np.diff(self.indptr)
        return np.repeat(1 / np.maximum(degrees, 1), degrees).astype(np.float32)

    @cached_property
    def edge_index(self) -> np.ndarray:
        """(2, edges) int64, sorted by destination: sources, then destinations."""
        found = np.empty((2, self.num_edges), np.int64)
        found[0], found[1] = self.indices, np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        return found

    def without_edges(self) -> BenchmarkGraph:
        """The same nodes alone."""
        return BenchmarkGraph(
            f"{self.name} without edges", self.origin, np.zeros_like(self.indptr), self.indices[:0], self.shape
        )

    def describe(self) -> dict:
        degrees = np.diff(self.indptr)
        return {
            "name": self.name,
            "origin": self.origin,
            "rows": self.shape[0],
            "columns": self.shape[1],
            "edges": self.num_edges,
            "mean_degree": round(self.num_edges / max(1, self.shape[0]), 2),
            "max_in_degree": int(degrees.max(initial=0)),
            "empty_rows": int((degrees == 0).sum()),
            "max_out_degree": int(np.bincount(self.indices, minlength=1).max()),
        }


def data_file(relative: str) -> Path:
    """A file below the folder of the real data sets (``GSB_DATA``); raises `Unavailable` where it is not there."""
    root = os.environ.get("GSB_DATA")
    if not root:
        raise Unavailable("GSB_DATA is not set: point it at the folder of the real data sets")
    path = Path(root) / relative
    if not path.exists():
        raise Unavailable(f"{path} does not exist")
    return path


def _csr(destinations: np.ndarray, sources: np.ndarray, nodes: int) -> scipy.sparse.csr_matrix:
    """CSR that keeps parallel edges (two packages may be related in several ways), which SciPy's tocsr would add up."""
    order = np.lexsort((sources, destinations))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(destinations, minlength=nodes)))).astype(np.int32)
    return scipy.sparse.csr_matrix((np.ones(len(sources), np.float32), sources[order], indptr), shape=(nodes, nodes))


def cora() -> scipy.sparse.csr_matrix:
    """Cora's citation graph, symmetric, from Planetoid's ``ind.cora.graph``."""
    path = data_file("planetoid/ind.cora.graph")
    # PyG reads it: the file is a pickle of Planetoid's authors, {node: [neighbours]}.
    try:
        from torch_geometric.io import read_planetoid_data
    except ImportError:
        raise Unavailable("reading Cora needs torch_geometric: pip install torch-geometric") from None
    edge_index = read_planetoid_data(str(path.parent), "cora").edge_index.numpy()
    return _csr(edge_index[1], edge_index[0], int(edge_index.max()) + 1)


def _npz(relative: str) -> scipy.sparse.csr_matrix:
    with np.load(data_file(relative)) as data:
        return _csr(data["dst"], data["src"], len(data["label"]))


ONE_EDGE = BenchmarkGraph("one edge", "", np.array([0, 1], np.int32), np.array([0], np.int32), (1, 1))


@dataclass(frozen=True)
class Recipe:
    """How to get a graph. ``load`` takes a seed. edges: about how many, for dividing the time of a run."""

    origin: str
    load: Callable[[int], scipy.sparse.csr_matrix]
    edges: int


RECIPES: dict[str, Recipe] = {
    "cora": Recipe("real", lambda seed: cora(), 10_556),
    "debian": Recipe("real", lambda seed: _npz("debian.npz"), 300_000),
    "wordnet": Recipe("real", lambda seed: _npz("wordnet.npz"), 360_000),
    "pubmed": Recipe(
        "generated at PubMed's size",
        lambda seed: power_law(19_717, 88_648, 2.2, 171, seed, communities=64, locality=0.8),
        88_648,
    ),
    # PPI's training set is 20 graphs side by side.
    "ppi": Recipe(
        "generated at PPI's size (20 training graphs)",
        lambda seed: power_law(44_906, 1_226_368, 2.1, 721, seed, communities=20, locality=1.0, shuffled=False),
        1_226_368,
    ),
    "arxiv": Recipe(
        "generated at ogbn-arxiv's size",
        lambda seed: power_law(169_343, 1_166_243, 1.95, 13_155, seed, communities=128, locality=0.6, source_skew=0.5),
        1_166_243,
    ),
    "citeseer": Recipe(
        "generated at CiteSeer's size",
        lambda seed: power_law(3_327, 9_104, 2.4, 99, seed, communities=16, locality=0.8),
        9_104,
    ),
    "community": Recipe(
        "generated, 1,000,000 edges",
        lambda seed: power_law(100_000, 1_000_000, 2.1, 2_000, seed, communities=100, locality=0.8),
        1_000_000,
    ),
    "power-law": Recipe(
        "generated, 2,000,000 edges",
        lambda seed: power_law(200_000, 2_000_000, 2.1, 5_000, seed, communities=100, locality=0.6),
        2_000_000,
    ),
    "proteins": Recipe(
        "generated at ogbn-proteins' size",
        lambda seed: power_law(132_534, 39_561_252, 2.2, 7_750, seed, communities=8, locality=0.9, shuffled=False),
        39_561_252,
    ),
    "reddit": Recipe(
        "generated at Reddit's size",
        lambda seed: power_law(232_965, 114_615_892, 2.0, 21_657, seed, communities=41, locality=0.5),
        114_615_892,
    ),
}

# Generating so many edges takes a minute and more: the graph is kept in the user's cache folder.
KEPT_EDGES = 10_000_000

DEFAULT = ("cora", "citeseer", "pubmed", "wordnet", "debian", "ppi", "arxiv", "proteins", "reddit")

# The widest rows of features by graph, where the widths of a benchmark are its own: at 256 they and their gradients
# would take most of the memory of a machine of 16 GiB.
WIDEST = {"reddit": 128}


def add_arguments(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    """``--graphs`` and ``--without-large``; ``chosen`` gives the names."""
    parser.add_argument(
        "--graphs", nargs=nargs, choices=tuple(RECIPES), default=list(DEFAULT), metavar="GRAPH", help="of %(choices)s"
    )
    parser.add_argument(
        "--without-large", action="store_true", help=f"leave out graphs of {KEPT_EDGES:,} edges and more"
    )


def chosen(options: argparse.Namespace) -> list[str]:
    """The names of the graphs that the command line asks for."""
    return [name for name in options.graphs if not (options.without_large and RECIPES[name].edges >= KEPT_EDGES)]


def widths_of(name: str, widths: Iterable[int], widest: Mapping[str, int]) -> list[int]:
    """Those of the widths that this graph is measured at."""
    return [width for width in widths if width <= widest.get(name, width)]


def load(name: str, seed: int = 0) -> BenchmarkGraph:
    """The named graph. Raises ValueError for an unknown name and Unavailable when its data are absent."""
    if name not in RECIPES:
        raise ValueError(f"unknown graph {name!r}: choose from {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    if recipe.edges < KEPT_EDGES:
        return BenchmarkGraph.of(name, recipe.origin, recipe.load(seed))
    path = _kept_path(name, seed)
    if not path.exists():
        graph = BenchmarkGraph.of(name, recipe.origin, recipe.load(seed))
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(partial, indptr=graph.indptr, indices=graph.indices, shape=graph.shape)
        partial.replace(path)
    with np.load(path) as arrays:
        return BenchmarkGraph(name, recipe.origin, arrays["indptr"], arrays["indices"], tuple(arrays["shape"].tolist()))


def _kept_path(name: str, seed: int) -> Path:
    """Where a large generated graph is kept; another one once this file or the generator has changed."""
    sources = b"".join(Path(file).read_bytes() for file in (__file__, generators.__file__))
    folder = Path(platformdirs.user_cache_dir("gnn_sparse_backend")) / "benchmark_graphs"
    return folder / f"{name}-{seed}-{hashlib.sha256(sources).hexdigest()[:12]}.npz"


def load_available(names: Iterable[str], seed: int, console: Console) -> tuple[list[BenchmarkGraph], dict[str, str]]:
    """The graphs whose data are here, and for each of the others the reason, which is printed too."""
    found, skipped = [], {}
    for name in names:
        try:
            found.append(load(name, seed))
        except Unavailable as missing:
            skipped[name] = str(missing)
            console.print(f"[yellow]{name} skipped:[/] {missing}")
    return found, skipped
