"""``reorder``: a structure with its nodes in an order in which what is gathered together stands together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ...frozen import dataclass
from ..build import csr_to_coo
from ..graph import Graph
from ..relational.graph import RelGraph
from .orders import METHODS
from .permutation import Permutation

S = TypeVar("S", Graph, RelGraph)


@dataclass(frozen=True, eq=False)
class Reordered(Generic[S]):
    """What ``reorder`` gives.

    Attributes:
        graph: of the same kind as before, its nodes in another order. Edges keep their numbers, and so do weights.
        sources, destinations: the orders of its columns and rows; the same object where the nodes are the same.
        source_types, destination_types: for each node type of a relational graph the order within it; None for nodes
            of one kind.
    """

    graph: S
    sources: Permutation
    destinations: Permutation
    source_types: dict[str, Permutation] | None = None
    destination_types: dict[str, Permutation] | None = None

    @property
    def nodes(self) -> Permutation:
        """The one order of all nodes. Raises ValueError where sources and destinations are different nodes."""
        if self.sources is not self.destinations:
            raise ValueError(
                f"{self.graph!r} has different nodes at both ends, and an order for each: "
                "take .sources or .destinations instead of .nodes"
            )
        return self.sources


def reorder(graph: S, method: str = "rcm", *, bipartite: bool | None = None) -> Reordered[S]:
    """The graph with its nodes in another order, which is made once, at dataset load.

        new = gsb.reorder(graph)
        y = gsb.spmm(new.graph, new.nodes.apply(x), weight)  # weights as before: edges keep their numbers
        y = new.nodes.undo(y)                                # where results are wanted in the order from before

    Columns ascend within the rows of the new ``Graph``, so that sums may differ in their last bits. Nodes at both ends
    are ordered together; where they are different nodes, or of several types, each kind by itself by its places in that
    order.

    Args:
        graph: a ``Graph`` or a ``RelGraph``, on any device.
        method: ``"rcm"``, reverse Cuthill-McKee: neighbours stand together (SciPy's; Cuthill and McKee, 1969).
            ``"degree"``: nodes of most edges come first, so that what is gathered most often stands together.
        bipartite: whether sources and destinations are different nodes; by default they are where their numbers
            differ. Types of the same name are the same nodes by the same rule.

    Raises:
        TypeError: not a ``Graph`` or ``RelGraph``.
        ValueError: no such method, or ``bipartite=False`` for different numbers of nodes.
    """
    if not isinstance(graph, (Graph, RelGraph)):
        raise TypeError(
            f"expected a gsb.Graph or gsb.RelGraph, got {type(graph).__name__}; data of PyG and DGL are reordered by "
            "the Reorder of gnn_sparse_backend.integrations.pyg.transform and .dgl.transform"
        )
    check_method(method)
    row, col, rows, cols = _ends(graph)
    same = _same_nodes(rows, cols, bipartite, graph)
    # all nodes are numbered: the destinations as they are, behind them the sources that are not among these
    spans, count = _spans(rows, 0)
    others, count = _spans({kind: size for kind, size in cols.items() if kind not in same}, count)
    of_cols = {kind: spans[kind] if kind in same else others[kind] for kind in cols}
    numbers = [torch.arange(*span, device=col.device) for span in of_cols.values()]
    order = METHODS[method](row.long(), _joined(numbers, col)[col.long()], count)

    # the same nodes have one permutation
    kinds = {span: Permutation(_within(order, *span)) for span in (*spans.values(), *others.values())}
    destinations = _side([kinds[span] for span in spans.values()], order)
    sources = (
        destinations if of_cols == spans and [*cols] == [*rows] else _side(map(kinds.get, of_cols.values()), order)
    )
    if isinstance(graph, Graph):
        by_col = Graph.from_coo(sources.places[col.long()], destinations.places[row.long()], graph.shape[::-1])
        csr = by_col.transpose()
        made = Graph.from_csr(csr.indptr, csr.indices, csr.shape, csr.edge_ids, trusted=True)
        return Reordered(made, sources, destinations)
    made = graph._with_ends(sources.places[col.long()], destinations.places[row.long()])
    if graph.source_types is None:
        return Reordered(made, sources, destinations)
    by_type = ({kind: kinds[span] for kind, span in side.items()} for side in (of_cols, spans))
    return Reordered(made, sources, destinations, *by_type)


def check_method(method: str) -> None:
    """There is such an order."""
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")


def _ends(graph: Graph | RelGraph) -> tuple[Tensor, Tensor, dict[str, int], dict[str, int]]:
    """(rows, columns) of the edges by their numbers, and how many nodes of each type there are on either side."""
    if isinstance(graph, RelGraph):
        row, col, rows, cols = graph.destination, graph.source, graph.destination_types, graph.source_types
    else:
        row, col = csr_to_coo(graph.indptr, graph.indices, graph.edge_ids)
        rows = cols = None
    return row, col, rows or {"": graph.shape[0]}, cols or {"": graph.shape[1]}


def _same_nodes(
    rows: dict[str, int], cols: dict[str, int], bipartite: bool | None, graph: Graph | RelGraph
) -> set[str]:
    """The types whose nodes stand on both sides."""
    if bipartite:
        return set()
    both = {kind: (rows[kind], cols[kind]) for kind in rows.keys() & cols.keys()}
    for kind, (destinations, sources) in both.items():
        if bipartite is not None and destinations != sources:
            raise ValueError(
                f"bipartite=False says that destinations and sources are the same nodes, but there are {destinations} "
                f"and {sources}{f' of type {kind!r}' * bool(kind)} in {graph!r}: leave bipartite out"
            )
    return {kind for kind, (destinations, sources) in both.items() if destinations == sources}


def _spans(sizes: dict[str, int], first: int) -> tuple[dict[str, tuple[int, int]], int]:
    """(first, last exclusive) of each type, one type after the other, and where the last one ends."""
    found = {}
    for kind, size in sizes.items():
        found[kind] = first, first + size
        first += size
    return found, first


def _within(order: Tensor, first: int, last: int) -> Tensor:
    """The nodes of a range, in the order of all nodes, counted from the first of the range."""
    return order[(order >= first) & (order < last)] - first


def _side(kinds: Iterable[Permutation], like: Tensor) -> Permutation:
    """Join the permutations of types that lie one after the other."""
    found, first = [], 0
    for kind in kinds:
        found.append(kind.order + first)
        first += len(kind)
    return Permutation(_joined(found, like))


def _joined(arrays: Sequence[Tensor], like: Tensor) -> Tensor:
    return torch.cat([like.new_empty(0, dtype=torch.int64), *arrays])
