"""Orders of the nodes of a graph in which neighbours, or nodes that are gathered often, stand together.

Each takes both ends of all edges, (E,) int64, and the number of nodes, and returns (nodes,) int64: the node at each
place. Which end is which does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor


def by_degree(first: Tensor, second: Tensor, count: int) -> Tensor:
    """Nodes with most ends of edges first; nodes with equally many as they stood. A self loop counts twice."""
    degrees = torch.bincount(first, minlength=count) + torch.bincount(second, minlength=count)
    return torch.argsort(degrees, descending=True, stable=True)


def reverse_cuthill_mckee(first: Tensor, second: Tensor, count: int) -> Tensor:
    """Breadth first from a node of low degree, neighbours by degree, reversed (Cuthill and McKee, 1969; George, 1971),
    of the undirected graph: SciPy's, on the host.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    if not count:
        return first.new_empty(0)
    ends = first.cpu().numpy(), second.cpu().numpy()
    # truth values: repeated edges do not add up
    directed = csr_array((np.ones(len(ends[0]), bool), ends), shape=(count, count))
    found = reverse_cuthill_mckee(directed + directed.T, symmetric_mode=True)
    return torch.from_numpy(found.astype(np.int64)).to(first.device)


METHODS: Mapping[str, Callable[[Tensor, Tensor, int], Tensor]] = {"degree": by_degree, "rcm": reverse_cuthill_mckee}
