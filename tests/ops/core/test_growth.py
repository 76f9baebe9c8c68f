"""A process that meets ever new widths, messages and shapes stops growing: what it keeps is bounded."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from gnn_sparse_backend.compiler.cache import CacheStatistics

MEGABYTE = 1 << 20
MARGIN = MEGABYTE // 2
"""Bytes that Python's objects may take more at most in the second half of the rounds: caches are full to a half at
least, not all at the same time. Without bounds 24 rounds take four times as much."""
# What every round adds to.
MET = {
    "calls of attention",
    "calls of messages",
    "kernels",
    "kernels of relational products",
    "kernels of the softmax over edges",
    "ops.grouped.executables._on_cpu",
    "ops.message.gradients.gradient_plan",
    "ops.message.programs.message.vjp",
    "ops.message.schedules_cpu.aggregate_kernel",
    "ops.message.schedules_cpu.edge_map_kernel",
    "plans of the cost model",
}


def halves(count: int, divisor: int, *frameworks: str) -> list[dict]:
    """What a process of its own keeps after a half of the rounds, and after all of them."""
    command = [sys.executable, "-m", "tests.ops.core.growth", str(count), str(divisor), *frameworks]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert len(found["rounds"]) == 10 + 2 * len(frameworks)
    for half in found["halves"]:
        half["caches"] = {name: CacheStatistics(name, *numbers) for name, numbers in half["caches"].items()}
    return found["halves"]


def full(caches: dict[str, CacheStatistics]) -> set[str]:
    """Those that had to make room, after which all are as large as they may be at most."""
    for each in caches.values():
        assert each.entries <= each.most, each
    return {name for name, each in caches.items() if each.dropped}


def installed() -> list[str]:
    modules = {"dgl": "dgl", "pyg": "torch_geometric"}
    return [name for name, module in modules.items() if importlib.util.find_spec(module) is not None]


@pytest.mark.slow
def test_small_caches_make_room():
    """Of the 128th part of what they may be."""
    first, second = halves(24, 128)
    assert full(first["caches"]) >= MET
    assert second["objects"] - first["objects"] < MARGIN


@pytest.mark.slow
def test_lazy_tensors_of_frameworks():
    frameworks = installed()
    first, second = halves(100, 64, *frameworks)
    assert full(first["caches"]) >= MET | ({"terms", "what became of terms"} if frameworks else set())
    assert second["objects"] - first["objects"] < MARGIN


@pytest.mark.slow
def test_without_bounds_it_would_show():
    first, second = halves(48, 0)
    assert not full(second["caches"])
    assert second["objects"] - first["objects"] > 4 * MARGIN


@pytest.mark.slow
def test_tens_of_thousands_of_calls_that_differ():
    """2,000 rounds of up to 14 calls each, with caches as large as a user's."""
    first, second = halves(2000, 1, *installed())
    assert full(first["caches"]) >= MET
    assert second["resident"] - first["resident"] < 32 * MEGABYTE
