"""Generated graphs, labels and features: everything from one seed, vectorised."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from benchmarks.support.generators import power_law

CLASSES = 16
WIDTH = 128

# Degrees P(d) ~ d^-2.2 up to 5,000; three edges in five stay in their community. One node's features then classify
# about a quarter of the nodes, and the mean over its neighbours most of them.
_ALPHA, _MAX_DEGREE, _LOCALITY = 2.2, 5_000, 0.6
_SIGNAL = 1.0


def graph(nodes: int, edges: int, seed: int) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """A CSR matrix of exactly ``edges`` distinct edges, rows as destinations, and the (nodes,) community of each node.

    Degree-corrected communities of equal size (Karrer and Newman, 2011); nodes are numbered at random.
    Raises ValueError where the sizes do not fit each other.
    """
    communities = min(CLASSES, max(1, nodes // 4))
    ordered = power_law(
        nodes,
        edges,
        _ALPHA,
        min(_MAX_DEGREE, max(1, nodes // 20)),
        seed,
        communities=communities,
        locality=_LOCALITY,
        shuffled=False,
    )
    bounds = np.linspace(0, nodes, communities + 1).astype(np.int64)
    community = np.repeat(np.arange(communities), np.diff(bounds))
    order = np.random.default_rng([seed, 0]).permutation(nodes)
    matrix = ordered[order][:, order]
    matrix.sort_indices()
    return matrix, community[order]


def features(labels: np.ndarray, rng: np.random.Generator, width: int = WIDTH) -> np.ndarray:
    """(nodes, width) float32: a unit vector per class under unit normal noise; noise alone where the label is
    negative.
    """
    centres = rng.standard_normal((int(labels.max()) + 2, width), np.float32)
    centres *= _SIGNAL / np.linalg.norm(centres, axis=1, keepdims=True)
    centres[-1] = 0
    noise = rng.standard_normal((len(labels), width), np.float32)
    return centres[np.maximum(labels, -1)] + noise


def smooth_labels(indptr: np.ndarray, indices: np.ndarray, rng: np.random.Generator, rounds: int = 10) -> np.ndarray:
    """(nodes,) labels that neighbours tend to share: random scores per class, averaged over neighbours.

    Each round takes the mean of a node and its neighbours, then centres and scales every class's scores, as a power
    iteration does: what is left are the slowest modes of the graph, in which its communities show.
    """
    nodes = len(indptr) - 1
    adjacency = scipy.sparse.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), (nodes, nodes))
    scale = 1 / (1 + np.diff(indptr).astype(np.float32))
    scores = rng.standard_normal((nodes, min(CLASSES, nodes)), np.float32)
    for _ in range(rounds):
        scores = scale[:, None] * (adjacency @ scores + scores)
        scores -= scores.mean(0)
        scores /= np.maximum(scores.std(0), 1e-12)
    return scores.argmax(1)
