"""compute-sanitizer's memcheck and racecheck on small calls of every family, by ``python -m tests.sanitizer``."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial

from benchmarks.gpu.told import FAILED, GPU, OK, SKIPPED, Told

# One small call of each kernel.
CALLS = (
    "spmm, float32",
    "spmm_weighted_mean, bfloat16",
    "gspmm_mul_max, float32",
    "sddmm, float32",
    "attention, rows in parts",
    "edge_softmax, rows in parts",
    "segment_mm 64 to 64",
    "gather_mm 5 to 4",
    "rgms 64 to 64",
    "rgms 48 to 72",
    "weighted mean of 3 on rows of a few lanes",
    "weighted mean of 128 on rows in parts",
    "composed_spmm, float32",
)


def run(told: Told) -> None:
    if told.compiles:
        import torch

        from tests.sanitizer import chosen

        for _, case in chosen(0, CALLS):
            told.attempt(case.name, partial(_ran, case, torch.device("cpu")))
        return
    if told.mode != GPU:
        told.record("compute-sanitizer", SKIPPED, why="it wants a GPU")
        return
    command = [sys.executable, "-m", "tests.sanitizer", "--minutes", f"{told.left / 60 - 0.05:.2f}"]
    command += ["--out", str(told.work), "--processes", "4", "--only", *CALLS]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout + done.stderr, flush=True)
    for line in done.stdout.splitlines():
        if (found := re.match(r"(without a tool|memcheck|racecheck|not checked): (.*)", line)) is not None:
            state = SKIPPED if found[1] == "not checked" else OK if re.search("clean|calls ran", found[2]) else FAILED
            told.record(found[1], state, why=found[2])
    if done.returncode not in (0, 1, 2):
        told.record("compute-sanitizer", FAILED, why=(done.stderr.strip().splitlines() or ["no words"])[-1])


def _ran(case, device) -> None:
    """Run a call for its kernels; what it gives is no result."""
    case(device)
