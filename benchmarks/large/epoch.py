"""Training epochs of one network in a process of its own, whose peak is the kernel's account of it."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy

import gnn_sparse_backend as gsb
from benchmarks.large.data import CLASSES, FEATURES, Files
from benchmarks.layers.epochs.networks import Network
from benchmarks.support import cli, memory

DROPOUT, LAYERS, WIDTH = 0.5, 3, 256


class Cell(NamedTuple):
    """framework, kind: of the layers. backend: whether ours is under them, with little memory. threads; epochs; seed.
    limit: bytes that the process may ask for.
    """

    framework: str
    kind: str
    backend: bool
    threads: int
    epochs: int
    seed: int
    limit: int


def train(files: Files, cell: Cell) -> dict[str, Any]:
    """Seconds of loading, of making the graph, of each epoch and of its parts; losses; bytes at the end and at the
    peak, and what takes them.

    ``fits``: whether memory was enough; without it there are no epochs.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (cell.limit, cell.limit))
    cli.set_threads(cell.threads)
    cli.quiet_libraries()
    try:
        return _train(files, cell)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        return {"fits": False, "why": str(error).splitlines()[0], "peak": memory.peak()}


def _train(files: Files, cell: Cell) -> dict[str, Any]:
    begin = time.perf_counter()
    edges, features, labels, trained = files.load()
    loaded = time.perf_counter() - begin
    if cell.backend:
        gsb.enable(cell.framework, memory="low")
    torch.manual_seed(cell.seed)
    model = Network(cell.framework, cell.kind, [FEATURES, *[WIDTH] * (LAYERS - 1), CLASSES], DROPOUT)
    if cell.backend:
        gsb.checkpoint_layers(model)
    graph, made = _timed(lambda: _graph(cell, edges, features.shape[0]))
    if cell.framework == "dgl":
        del edges
    optimizer, labels = torch.optim.Adam(model.parameters(), lr=0.01), labels[trained]

    losses, seconds, parts, peaks = [], [], [], []
    for number in range(cell.epochs):
        torch.manual_seed(cell.seed + number)
        optimizer.zero_grad()
        loss, forward = _timed(lambda: cross_entropy(model((graph,), features)[trained], labels))
        _, backward = _timed(loss.backward)
        _, step = _timed(optimizer.step)
        losses.append(loss.item())
        parts.append({"forward": forward, "backward": backward, "step": step})
        seconds.append(forward + backward + step)
        peaks.append(memory.peak())
        del loss
    return {
        "fits": True,
        "losses": losses,
        "load": loaded,
        "graph": made,
        "epochs": seconds,
        "parts": parts,
        "peaks": peaks,
        "peak": memory.peak(),
        "resident": memory.resident(),
        "held": [[row.of, row.what, row.nbytes] for row in gsb.memory().rows],
        "fallbacks": gsb.status().to_dict()["calls"] if cell.backend else {},
    }


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    return call(), time.perf_counter() - begin


def _graph(cell: Cell, edges: torch.Tensor, nodes: int) -> Any:
    """The edges as the layers of a framework take them, and under PyG what we have found of them."""
    if cell.framework == "pyg":
        if cell.backend:
            with torch.no_grad():
                Network("pyg", "sage", [1, 1], 0.0)((edges,), torch.ones(nodes, 1))
        return edges
    import dgl

    if not cell.backend:
        return dgl.graph(tuple(edges), num_nodes=nodes)
    return gsb.dgl_graph(gsb.Graph.from_edge_index(edges, (nodes, nodes), release=True), numbered=False)
