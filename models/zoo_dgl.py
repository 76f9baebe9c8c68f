"""Every convolution that DGL ships, built small."""
from __future__ import annotations

import dgl
import dgl.nn.pytorch as dglnn
import torch
from torch import nn

from models.coverage import Bound, Case, features

NODES, EDGES = 12, 40


def square(loops: bool = True) -> dgl.DGLGraph:
    """Edges drawn at random, some of them twice, with a self loop at every node or isolated nodes."""
    generator = torch.Generator().manual_seed(5)
    source, target = torch.randint(0, NODES - 2, (2, EDGES - 4), generator=generator)
    source, target = torch.cat([source, source[:4]]), torch.cat([target, target[:4]])
    graph = dgl.graph((source, target), num_nodes=NODES)
    return dgl.add_self_loop(graph) if loops else graph


CASES = [
    Case("GraphConv", lambda: Bound(dglnn.GraphConv(6, 4), x=features(NODES, 6)), lambda m: m.layer(square(), m.x)),
]
EXCEPTIONS = {}
