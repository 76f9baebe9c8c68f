"""Processes that end or hang, and the kernels of those that do not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache.default import default_store
from gnn_sparse_backend.distributed import DistGraph

WITHIN = 15


def one_is_gone(rank: int, folder: Path, how: str) -> None:
    """Process 1 ends or hangs between two layers: process 0 has an error that says so, in time."""
    part = DistGraph.load(folder, timeout=4)
    x = torch.ones(part.shape[1], 3)
    gsb.spmm(part, x)
    dist.barrier()
    if rank == 1:
        time.sleep(0 if how == "ends" else WITHIN)
        os._exit(0)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="another process has ended or hangs"):
        for _ in range(2):
            gsb.spmm(part, x)
    assert time.monotonic() - start < WITHIN
    os._exit(0)


def compiles_once(rank: int, folder: Path, told: Path) -> None:
    part = DistGraph.load(folder)
    dist.barrier()
    x = torch.ones(part.shape[1], 43, requires_grad=True)
    gsb.spmm(part, x).sum().backward()
    gsb.spmm(part, x, reduce="max")
    stats = default_store().stats()
    (told / f"{rank}").write_text(f"{stats.compiles} {stats.disk_loads}")
