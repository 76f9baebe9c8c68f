"""Samples and subgraphs of a sparse matrix as a graph from columns to rows, walks, and its nodes in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...deferred import later
from ...formats.counts import extent_of
from ...formats.structure import positions_of_rows
from ...sampling.seeds import drawn_seed
from ..core.substitutes.scripted import counted
from .selection import permute
from .storage import SparseStorage
from .utils import ind2ptr, ptr2ind

if TYPE_CHECKING:
    from ...sampling import draws, layers, numbers, walks
else:
    draws, layers, numbers, walks = (
        later(__name__, f"...sampling.{each}") for each in ("draws", "layers", "numbers", "walks")
    )

_counted = counted("torch_sparse")


@_counted
def sample(src: Any, num_neighbors: int, subset: Tensor | None = None) -> Tensor:
    """(rows, num_neighbors) columns of entries of each row, or of those in ``subset``, drawn with replacement. Raises
    ValueError where a row has none.
    """
    rowptr, col, _ = src.csr()
    count, begins = src.storage.rowcount(), rowptr[:-1]
    if subset is not None:
        count, begins = count[subset], begins[subset]
    rows = count > 0
    drawn = (torch.rand(count.numel(), num_neighbors, device=col.device, dtype=torch.float64) * count[:, None]).long()
    places = torch.minimum(drawn, (count - 1).clamp(min=0)[:, None]) + begins[:, None]
    if not bool(rows.all()):  # as torch-sparse has it, what stands behind the row
        places = places.clamp(max=max(col.numel() - 1, 0))
    return col[places]


@_counted
def sample_adj(src: Any, subset: Tensor, num_neighbors: int, replace: bool = False) -> tuple[Any, Tensor]:
    """(a matrix of the rows of ``subset``, nodes): at most ``num_neighbors`` entries of each row, all where that is
    below 0, whose columns are numbered anew: those of ``subset`` first, then others as they are met.
    """
    rowptr, col, n_id, e_id = adjacent(*src.csr()[:2], subset, num_neighbors, replace)
    value = src.storage.value()
    value = None if value is None else value[e_id]
    made = SparseStorage(None, rowptr, col, value, (subset.numel(), n_id.numel()), is_sorted=True, trust_data=True)
    return src.from_storage(made), n_id


def adjacent(
    rowptr: Tensor, col: Tensor, idx: Tensor, many: int, replace: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(pointers, columns, nodes, entries) of a sample of rows."""
    nodes = max(rowptr.numel() - 1, extent_of(col))
    relation = draws.Relation("", "", rowptr, col, nodes)
    known = numbers.Numbers(nodes, False, idx.long())
    drawn = draws.draw(relation, idx.long(), 0, many, draws.stream_of(drawn_seed()), replace=replace)
    found = known.number(idx.long(), nodes, drawn.pointers, drawn.neighbours)
    order = (drawn.rows * max(known.size, 1) + found).argsort(stable=True)
    return drawn.pointers, found[order], known.keys.clone(), drawn.positions[order]


@_counted
def saint_subgraph(src: Any, node_idx: Tensor) -> tuple[Any, Tensor]:
    """(the matrix of rows and columns ``node_idx`` (n,), the entries that it has)."""
    row, col, value = src.coo()
    row, col, entries = induced(node_idx, src.storage.rowptr(), col)
    value = None if value is None else value[entries]
    made = SparseStorage(row, None, col, value, (node_idx.numel(),) * 2)
    return src.from_storage(made), entries


