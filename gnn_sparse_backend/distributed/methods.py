"""Which part each node belongs to: by METIS, at random or by ranges."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from .coarse import LARGE, Undirected, by_groups

METHODS = ("metis", "random", "range")


def owners(
    method: str,
    row: np.ndarray,
    col: np.ndarray,
    shape: tuple[int, int],
    parts: int,
    square: bool,
    seed: int,
    sample: float = 1.0,
    coarsen: bool | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The part of every destination and of every source; of a square graph they are the same nodes."""
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"partition: method must be one of {METHODS}, got {method!r:.80}")
    if not isinstance(sample, (int, float)) or not 0 < sample <= 1:
        raise ValueError(f"partition: sample must be more than 0 and at most 1, got {sample!r:.80}")
    if coarsen is not None and not isinstance(coarsen, bool):
        raise ValueError(f"partition: coarsen must be True, False or None, got {coarsen!r:.80}")
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"partition: seed must be a number from 0 on, got {seed!r:.80}")
    if method == "metis" and parts > 1:
        return _metis(row, col, shape, parts, square, seed, sample, coarsen)
    random = np.random.default_rng(seed) if method == "random" else None
    of_rows = _evenly(shape[0], parts, random)
    return of_rows, of_rows if square else _evenly(shape[1], parts, random)


def _evenly(nodes: int, parts: int, random: np.random.Generator | None) -> np.ndarray:
    """Ranges that differ by one node at most, of the nodes in their order or in a random one."""
    part = (np.arange(nodes, dtype=np.int64) * parts // max(nodes, 1)).astype(np.int32)
    return part if random is None else random.permutation(part)


def _metis(row, col, shape, parts, square, seed, sample, coarsen) -> tuple[np.ndarray, np.ndarray]:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            'partition: method="metis" needs pymetis: pip install "gnn-sparse-backend[distributed]"; '
            'method="random" and method="range" need nothing'
        ) from error
    nodes = shape[0] if square else sum(shape)
    if nodes == 0:
        return np.zeros(shape[0], np.int32), np.zeros(shape[1], np.int32)
    width = pymetis.zero_copy_dtype()  # of another one METIS gets a copy

    def cut(graph: Undirected) -> np.ndarray:
        if graph.others.size == 0:  # nothing to cut, and METIS puts all nodes into one part
            return _evenly(graph.sizes.size, parts, None)
        weights = {}
        if graph.weights is not None:
            weights = {"eweights": graph.weights.astype(width), "vweights": graph.sizes.astype(width)}
        adjacency = pymetis.CSRAdjacency(graph.starts.astype(width), graph.others.astype(width))
        return np.asarray(pymetis.part_graph(parts, adjacency, **weights)[1], np.int32)

    starts, others = _undirected(row, col, shape, square, seed, sample)
    graph = Undirected(starts, others, None, np.ones(nodes, np.int64))
    large = {None: LARGE, True: min(LARGE, others.size - 1), False: others.size}[coarsen]
    part = by_groups(graph, parts, seed, cut, large)
    return (part, part) if square else (part[: shape[0]], part[shape[0] :])


def _undirected(row, col, shape, square: bool, seed: int, sample: float) -> tuple[np.ndarray, np.ndarray]:
    """(starts, neighbours) of each node by either direction, once; without loops. sample: the share of the edges that
    are taken.
    """
    nodes = shape[0] if square else sum(shape)
    if square:
        taken = row != col
    else:
        taken, col = np.ones(row.size, bool), col.astype(np.int64) + shape[0]
    if sample < 1:
        taken &= np.random.default_rng(seed).random(row.size, np.float32) < sample
    ends = row[taken], col[taken]
    matrix = scipy.sparse.coo_array((np.ones(ends[0].size, bool), ends), shape=(nodes, nodes)).tocsr()
    del taken, ends
    matrix = matrix + matrix.T.tocsr()
    return matrix.indptr, matrix.indices
