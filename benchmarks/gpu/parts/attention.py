"""Attention: layers of PyG on graphs with the backend and without, and masks beside FlexAttention and SDPA."""

from __future__ import annotations

from benchmarks.gpu import commands
from benchmarks.gpu.told import Told

COMMANDS = (
    ("attention_layers", "--frameworks", "pyg", "--graphs", "power-law", "--heads", "4"),
    ("sparse_attention", "--masks", "band", "butterfly", "causal", "--precisions", "bfloat16", "--ops", "forward"),
    ("attention_layers", "--frameworks", "pyg", "--graphs", "arxiv", "--heads", "8", "--dtype", "float16"),
    ("sparse_attention", "--masks", "band", "causal", "--precisions", "bfloat16", "--ops", "step"),
    ("sparse_attention", "--masks", "band", "--precisions", "float32", "--ops", "forward", "step"),
)
SMALL = (
    ("attention_layers", "--frameworks", "pyg", "--graphs", "arxiv", "--layers", "gat", "--heads", "2", "--width", "8"),
    ("sparse_attention", "--quick", "--masks", "band", "--precisions", "float32", "--ops", "forward"),
)


def run(told: Told) -> None:
    commands.run(told, SMALL if told.small else COMMANDS)