def induced(nodes: Tensor, rowptr: Tensor, col: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, columns, entries) between nodes, by their places among these."""
    place = torch.full((rowptr.numel() - 1,), -1, device=nodes.device)
    place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    begins, entries = positions_of_rows(rowptr, nodes)
    row = ptr2ind(begins, entries.numel())
    other = place[col[entries]]
    kept = other >= 0
    return row[kept], other[kept], entries[kept]


@_counted
def random_walk(src: Any, start: Tensor, walk_length: int) -> Tensor:
    """(walks, walk_length + 1) nodes of walks from ``start``, each entry of a row as likely as another; a row without
    entries is visited again.
    """
    rowptr, col, _ = src.csr()
    return walks.walks(rowptr.cpu(), col.cpu(), start.cpu().contiguous(), walk_length, drawn_seed())[0].to(start.device)


@_counted
def partition(
    src: Any,
    num_parts: int,
    recursive: bool = False,
    weighted: bool = False,
    node_weight: Tensor | None = None,
    balance_edge: bool = False,
) -> tuple[Any, Tensor, Tensor]:
    """(the matrix with the nodes of each part together, where each part begins, the order of the nodes), in parts of
    about one size with few entries between them, by METIS.

    Args:
        recursive: halve again and again.
        weighted: count entries by their values.
        node_weight: (rows,) what nodes count; balance_edge: by their entries.

    Raises ValueError for less than one part, and ImportError without pymetis.
    """
    if num_parts < 1:
        raise ValueError(f"partition wants at least one part, got {num_parts}")
    if balance_edge and node_weight is not None:
        raise ValueError("Cannot set 'balance_edge' and 'node_weight' at the same time in 'torch_sparse.partition'")
    rows = src.sparse_size(0)
    if num_parts == 1:
        whole = torch.tensor([0, rows], device=src.device())
        return src, whole, torch.arange(rows, device=src.device())
    rowptr, col, value = src.csr()
    weights = None if value is None or not weighted else value.detach().view(-1)
    if balance_edge:
        node_weight = torch.bincount(col, minlength=rows)
    cluster = parts_of(rowptr, col, weights, node_weight, num_parts, recursive).to(src.device())
    cluster, perm = cluster.sort(stable=True)
    return permute.__wrapped__(src, perm), ind2ptr(cluster, num_parts), perm


def parts_of(
    rowptr: Tensor,
    col: Tensor,
    weight: Tensor | None,
    node_weight: Tensor | None,
    parts: int,
    recursive: bool,
) -> Tensor:
    """(rows,) int64 the part of each node. Raises ImportError without pymetis."""
    try:
        import pymetis
    except ImportError:
        raise ImportError('METIS is wanted: pip install "gnn-sparse-backend[distributed]", or pymetis') from None
    given: dict[str, Any] = {}
    for name, each in (("eweights", weight), ("vweights", node_weight)):
        if each is not None:
            given[name] = _whole(each.detach().cpu().view(-1)).tolist()
    adjacency = pymetis.CSRAdjacency(*(x.cpu().numpy().astype(pymetis.zero_copy_dtype()) for x in (rowptr, col)))
    found = pymetis.part_graph(parts, adjacency, recursive=recursive, **given)[1]
    return torch.from_numpy(np.asarray(found, np.int64))


def _whole(weights: Tensor) -> Tensor:
    """Weights as integers from 1 on, in the same proportions to a thousandth of their range."""
    if not weights.is_floating_point():
        return weights.clamp(min=1)
    span = float(weights.max() - weights.min()) if weights.numel() else 0.0
    return ((weights - weights.min()) / span * 1000).round().long() + 1 if span else torch.ones_like(weights).long()


@_counted
def reverse_cuthill_mckee(src: Any, is_symmetric: bool | None = None) -> tuple[Any, Tensor]:
    """(the matrix with rows and columns in an order that brings entries near the diagonal, that order)."""
    from scipy.sparse import csgraph

    symmetric = src.is_symmetric() if is_symmetric is None else is_symmetric
    src = src if symmetric else src.to_symmetric()
    order = csgraph.reverse_cuthill_mckee(src.to_scipy(layout="csr"), symmetric_mode=True)
    perm = torch.from_numpy(order.astype(np.int64)).to(src.device())
    return permute.__wrapped__(src, perm), perm


def neighbours(
    colptr: Tensor, row: Tensor, seeds: Tensor, fanouts: list[int], replace: bool, directed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(nodes, rows, columns, entries) of a sample of in-neighbours, layer by layer."""
    nodes = colptr.numel() - 1
    found = layers.sample_layers(
        [draws.Relation("", "", colptr, row, nodes)],
        {"": nodes},
        {"": seeds},
        [fanouts],
        drawn_seed(),
        replace=replace,
        induced=not directed,
    )
    (edges,) = found.edges
    return found.nodes[""], edges.sources, edges.destinations, edges.positions
