"""``random_walk`` and ``neighbor_sampler``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Optional, Tuple, Union  # noqa: UP035  # TorchScript's words

import torch
from torch import Tensor

from ...deferred import later
from ...sampling.seeds import drawn_seed
from ..core.substitutes.scripted import operator, public

if TYPE_CHECKING:
    from ...sampling import draws, walks
    from ...structures import build
else:
    build, draws = later(__name__, "...structures.build"), later(__name__, "...sampling.draws")
    walks = later(__name__, "...sampling.walks")

NEARLY_ALL = 0.7
"""Share of a node's neighbours from which on a sample is the beginning of a permutation, as torch-cluster draws it."""


def _scripted(
    row: Tensor,
    col: Tensor,
    start: Tensor,
    walk_length: int,
    p: float = 1.0,
    q: float = 1.0,
    coalesced: bool = True,
    num_nodes: Optional[int] = None,  # noqa: UP045
    return_edge_indices: bool = False,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:  # noqa: UP006, UP007
    visited, passed = torch.ops.gsb.torch_cluster_walked(row, col, start, walk_length, p, q, coalesced, num_nodes)
    if return_edge_indices:
        return visited, passed
    return visited


@public("torch_cluster", _scripted)
def random_walk(
    row: Tensor,
    col: Tensor,
    start: Tensor,
    walk_length: int,
    p: float = 1,
    q: float = 1,
    coalesced: bool = True,
    num_nodes: int | None = None,
    return_edge_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return (walks, walk_length + 1) int64 nodes of random walks along edges from ``row`` to ``col``; a node without
    edges is visited again.

    Args:
        row, col: (E,) int64.
        start: (walks,) int64, the first nodes.
        p, q: a step back is as likely as 1/p, one to a neighbour of the node before as 1, any other as 1/q.
        coalesced: sort the edges; False where they ascend by row, and within a row where p and q are not 1.
        num_nodes: by default the largest plus one.
        return_edge_indices: also return (walks, walk_length) edges, by their place among the sorted ones, -1 for none.

    The seed is drawn from PyTorch's generator, and threads change nothing. Raises ValueError for p or q that are not
    above 0, a node that there is not, or edges that do not ascend.
    """
    visited, passed = walked(row, col, start, walk_length, p, q, coalesced, num_nodes)
    return (visited, passed) if return_edge_indices else visited


def walked(
    row: Tensor, col: Tensor, start: Tensor, length: int, p: float, q: float, coalesced: bool, nodes: int | None
) -> tuple[Tensor, Tensor]:
    """Both results of `random_walk`."""
    device, (row, col, start) = start.device, (x.detach().cpu().to(torch.int64) for x in (row, col, start))
    if nodes is None:
        nodes = max((int(index.max()) for index in (row, col, start) if index.numel()), default=-1) + 1
    for name, index in (("row", row), ("col", col), ("start", start)):
        if index.numel() and (int(index.min()) < 0 or int(index.max()) >= nodes):
            raise ValueError(f"random_walk: {name} must be nodes from 0 to {nodes - 1}, got others")
    if not (p > 0 and q > 0):
        raise ValueError(f"random_walk: p and q must be above 0, got {p} and {q}")
    if coalesced:
        by_column = build.coo_to_csr(col, row, nodes, in_order=False, dtype=torch.int64)
        indptr, col, _ = build.transpose_csr(*by_column, nodes)
    elif bool((row.diff() < 0).any()) or ((p, q) != (1, 1) and bool(((row * nodes + col).diff() < 0).any())):
        raise ValueError("random_walk: the edges do not ascend; give coalesced=True")
    else:
        indptr = build.compress(row, nodes)
    found = walks.walks(indptr, col.contiguous(), start.contiguous(), length, drawn_seed(), float(p), float(q))
    return found[0].to(device), found[1].to(device)


operator("torch_cluster")(walked)


@public("torch_cluster")
def neighbor_sampler(start: Tensor, rowptr: Tensor, size: float) -> Tensor:
    """Return int64 edges out of each of ``start``, drawn without replacement, by their places in a graph whose rows
    begin at ``rowptr``. size: how many of each node, or up to 1 which share of its edges, rounded up.

    Raises ValueError for a size that is not above 0, and for a node that there is not.
    """
    if not size > 0:
        raise ValueError(f"neighbor_sampler: size must be above 0, got {size}")
    return edges_drawn(start, rowptr, 0 if size <= 1 else int(size), size)


def edges_drawn(start: Tensor, rowptr: Tensor, count: int, share: float) -> Tensor:
    """Edges out of each of ``start``, ``count`` of a node, or where that is below 1 a share of its edges."""
    nodes = rowptr.shape[0] - 1
    if start.numel() and (int(start.min()) < 0 or int(start.max()) >= nodes):
        raise ValueError(f"start must be nodes from 0 to {nodes - 1}, got {start}")
    parts = []
    for node in start.tolist():
        begin, end = int(rowptr[node]), int(rowptr[node + 1])
        many = end - begin
        wanted = min(many, math.ceil(share * many) if count < 1 else count)
        if wanted < NEARLY_ALL * many:
            row = draws.Relation("", "", torch.tensor([0, many]), torch.arange(many), many)
            drawn = draws.draw(
                row, torch.zeros(1, dtype=torch.int64), 0, wanted, draws.stream_of(drawn_seed())
            ).positions
        else:
            drawn = torch.randperm(many)[:wanted]
        parts.append(drawn + begin)
    return torch.cat(parts) if parts else start.new_empty(0)
