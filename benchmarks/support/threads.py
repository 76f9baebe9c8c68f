"""What two pools of threads on the same cores cost: a compiled kernel alternating with a PyTorch operator.

    python -m benchmarks.support.threads

Each arm runs in processes of its own, in turns, because a pool that exists keeps spinning. Of each series the 10th
percentile is taken, and of the repetitions the best: on a machine that others use too, a barrier that waits for a
descheduled worker takes tens of milliseconds, and medians show only that.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

ARMS = {"separate": "TVM's pool beside PyTorch's", "shared": "shared with PyTorch"}
SIZES = (100_000, 2_500_000)  # float32 elements: 0.4 MB and 10 MB an array
REPETITIONS = 4
SECONDS = 1.5


def series(call: Callable[[], object]) -> float:
    """10th percentile of the time of a call, in microseconds."""
    for _ in range(20):
        call()
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * sorted(times)[len(times) // 10]


def measure(arm: str, size: int) -> tuple[float, float, float]:
    """Microseconds of the PyTorch operator, of the kernel, and of one after the other, in this process."""
    import torch
    import tvm

    from gnn_sparse_backend.cli.examine import doubling
    from gnn_sparse_backend.compiler.codegen import build_jit, host_target

    function = doubling("double")
    if arm == "shared":
        kernel = build_jit(function, host_target())["double"]
    else:
        kernel = tvm.compile(function, target=host_target().to_tvm()).mod["double"]
    x, y, z = torch.randn(size), torch.empty(size), torch.empty(size)

    def run_torch() -> None:
        torch.clamp_min(y, 0, out=z)

    def run_kernel() -> None:
        kernel(size, x, y)

    def run_both() -> None:
        run_kernel()
        run_torch()

    return series(run_torch), series(run_kernel), series(run_both)


def main() -> None:
    if len(sys.argv) == 3:
        print(*measure(sys.argv[1], int(sys.argv[2])))
        return
    table = Table("elements", "threads", "PyTorch, us", "kernel, us", "alternating, us")
    for size in SIZES:
        best = {arm: [float("inf")] * 3 for arm in ARMS}
        for _ in range(REPETITIONS):
            for arm in ARMS:
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.support.threads", arm, str(size)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                best[arm] = [min(pair) for pair in zip(best[arm], map(float, done.stdout.split()))]
        for arm, name in ARMS.items():
            table.add_row(f"{size:,}", name, *(f"{value:.1f}" for value in best[arm]))
    Console().print(table)


if __name__ == "__main__":
    main()
