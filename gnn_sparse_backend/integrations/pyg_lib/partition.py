"""``pyg_lib.partition``: nodes in parts."""

from __future__ import annotations

from torch import Tensor

from ..core.substitutes.scripted import counted
from ..torch_sparse.sampling import parts_of


@counted("pyg_lib")
def metis(
    rowptr: Tensor,
    col: Tensor,
    num_partitions: int,
    node_weight: Tensor | None = None,
    edge_weight: Tensor | None = None,
    recursive: bool = False,
) -> Tensor:
    """Return (N,) int64 the part of each node, in parts of about one size with few edges between them. Raises
    ImportError without pymetis.
    """
    return parts_of(rowptr, col, edge_weight, node_weight, num_partitions, recursive).to(rowptr.device)


__all__ = ["metis"]
