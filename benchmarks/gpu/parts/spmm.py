"""SpMM: the graphs and widths that say most first, forward in two types, then gradients, means and maxima."""

from __future__ import annotations

from benchmarks.gpu import commands
from benchmarks.gpu.told import Told

FORWARD, BOTH = "weighted forward", "weighted forward+backward"
COMMANDS = (
    ("spmm", "--graphs", "arxiv", "--features", "32", "128", "--modes", FORWARD, "unweighted forward"),
    ("spmm", "--graphs", "arxiv", "--features", "128", "--modes", FORWARD, "--dtype", "bfloat16"),
    ("spmm", "--graphs", "ppi", "community", "--features", "64", "--modes", FORWARD, BOTH),
    ("spmm", "--graphs", "pubmed", "--features", "32", "--modes", FORWARD, BOTH),
    ("spmm", "--graphs", "arxiv", "--features", "1", "4", "256", "--modes", "unweighted forward"),
    ("spmm", "--graphs", "power-law", "--features", "64", "256", "--modes", FORWARD, BOTH),
    ("spmm", "--graphs", "arxiv", "community", "--features", "64", "--modes", "mean forward", "max forward"),
    ("spmm", "--graphs", "wordnet", "debian", "cora", "--features", "64", "--modes", FORWARD),
    ("spmm", "--graphs", "power-law", "--features", "128", "--modes", FORWARD, "--dtype", "float16"),
)
SMALL = (("spmm", "--graphs", "arxiv", "--features", "8", "--modes", FORWARD, BOTH),)


def run(told: Told) -> None:
    commands.run(told, SMALL if told.small else COMMANDS)
