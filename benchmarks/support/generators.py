"""Seeded random graphs with a chosen size, degree skew and community structure."""

from __future__ import annotations

import numpy as np
import scipy.sparse


def power_law(
    nodes: int,
    nnz: int,
    alpha: float,
    max_degree: int,
    seed: int = 0,
    *,
    communities: int = 1,
    locality: float = 0.0,
    source_skew: float = 1.0,
    shuffled: bool = True,
) -> scipy.sparse.csr_matrix:
    """A graph whose in-degrees follow a truncated power law, as a square CSR matrix of ones.

    nodes, nnz: exact numbers of rows and of edges; there are no duplicate edges, self loops may occur.
    alpha: exponent of the degree distribution, P(d) ~ d^-alpha, above 1; smaller is more skewed.
    max_degree: the largest in-degree allowed.
    communities, locality: rows are dealt to communities of equal size, and each edge comes from its own community with
        probability ``locality``.
    source_skew: sources are drawn with probability in-degree^source_skew; 1 makes hubs hubs on both sides, 0 none.
    shuffled: number the nodes at random; otherwise a community's nodes are consecutive.

    Returns int32 indices sorted in each row. Chung and Lu's expected-degree model (2002) with the in-degrees fixed.
    """
    if not 0 < nnz <= nodes * min(max_degree, nodes):
        raise ValueError(f"{nnz} edges do not fit {nodes} nodes of in-degree at most {max_degree}")
    if alpha <= 1 or not 0 <= locality <= 1 or not 1 <= communities <= nodes:
        raise ValueError(
            f"need alpha > 1, locality in [0, 1] and communities in [1, {nodes}], "
            f"got {alpha}, {locality} and {communities}"
        )
    rng = np.random.default_rng(seed)
    degrees = _degrees(nodes, nnz, alpha, min(max_degree, nodes), rng)
    bounds = np.linspace(0, nodes, communities + 1).astype(np.int64)
    if locality == 1 and degrees.max() > np.diff(bounds).min():
        raise ValueError(
            f"a node of in-degree {degrees.max()} does not fit a community of {np.diff(bounds).min()} "
            "nodes when locality is 1: use fewer communities or a smaller max_degree"
        )
    keys = _distinct_edges(degrees, bounds, locality, source_skew, rng)
    rows, columns = keys // nodes, keys % nodes
    if shuffled:
        label = rng.permutation(nodes)
        rows, columns = label[rows], label[columns]
    matrix = scipy.sparse.coo_matrix((np.ones(nnz, np.float32), (rows, columns)), shape=(nodes, nodes)).tocsr()
    matrix.sort_indices()
    return matrix


def _degrees(nodes: int, nnz: int, alpha: float, largest: int, rng: np.random.Generator) -> np.ndarray:
    """Power-law degrees that add up to ``nnz`` exactly: scale by bisection, then round at random."""
    pareto = rng.random(nodes) ** (-1 / (alpha - 1))
    low, high = 0.0, float(largest)
    for _ in range(100):
        middle = (low + high) / 2
        if np.minimum(pareto * middle, largest).sum() < nnz:
            low = middle
        else:
            high = middle
    exact = np.minimum(pareto * high, largest)
    degrees = np.floor(exact + rng.random(nodes)).astype(np.int64).clip(0, largest)
    while (excess := int(degrees.sum()) - nnz) != 0:
        movable = np.flatnonzero(degrees > 0 if excess > 0 else degrees < largest)
        chosen = rng.choice(movable, min(abs(excess), len(movable)), replace=False)
        degrees[chosen] -= np.sign(excess)
    return degrees


def _distinct_edges(
    degrees: np.ndarray, bounds: np.ndarray, locality: float, source_skew: float, rng: np.random.Generator
) -> np.ndarray:
    """Edge keys row * nodes + column, each once: draw, drop duplicates, draw again for what is missing.

    A hub can exhaust the popular sources; after some rounds what is missing is drawn uniformly.
    """
    nodes = len(degrees)
    community = np.searchsorted(bounds, np.arange(nodes), side="right") - 1
    first, last = bounds[community], bounds[community + 1]
    popularity = np.concatenate(([0.0], np.cumsum((degrees + 1.0) ** source_skew)))
    keys = np.empty(0, np.int64)
    for attempt in range(1000):
        missing = degrees - np.bincount(keys // nodes, minlength=nodes)
        if not missing.any():
            return keys
        rows = np.repeat(np.arange(nodes), missing)
        local = rng.random(len(rows)) < locality
        low, high = np.where(local, first[rows], 0), np.where(local, last[rows], nodes)
        if attempt < 8:
            mark = popularity[low] + rng.random(len(rows)) * (popularity[high] - popularity[low])
            columns = np.searchsorted(popularity, mark, side="right") - 1
        else:
            columns = low + (rng.random(len(rows)) * (high - low)).astype(np.int64)
        columns = np.clip(columns, low, high - 1)
        # two sorted runs, which a stable sort merges
        keys = np.sort(np.concatenate((keys, np.sort(rows * nodes + columns))), kind="stable")
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    raise ValueError("could not place all edges without duplicates: lower max_degree, nnz or locality")
