"""What a release of PyG may lack: a test that wants it is skipped where it does."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.typing
from torch_geometric.utils import segment

from gnn_sparse_backend.integrations.pyg.releases import LIFTS

try:
    from torch_geometric import EdgeIndex
except ImportError:

    def EdgeIndex(*given, **named):
        pytest.skip("this release of PyG has no EdgeIndex")


def _has_segments() -> bool:
    try:
        segment(torch.ones(1), torch.tensor([0, 1]))
    except ImportError:
        return False
    return True


GATHER = "_lift" if LIFTS else "_index_select_safe"
"""The method of layers that gathers."""
steps = pytest.mark.skipif(LIFTS, reason="this release of PyG generates no steps of layers")
segments = pytest.mark.skipif(not _has_segments(), reason="this release of PyG has no segments without torch-scatter")
edge_times = pytest.mark.skipif(
    not hasattr(torch_geometric.typing, "WITH_EDGE_TIME_NEIGHBOR_SAMPLE"),
    reason="samplers of this release of PyG know no times of edges",
)
asks_pyg_lib = pytest.mark.skipif(
    not hasattr(torch_geometric.typing, "WITH_KNN"), reason="this release of PyG asks torch-cluster for this, or no one"
)
__all__ = ["GATHER", "EdgeIndex", "asks_pyg_lib", "edge_times", "segments", "steps"]
