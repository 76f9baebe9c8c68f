"""``nn.broadcast``: a row for each batch, given to all sites of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from ...ops.message.api.aggregate import edge_map
from ...ops.message.checks import check_choice
from ...structures.coordinates import Coordinates
from ...structures.graph import Graph
from ...structures.segment_rows import rows_graph
from .maps import kept
from .tensor import SparseTensor, check_sparse
from .traced import rows_of_batches

HOW = ("add", "mul", "cat")


def broadcast(x: SparseTensor, pooled: Tensor | SparseTensor, how: str = "add") -> SparseTensor:
    """What was pooled of each batch, at every site of it.

        attended = nn.broadcast(x, torch.sigmoid(nn.GlobalAvgPool()(x)), "mul")

    Args:
        pooled: (batches of ``x``, C'), of the type of ``x``; or a SparseTensor of one site for each batch, in order,
            as global pooling with ``sparse=True`` returns it.
        how: ``"add"`` or ``"mul"``: features and rows are added or multiplied; ``"cat"``: the rows are further
            channels, behind those of ``x``.

    Returns:
        A tensor at the sites of ``x``. Gradients of any order flow to both.

    Raises:
        TypeError, ValueError: an argument is not as above.
    """
    check_sparse("broadcast", x)
    check_choice("broadcast", "how", how, HOW)
    rows = pooled.features if isinstance(pooled, SparseTensor) else pooled
    compiling = torch.compiler.is_compiling()
    if not isinstance(rows, Tensor) or rows.dim() != 2 or not (compiling or rows.shape[0] == x.batch_size):
        found = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise ValueError(f"broadcast: pooled must have a row for each of {x.batch_size} batches, got {found}")
    if compiling:  # the row of a batch that has none is refused when the program runs
        at_sites = rows_of_batches(rows, x.sites)
        if how == "cat":
            return x.with_features(torch.cat([x.features, at_sites], 1))
        return x.with_features(x.features + at_sites if how == "add" else x.features * at_sites)
    graph = of_batches(x.sites)
    if how == "cat":
        return x.with_features(torch.cat([x.features, edge_map(graph, "x0", [("v", rows)])], 1))
    return x.with_features(edge_map(graph, f"{how}(x0, x1)", [("e", x.features), ("v", rows)]))


@kept
def of_batches(sites: Coordinates) -> Graph:
    """Batches as destinations, and their sites as edges."""
    return rows_graph(sites.of_batches)
