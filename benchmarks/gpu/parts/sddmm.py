"""SDDMM: dot products at the edges, forward and with gradients."""

from __future__ import annotations

from benchmarks.gpu import commands
from benchmarks.gpu.told import Told

COMMANDS = (
    ("sddmm", "--graphs", "arxiv", "--features", "32", "128", "--modes", "dot forward"),
    ("sddmm", "--graphs", "ppi", "power-law", "--features", "64", "--modes", "dot forward", "dot forward+backward"),
    ("sddmm", "--graphs", "arxiv", "--features", "128", "--modes", "dot forward", "--dtype", "bfloat16"),
)
SMALL = (("sddmm", "--graphs", "arxiv", "--features", "16", "--modes", "dot forward"),)


def run(told: Told) -> None:
    commands.run(told, SMALL if told.small else COMMANDS)
