"""Processes of one machine that train together, over a file and the loopback; none is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = 240
_ROOT = Path(__file__).resolve().parents[2]
_FRESH_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it processes that were started again may find the addresses of those that ended."""


def together(count: int, function: Callable, folder: Path, *args: object, timeout: float = TIMEOUT) -> None:
    """``function(rank, *args)`` in so many processes. Raises what one raises, and ends the others."""
    store = folder / f"store{time.monotonic_ns()}"
    started = mp.start_processes(
        _child, (count, str(store), function, args), nprocs=count, join=False, start_method="spawn"
    )
    try:
        end = time.monotonic() + timeout
        while not started.join(timeout=1):
            if time.monotonic() > end:
                raise TimeoutError(f"{function.__name__}: processes still run after {timeout} s")
    finally:
        for process in started.processes:
            if process.is_alive():
                process.kill()
            process.join()


def torchrun(module: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A module in two processes of torchrun; it finds the folder in ``FOLDER``."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
    return subprocess.run(
        [*command, "--monitor-interval", "0.1", "-m", module],
        env=os.environ | _FRESH_STORE | {"FOLDER": str(folder), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def _child(rank: int, count: int, store: str, function: Callable, args: tuple) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=count, timeout=timedelta(seconds=60)
    )
    function(rank, *args)
    dist.barrier()
    dist.destroy_process_group()
