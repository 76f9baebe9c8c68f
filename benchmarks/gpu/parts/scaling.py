"""How operators and epochs on the CPU grow with threads, ours and the frameworks': the benchmarks of the CPU, a
process for each number of threads, the largest first.
"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.gpu.told import FAILED, OK, PREPARE, SKIPPED, Told

THREADS = 16, 1, 8, 4, 2
OPERATORS = (
    "spmm",
    "--graphs",
    "arxiv",
    "--features",
    "64",
    "--modes",
    "weighted forward",
    "weighted forward+backward",
)
EPOCHS = ("epochs", "--frameworks", "pyg", "--kinds", "sage", "gcn", "--eager", "--calls", "1", "--turns", "1")
EPOCHS += ("--nodes", "50000", "--edges", "600000")
SMALL = ("spmm", "--graphs", "citeseer", "--features", "8", "--modes", "weighted forward")
LEAST_S = 8.0


def run(told: Told) -> None:
    if told.mode == PREPARE:
        return
    cores = os.cpu_count() or 1
    commands = (SMALL,) if told.small else (OPERATORS, EPOCHS)
    wanted = [(command, threads) for command in commands for threads in THREADS if threads <= cores]
    for number, (command, threads) in enumerate(wanted[: 1 if told.small else len(wanted)]):
        where = f"{command[0]}, {threads} threads"
        if told.left < LEAST_S:
            told.record(where, SKIPPED, why="no time left")
            continue
        share = max(1.0, told.left / (len(wanted) - number) / 2)
        name, *arguments = command
        full = [sys.executable, "-m", f"benchmarks.{name}", *arguments, "--threads", str(threads)]
        full += ["--budget", f"{share:.1f}", "--out", str(told.work / f"{name}-{threads}")]
        try:
            done = subprocess.run(full, capture_output=True, text=True, timeout=told.left)
        except subprocess.TimeoutExpired:
            told.record(where, FAILED, why="time over")
            continue
        print(done.stdout[-4000:] + done.stderr[-4000:], flush=True)
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        told.record(where, OK if done.returncode == 0 else FAILED, threads=threads, why=last if done.returncode else "")
