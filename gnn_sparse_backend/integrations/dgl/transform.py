"""DGL transforms for the graphs of a dataset when they are loaded.

from gnn_sparse_backend.integrations.dgl.transform import Precompile, Reorder
dataset = dgl.data.CoraGraphDataset(transform=dgl.Compose([Reorder("rcm"), Precompile(features=64, ops="mean")]))
"""

from __future__ import annotations

import dgl
import torch
from dgl.transforms import BaseTransform

from ...structures.relational.graph import RelGraph
from ...structures.reordering.reorder import reorder
from ..core.dataset_transform import Budgeted, Reordering


class Precompile(Budgeted, BaseTransform):
    """Gives every graph back. Arguments as those of ``gsb.precompile``; the budget is for all graphs together.

    Its ``reports`` has what it found, a report of ``gsb.precompile`` for each graph.
    """

    def __call__(self, g):
        self.see(g)
        return g


class Reorder(Reordering, BaseTransform):
    """A graph, of one or more types, with its nodes in the order of ``gsb.reorder``, and its edges by destination.

    The data of nodes and edges go along. ``ndata[dgl.NID]`` and ``edata[dgl.EID]`` are the numbers from before; where
    the graph has them already, they go along. It may have the formats that it had before.

    Args:
        method: as of ``gsb.reorder``.

    Raises TypeError for blocks and batches.
    """

    def __call__(self, g):
        if g.is_block or g.batch_size != 1:
            kind = "a block" if g.is_block else f"a batch of {g.batch_size} graphs"
            raise TypeError(f"expected one whole graph, got {kind}; reorder graphs before sampling or batching")
        formats = [each for some in g.formats().values() for each in some]
        g = g.formats(["coo", "csr", "csc"])  # a list of edges, which not every format gives
        new = reorder(RelGraph.from_dgl(g), self.method)
        g = g.local_var()
        for kind in g.ntypes:
            g.nodes[kind].data.setdefault(dgl.NID, g.nodes(kind))
        for kind in g.canonical_etypes:
            g.edges[kind].data.setdefault(dgl.EID, torch.arange(g.num_edges(kind)).to(g.nodes(kind[0])))
        orders = {kind: nodes.order.to(g.idtype) for kind, nodes in new.source_types.items()}
        g = dgl.node_subgraph(g, orders, store_ids=False)
        by_destination = {}
        for kind in g.canonical_etypes:
            source, destination = g.edges(etype=kind, order="eid")
            by_source = torch.argsort(source, stable=True)
            order = by_source[torch.argsort(destination[by_source], stable=True)]
            by_destination[kind] = order.to(g.idtype)
        return dgl.edge_subgraph(g, by_destination, relabel_nodes=False, store_ids=False).formats(formats)
