"""A PyG transform that precompiles the graphs of a dataset when they are loaded.

    from gnn_sparse_backend.integrations.pyg.transform import Precompile
    dataset = Planetoid("data", "Cora", transform=Precompile(features=(16, 64), ops="mean", budget="10s"))

What it found is in ``reports``, one ``gsb.precompile`` report for each graph.
"""

from __future__ import annotations

from torch_geometric.transforms import BaseTransform

from ..core.dataset_transform import Budgeted


class Precompile(Budgeted, BaseTransform):
    """Gives all data back. Arguments as those of ``gsb.precompile``; the budget is for all graphs together."""

    def forward(self, data):
        self.see(data)
        return data
