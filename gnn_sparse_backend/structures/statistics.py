"""What a planner wants to know about a structure."""

from __future__ import annotations

import torch
from torch import Tensor

from ..frozen import dataclass


@dataclass(frozen=True)
class GraphStatistics:
    """Size and in-degree distribution of a graph (rows are destinations).

    ``degree_quantiles`` are the in-degrees below or at which 50, 90 and 99 per cent of the rows lie.
    ``gini`` is 0 if all rows have the same degree and tends to 1 as all edges gather in one row.
    """

    num_rows: int
    num_cols: int
    num_edges: int
    empty_rows: int
    min_degree: int
    max_degree: int
    mean_degree: float
    std_degree: float
    degree_quantiles: tuple[int, int, int]
    gini: float

    @property
    def density(self) -> float:
        """Edges over the number of (row, column) pairs; duplicates count each time."""
        pairs = self.num_rows * self.num_cols
        return self.num_edges / pairs if pairs else 0.0


def measure(indptr: Tensor, num_cols: int) -> GraphStatistics:
    """Statistics of the rows of a CSR structure, in time O(rows log rows)."""
    degrees = indptr.diff().sort().values
    num_rows, num_edges = degrees.numel(), int(indptr[-1])
    if num_rows == 0:
        return GraphStatistics(0, num_cols, 0, 0, 0, 0, 0.0, 0.0, (0, 0, 0), 0.0)
    exact = degrees.double()
    positions = [-(-num_rows * percent // 100) - 1 for percent in (50, 90, 99)]
    ranks = torch.arange(1, num_rows + 1, dtype=torch.float64, device=degrees.device)
    gini = float((2 * ranks - num_rows - 1) @ exact) / (num_rows * num_edges) if num_edges else 0.0
    return GraphStatistics(
        num_rows=num_rows,
        num_cols=num_cols,
        num_edges=num_edges,
        empty_rows=int((degrees == 0).sum()),
        min_degree=int(degrees[0]),
        max_degree=int(degrees[-1]),
        mean_degree=num_edges / num_rows,
        std_degree=float(exact.std(correction=0)),
        degree_quantiles=tuple(degrees[positions].tolist()),
        gini=gini,
    )
