"""What the numbers were measured on, and where they are written."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
from pathlib import Path

import psutil

LIBRARIES = ("gnn-sparse-backend", "apache-tvm", "apache-tvm-ffi", "torch", "dgl", "torch-geometric", "scipy", "numpy")


def describe(threads: int) -> dict:
    """The machine, the libraries' versions (None: not installed), the threads, whether freed memory is kept
    (``gsb.reuse_memory``), and the date in UTC.

    Call it before measuring: the load average is then that of others, and ``busy`` says when it makes times worthless.
    """
    # read here: the package is not to be imported before its threads are set
    from gnn_sparse_backend.runtime import large_blocks

    return {
        "cpu": cpu_name(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(logical=True),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": [round(load, 2) for load in psutil.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES},
        "threads": threads,
        "reused_memory": large_blocks.in_use(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def busy(description: dict) -> str | None:
    """A warning when other processes were using the cores at the start, else None."""
    load, cores = description["load_average"][0], description["usable_cores"] or description["logical_cores"]
    if load + description["threads"] <= cores + 0.5:
        return None
    return (
        f"the load average was {load} at the start, with {cores} cores for {description['threads']} threads: "
        "threads waited for cores, and these times say little"
    )


def one_line(description: dict) -> str:
    """The description as a line for the head of a table."""
    libraries = ", ".join(f"{name} {version}" for name, version in description["libraries"].items() if version)
    kept = ", freed memory kept for all" if description.get("reused_memory") else ""
    return f"{description['cpu']}, {description['cores']} cores, {description['threads']} threads{kept}; {libraries}"


def write_json(path: Path, report: dict) -> Path:
    """Write a report of plain values; refuses NaN, which is not JSON. Returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    return path
