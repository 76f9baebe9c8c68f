"""What Nsight Compute says of five kernels: occupancy, sectors of memory, and what warps wait for. Its text is kept.

A kernel is launched by a process of its own, on a graph large enough to fill the GPU:
``python -m benchmarks.gpu.parts.ncu NAME``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.gpu.told import FAILED, GPU, OK, SKIPPED, Told

FAMILIES = "spmm", "sddmm", "attention", "rgms", "sparse convolution"
SCALE = 300
SECTIONS = "SpeedOfLight", "Occupancy", "LaunchStats", "MemoryWorkloadAnalysis", "WarpStateStats", "SchedulerStats"
FOLDERS = "/usr/local/cuda/bin", "/opt/nvidia/nsight-compute"
KEPT = "ncu.txt"
TOLD = (
    "Duration",
    "Achieved Occupancy",
    "Memory Throughput",
    "Compute (SM) Throughput",
    "L2 Hit Rate",
    "Registers Per Thread",
)


def run(told: Told) -> None:
    if told.compiles:
        for name in FAMILIES:
            told.attempt(name, partial(launch, name, "cpu"))
        return
    if told.mode != GPU:
        told.record("Nsight Compute", SKIPPED, why="it wants a GPU")
        return
    if (tool := ncu_path()) is None:
        told.record("Nsight Compute", SKIPPED, why="ncu is not on the path or in /usr/local/cuda")
        return
    for name in FAMILIES:
        if told.left < 5:
            told.record(name, SKIPPED, why="no time left")
            continue
        command = [tool, "--launch-skip", "2", "--launch-count", "3", "--kernel-name-base", "function"]
        for section in SECTIONS:
            command += ["--section", section]
        command += [sys.executable, "-m", "benchmarks.gpu.parts.ncu", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=told.left)
        except subprocess.TimeoutExpired:
            told.record(name, FAILED, why="time over")
            continue
        with (told.kept / KEPT).open("a") as file:
            file.write(f"===== {name}\n{done.stdout}\n")
        if done.returncode or "No kernels" in done.stdout:
            last = ((done.stdout + done.stderr).strip().splitlines() or ["no words"])[-1]
            told.record(name, FAILED, why=last)  # ERR_NVGPUCTRPERM: counters are for the administrator
        else:
            told.record(name, OK, **figures(done.stdout))


def figures(text: str) -> dict[str, list[str]]:
    """Return by name the values that ncu prints, one for each launch in order."""
    return {name: re.findall(rf"^\s*{re.escape(name)}\s+\S+\s+([\d.,]+)", text, re.MULTILINE) for name in TOLD}


def ncu_path() -> str | None:
    """ncu on the path or where toolkits put it."""
    return shutil.which("ncu") or next(filter(None, (shutil.which("ncu", path=each) for each in _folders())), None)


def _folders() -> list[str]:
    return [*FOLDERS, *map(str, sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True))]


def launch(name: str, device: str = "cuda") -> None:
    """Forward alone, three times: the first two compile, plan and warm. device: the CPU where a stand-in is a GPU."""
    import torch

    from benchmarks.gpu.families import FAMILIES as ALL

    function, operands = ALL[name].make(torch.device(device), torch.float32, SCALE)
    with torch.no_grad():
        for _ in range(3):
            function(*operands)
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    launch(sys.argv[1])
