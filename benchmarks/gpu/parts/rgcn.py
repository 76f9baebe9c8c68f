"""Relational networks of two layers beside PyG's RGCNConv and FastRGCNConv, and PyTorch's own operators."""

from __future__ import annotations

from benchmarks.gpu import commands
from benchmarks.gpu.told import Told

NAMES = ("--contenders", "pyg", "pyg-fast", "torch", "pyg+gsb", "pyg-fast+gsb")
COMMANDS = (
    ("rgcn", "--graphs", "mutag", "--features", "32"),
    ("rgcn", "--graphs", "bgs", "--features", "64", "--tf32"),
    ("rgcn", "--graphs", "bgs", "--features", "64", "--dtype", "bfloat16"),
    ("rgcn", "--graphs", "aifb", "--features", "16"),
    ("rgcn", "--graphs", "am", "--features", "32"),
)
SMALL = (("rgcn", "--graphs", "aifb", "--features", "16"),)


def run(told: Told) -> None:
    commands.run(told, [(*command, *NAMES) for command in (SMALL if told.small else COMMANDS)])
