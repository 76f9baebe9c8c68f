"""What cutting a graph takes: memory at its peak, and time."""

from __future__ import annotations

import tempfile
import time

import numpy as np
import torch

import gnn_sparse_backend as gsb
from benchmarks.partitioned.graphs import COMMUNITY, LOCALITY
from benchmarks.support import memory

_ROWS = 1 << 16


def of_partition(
    nodes: int, degree: int, parts: int, method: str, seed: int, sample: float, coarsen: bool | None
) -> dict:
    """graph: bytes of the graph itself. peak: of the process while it is cut, above what was resident before with the
    graph in it. Meant for a process of its own.
    """
    graph = _graph(nodes, degree, seed)
    memory.release()
    before = memory.resident()
    memory.reset_peak()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        given = dict(seed=seed, sample=sample, coarsen=coarsen, progress=False)
        report = gsb.distributed.partition(graph, parts, folder, method, **given)
        seconds = time.perf_counter() - start
    held = sum(each.numel() * each.element_size() for each in (graph.indptr, graph.indices))
    return {
        "edges": graph.num_edges,
        "graph": held,
        "resident": before,
        "peak": memory.peak() - before,
        "seconds": seconds,
        "edge_cut": report.edge_cut,
        "balance": report.balance,
    }


def _graph(nodes: int, degree: int, seed: int) -> gsb.Graph:
    """Every row has so many edges; made a few rows at a time, so that making it takes no more than having it."""
    rng = np.random.default_rng(seed)
    indices = np.empty((nodes, degree), np.int32)
    for first in range(0, nodes, _ROWS):
        rows = np.arange(first, min(first + _ROWS, nodes))[:, None]
        near = rows - rows % COMMUNITY + rng.integers(COMMUNITY, size=(len(rows), degree))
        far = rng.integers(nodes, size=near.shape)
        picked = np.where(rng.random(near.shape, dtype=np.float32) < LOCALITY, near, far)
        indices[first : first + len(rows)] = np.minimum(picked, nodes - 1)
    indptr = torch.arange(0, nodes * degree + 1, degree, dtype=torch.int32)
    return gsb.Graph.from_csr(indptr, torch.from_numpy(indices.reshape(-1)), (nodes, nodes))
