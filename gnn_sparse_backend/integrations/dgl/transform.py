"""A DGL transform that precompiles the graphs of a dataset when they are loaded.

    from gnn_sparse_backend.integrations.dgl.transform import Precompile
    dataset = dgl.data.CoraGraphDataset(transform=Precompile(features=(16, 64), ops="mean", budget="10s"))

What it found is in ``reports``, one ``gsb.precompile`` report for each graph.
"""

from __future__ import annotations

from dgl.transforms import BaseTransform

from ..core.dataset_transform import Budgeted


class Precompile(Budgeted, BaseTransform):
    """Gives every graph back. Arguments as those of ``gsb.precompile``; the budget is for all graphs together."""

    def __call__(self, g):
        self.see(g)
        return g
