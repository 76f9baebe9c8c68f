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


def one_is_gone(rank: int, folder: Path, how: str, shared: bool) -> None:
    """Process 1 ends or hangs between two layers: process 0 has an error that says so, in time."""
    part = DistGraph.load(folder, timeout=4, shared_memory=shared)
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


NODES = 400


def unlike_parts() -> gsb.RelGraph:
    """Rows of the first half have few sources, and the sources of the second half few rows."""
    random = torch.Generator().manual_seed(0)
    many, few = (torch.randint(most, (3000,), generator=random) for most in (200, 5))
    relation = torch.randint(3, (6000,), generator=random)
    row, col = torch.cat([many, few + 200]), torch.cat([few + 200, many])
    return gsb.RelGraph.from_triples(col, row, relation, (NODES, NODES), 3)


def plans_are_of_parts(rank: int, folder: Path, told: Path) -> None:
    """A part takes the plan that suits it, and all of them have the numbers of one process."""
    part, whole = DistGraph.load(folder), unlike_parts()
    random = torch.Generator().manual_seed(1)
    x, weight = torch.rand(NODES, 64, generator=random), torch.rand(3, 64, 64, generator=random)
    mine = gsb.rgms(part, x[part.column_ids], weight)
    (told / f"{rank}").write_text(str(gsb.last_run()))
    torch.testing.assert_close(mine, gsb.rgms(whole, x, weight)[part.row_ids], rtol=1e-5, atol=1e-5)


def under_torchrun() -> None:
    """Process 1 hangs between two steps, for longer than anybody waits."""
    folder = Path(os.environ["FOLDER"])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    (folder / f"pid{rank}").write_text(str(os.getpid()))
    part = DistGraph.load(folder / "parts", timeout=4)
    x = torch.ones(part.shape[1], 3)
    gsb.spmm(part, x)
    dist.barrier()
    (folder / f"begun{rank}").touch()
    if rank == 1:
        time.sleep(3600)
    gsb.spmm(part, x)


if __name__ == "__main__":
    under_torchrun()
