"""Layers of MinkUNet on scans, beside gather, product by cuBLAS and scatter, and dense convolution."""

from __future__ import annotations

from benchmarks.gpu import commands
from benchmarks.gpu.told import Told

COMMANDS = (
    ("sparse_conv", "--clouds", "small", "--voxels", "0.2", "--modes", "forward", "--dtype", "float16"),
    ("sparse_conv", "--clouds", "street-1", "--voxels", "0.1", "--modes", "forward", "step", "--dtype", "float16"),
    ("sparse_conv", "--clouds", "street-1", "--voxels", "0.1", "--modes", "forward", "step"),
)
SMALL = (("sparse_conv", "--clouds", "small", "--voxels", "4", "--modes", "forward"),)


def run(told: Told) -> None:
    commands.run(told, SMALL if told.small else COMMANDS)
