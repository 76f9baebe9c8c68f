"""Predicted and measured times of all plans of sums, and the regret of the plan that is taken."""

from __future__ import annotations

from benchmarks.gpu import commands
from benchmarks.gpu.told import Told

MODULE = "planner.__main__"
COMMANDS = (
    (MODULE, "--graphs", "arxiv", "pubmed", "ppi", "--widths", "4", "32", "128"),
    (MODULE, "--graphs", "community", "power-law", "cora", "--widths", "4", "32", "128"),
    (MODULE, "--graphs", "arxiv", "pubmed", "ppi", "community", "power-law", "cora", "--widths", "1", "64"),
)
"""60 cells: of two operators each."""
SMALL = ((MODULE, "--graphs", "arxiv", "--widths", "4"),)


def run(told: Told) -> None:
    commands.run(told, SMALL if told.small else COMMANDS)
