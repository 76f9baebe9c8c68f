"""Pruned linear layers beside cuBLAS on the dense weight, PyTorch's BSR, and its 2:4 where a weight is so."""

from __future__ import annotations

from benchmarks.gpu import commands
from benchmarks.gpu.told import Told

COMMANDS = (
    ("pruned", "--parts", "layers", "--shapes", "3072x768", "--precisions", "bfloat16", "--tokens", "4096"),
    ("pruned", "--parts", "layers", "--shapes", "768x3072", "--precisions", "float32", "--tokens", "4096"),
)
SMALL = (("pruned", "--quick", "--precisions", "float32", "--ops", "forward"),)


def run(told: Told) -> None:
    commands.run(told, SMALL if told.small else COMMANDS)
