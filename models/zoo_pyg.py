"""Everything in PyTorch Geometric that passes messages or reduces by index, as cases for `models.coverage`.

    zoo_pyg_graphs.py     the graphs, and stand-ins for compiled packages
    zoo_pyg_conv.py       torch_geometric.nn.conv: sums and comparisons of neighbours
    zoo_pyg_attention.py  torch_geometric.nn.conv: attention, relations, points
    zoo_pyg_hetero.py     several types of nodes and edges at once
    zoo_pyg_reduce.py     torch_geometric.nn.aggr, and functions of torch_geometric.utils
    zoo_pyg_pool.py       pooling, normalisation, transforms
    zoo_pyg_models.py     torch_geometric.nn.models
    zoo_pyg_own.py        users' own layers
    zoo_pyg_modes.py      TorchScript, compilers, autocast, explainers
"""
from __future__ import annotations

from models import (zoo_pyg_attention, zoo_pyg_conv, zoo_pyg_hetero, zoo_pyg_models, zoo_pyg_modes, zoo_pyg_own,
                    zoo_pyg_pool, zoo_pyg_reduce)

CASES = (zoo_pyg_conv.CASES + zoo_pyg_attention.CASES + zoo_pyg_hetero.CASES + zoo_pyg_reduce.CASES
         + zoo_pyg_pool.CASES + zoo_pyg_models.CASES + zoo_pyg_own.CASES + zoo_pyg_modes.CASES)

# Calls that cannot run on our kernels, and why: {case, or "*" for all: {"operator: reason": why}}.
EXCEPTIONS: dict[str, dict[str, str]] = {}
