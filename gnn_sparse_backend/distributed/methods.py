"""Which part each node belongs to: by METIS, at random or by ranges."""

from __future__ import annotations

import numpy as np
import scipy.sparse

METHODS = ("metis", "random", "range")


def owners(
    method: str, row: np.ndarray, col: np.ndarray, shape: tuple[int, int], parts: int, square: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The part of every destination and of every source; of a square graph they are the same nodes."""
    if method not in METHODS:
        raise ValueError(f"partition: method must be one of {METHODS}, got {method!r}")
    if method == "metis" and parts > 1:
        return _metis(row, col, shape, parts, square)
    random = np.random.default_rng(seed) if method == "random" else None
    of_rows = _evenly(shape[0], parts, random)
    return of_rows, of_rows if square else _evenly(shape[1], parts, random)


def _evenly(nodes: int, parts: int, random: np.random.Generator | None) -> np.ndarray:
    """Ranges that differ by one node at most, of the nodes in their order or in a random one."""
    part = (np.arange(nodes, dtype=np.int64) * parts // max(nodes, 1)).astype(np.int32)
    return part if random is None else random.permutation(part)


def _metis(row, col, shape, parts, square) -> tuple[np.ndarray, np.ndarray]:
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
    source = col if square else col.astype(np.int64) + shape[0]
    edges = np.ones(row.size, np.int8)
    matrix = scipy.sparse.csr_array((edges, (row, source)), shape=(nodes, nodes))
    matrix = (matrix + matrix.T).tocsr()  # METIS cuts undirected graphs
    matrix.setdiag(0)
    matrix.data[:] = matrix.data != 0
    matrix.eliminate_zeros()
    if matrix.nnz == 0:  # nothing to cut, and METIS puts all nodes into one part
        part = _evenly(nodes, parts, None)
    else:
        part = np.asarray(pymetis.part_graph(parts, pymetis.CSRAdjacency(matrix.indptr, matrix.indices))[1], np.int32)
    return (part, part) if square else (part[: shape[0]], part[shape[0] :])
