"""Matrices to choose formats of: pruned weights, bands, graphs, and blocks among single non-zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from benchmarks.support import graphs
from benchmarks.support.generators import power_law
from models.patterns import block_pattern, unstructured_pattern

Make = Callable[[int], scipy.sparse.csr_matrix]


@dataclass(frozen=True)
class Recipe:
    """A structure by its seed. kind: what sort it is. weight: whether it may be that of a linear layer."""

    kind: str
    make: Make
    weight: bool = False


def blocks(rows: int, columns: int, side: int, density: float) -> Recipe:
    """Whole blocks are kept."""

    def make(seed: int) -> scipy.sparse.csr_matrix:
        return _csr(block_pattern(rows, columns, side, density, empty_rows=0.2, seed=seed).numpy())

    return Recipe("blocks", make, weight=True)


def single(rows: int, columns: int, density: float) -> Recipe:
    """Single weights are kept."""

    def make(seed: int) -> scipy.sparse.csr_matrix:
        return _csr(unstructured_pattern(rows, columns, density, seed=seed).numpy())

    return Recipe("unstructured", make, weight=True)


def mixed(rows: int, columns: int, side: int, density: float, beside: float) -> Recipe:
    """Blocks, and single weights anywhere: of all places the share ``beside``."""

    def make(seed: int) -> scipy.sparse.csr_matrix:
        kept = block_pattern(rows, columns, side, density, empty_rows=0.2, seed=seed)
        return _csr((kept | unstructured_pattern(rows, columns, beside, seed=seed + 1)).numpy())

    return Recipe("mixed", make, weight=True)


def band(size: int, reach: int, kept: float = 1.0) -> Recipe:
    """Columns at most ``reach`` from the diagonal, of which the share ``kept`` is there."""

    def make(seed: int) -> scipy.sparse.csr_matrix:
        rows, away = np.arange(size)[:, None], np.arange(-reach, reach + 1)[None]
        columns = rows + away
        inside = (columns >= 0) & (columns < size) & (np.random.default_rng(seed).random(columns.shape) < kept)
        rows = np.broadcast_to(rows, columns.shape)[inside]
        return scipy.sparse.csr_matrix((np.ones(rows.size, np.float32), (rows, columns[inside])), (size, size))

    return Recipe("band", make)


def graph(nodes: int, edges: int, alpha: float, largest: int, locality: float) -> Recipe:
    """A graph with a power law of degrees, and communities."""

    def make(seed: int) -> scipy.sparse.csr_matrix:
        return power_law(nodes, edges, alpha, largest, seed, communities=16, locality=locality, shuffled=False)

    return Recipe("power law", make)


def real(name: str, nodes: int) -> Recipe:
    """The first nodes of a real graph and the edges between them."""

    def make(seed: int) -> scipy.sparse.csr_matrix:
        whole = graphs.load(name)
        matrix = scipy.sparse.csr_matrix((whole.ones, whole.indices, whole.indptr), whole.shape)[:nodes, :nodes]
        matrix.sum_duplicates()
        return matrix

    return Recipe("real", make)


HELD_OUT: Mapping[str, Recipe] = {
    "blocks of 32, 10 %": blocks(1024, 2048, 32, 0.10),
    "blocks of 16, 8 %": blocks(1536, 1024, 16, 0.08),
    "blocks of 8, 12 %": blocks(640, 1280, 8, 0.12),
    "blocks of 32, 35 %": blocks(1024, 640, 32, 0.35),
    "single, 5 %": single(2048, 1024, 0.05),
    "single, 12 %": single(896, 1536, 0.12),
    "single, 35 %": single(512, 1024, 0.35),
    "blocks of 32 and single": mixed(1280, 1536, 32, 0.05, 0.01),
    "blocks of 16 and single": mixed(1024, 1024, 16, 0.06, 0.03),
    "band of 17": band(4000, 8),
    "band of 97": band(2048, 48),
    "band of 65, 60 %": band(2500, 32, 0.6),
    "graph, 10 a row": graph(5_000, 50_000, 2.2, 200, 0.8),
    "graph, 40 a row": graph(3_000, 120_000, 2.0, 500, 0.5),
    "cora": real("cora", 3_000),
    "wordnet": real("wordnet", 8_000),
    "debian": real("debian", 8_000),
}
"""Those on which regret is measured. No constant is fitted to them."""

FITTED: Mapping[str, Recipe] = {
    "blocks of 32, 6 %": blocks(768, 2304, 32, 0.06),
    "blocks of 32, 20 %": blocks(1536, 768, 32, 0.20),
    "blocks of 16, 12 %": blocks(1024, 768, 16, 0.12),
    "blocks of 8, 6 %": blocks(1024, 1024, 8, 0.06),
    "blocks of 4, 10 %": blocks(768, 1024, 4, 0.10),
    "single, 3 %": single(1024, 1536, 0.03),
    "single, 10 %": single(1536, 768, 0.10),
    "single, 25 %": single(768, 768, 0.25),
    "single, 50 %": single(640, 640, 0.50),
    "blocks of 32 and 2 % single": mixed(1024, 1024, 32, 0.08, 0.02),
    "blocks of 8 and single": mixed(768, 1024, 8, 0.06, 0.01),
    "band of 33": band(3000, 16),
    "band of 129, 75 %": band(1536, 64, 0.75),
    "graph, 5 a row": graph(8_000, 40_000, 2.3, 150, 0.8),
    "graph, 25 a row": graph(4_000, 100_000, 2.1, 300, 0.6),
}
"""Those to which constants of the cost model may be fitted."""

SETS = {"held-out": HELD_OUT, "fitted": FITTED}


def _csr(kept: np.ndarray) -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix(kept.astype(np.float32))
