"""What predictions stand on, measured on this machine: seconds of a sum's number, of an operation, byte and message."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import gnn_sparse_backend as gsb
from benchmarks.partitioned.graphs import graph_of
from benchmarks.partitioned.prediction import Rates

MESSAGES = {"latency": 64, "bandwidth": 1 << 23}
"""Bytes of the two messages that are timed."""
TIMES = 20


def rates(nodes: int, edges: int, width: int, threads: int, seed: int, latency: float) -> Rates:
    """Of so many threads, on a graph of this size."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        graph = graph_of(nodes, edges, seed)
        x = torch.randn(nodes, width, requires_grad=True)
        matrix, grad = torch.randn(width, width), torch.randn(nodes, width)

        def both_ways() -> None:
            x.grad = None
            gsb.spmm(graph, x, reduce="mean").backward(grad)

        sums = _median(both_ways, 5) / 2
        dense = _median(lambda: grad @ matrix, 5)
        some = torch.randperm(nodes)[: max(nodes // 4, 1)]
        rows, total = grad.index_select(0, some), torch.zeros(nodes, width)
        packed = _median(lambda: grad.index_select(0, some), 5)  # forward: packed, and put behind the own rows
        added = _median(lambda: total.index_add_(0, some, rows), 5)
        return Rates(
            edge=sums / (edges * width),
            flop=dense / (2 * nodes * width**2),
            byte=(packed + added) / (rows.numel() * 4),
            latency=latency,
        )
    finally:
        torch.set_num_threads(before)


def loopback() -> dict[str, float]:
    """latency: seconds of a small message between two processes; bandwidth: bytes a second of a large one."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_exchange, (folder,), nprocs=2, start_method="spawn")
        told = json.loads((Path(folder) / "told.json").read_text())
    large = MESSAGES["bandwidth"] / max(told["bandwidth"] - told["latency"], 1e-9)
    return {"latency": told["latency"], "bandwidth": large}


def _exchange(rank: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    told = {}
    for name, size in MESSAGES.items():
        sent, received = torch.zeros(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
        counts = [0, size] if rank == 0 else [size, 0]
        told[name] = _median(partial(dist.all_to_all_single, received, sent, counts, counts), TIMES)
    if rank == 0:
        (Path(folder) / "told.json").write_text(json.dumps(told), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _median(call: Callable[[], object], times: int) -> float:
    call()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
