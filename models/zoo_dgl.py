"""Everything in DGL that passes messages, as cases for `models.coverage`.

    zoo_dgl_graphs.py   the graphs
    zoo_dgl_conv.py     dgl.nn.pytorch.conv
"""
from __future__ import annotations

from models import zoo_dgl_conv, zoo_dgl_ops

CASES = zoo_dgl_conv.CASES + zoo_dgl_ops.CASES

EXCEPTIONS: dict[str, dict[str, str]] = {}
