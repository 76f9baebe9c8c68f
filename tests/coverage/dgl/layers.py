"""Everything in DGL that passes messages, as cases for `tests.coverage.report`.

The cases are in these files:

    zoo_dgl_graphs.py   the graphs
    zoo_dgl_conv.py     dgl.nn.pytorch.conv
    zoo_dgl_nn.py       readouts, wrappers, typed products, transforms
    zoo_dgl_hetero.py   several types of nodes and edges at once
    zoo_dgl_explain.py  explainers
    zoo_dgl_ops.py      dgl.ops, dgl.mpops, readout functions, update_all
"""

from __future__ import annotations

from dataclasses import replace

from tests.coverage.dgl import conv as zoo_dgl_conv
from tests.coverage.dgl import explain as zoo_dgl_explain
from tests.coverage.dgl import hetero as zoo_dgl_hetero
from tests.coverage.dgl import nn as zoo_dgl_nn
from tests.coverage.dgl import ops as zoo_dgl_ops
from tests.coverage.report import Case


def thinned(cases: list[Case]) -> list[Case]:
    """All types for the first case of a layer; its variants, whose names go on after a comma, in one type alone."""
    first: dict[str, Case] = {}
    return [
        each if first.setdefault(each.name.split(",")[0], each) is each else replace(each, dtypes=each.dtypes[:1])
        for each in cases
    ]


CASES = (
    thinned(zoo_dgl_conv.CASES + zoo_dgl_nn.CASES + zoo_dgl_hetero.CASES + zoo_dgl_explain.CASES) + zoo_dgl_ops.CASES
)

# The pages of docs/layers/, with the cases of each.
PAGES = {
    "convolutions": zoo_dgl_conv.CASES,
    "readouts": zoo_dgl_nn.CASES,
    "heterogeneous": zoo_dgl_hetero.CASES,
    "explainers": zoo_dgl_explain.CASES,
    "functions": zoo_dgl_ops.CASES,
}

# Calls that cannot run on our kernels, and why: {case, or "*" for all: {"operator: reason": why}}.
EXCEPTIONS: dict[str, dict[str, str]] = {}
