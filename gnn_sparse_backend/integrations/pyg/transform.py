"""PyG transforms for the graphs of a dataset when they are loaded.

from gnn_sparse_backend.integrations.pyg.transform import Precompile, Reorder
dataset = Planetoid("data", "Cora", pre_transform=Reorder("rcm"), transform=Precompile(features=64, ops="mean"))
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import lexsort, select

from ...structures.graph import Graph
from ...structures.relational.graph import RelGraph
from ...structures.reordering.permutation import Permutation
from ...structures.reordering.reorder import reorder
from ..core.dataset_transform import Budgeted, Reordering


class Precompile(Budgeted, BaseTransform):
    """Gives all data back. Arguments as those of ``gsb.precompile``; the budget is for all graphs together.

    Its ``reports`` has what it found, a report of ``gsb.precompile`` for each graph.
    """

    def forward(self, data):
        self.see(data)
        return data


class Reorder(Reordering, BaseTransform):
    """A ``Data`` or ``HeteroData`` with its nodes in the order of ``gsb.reorder``, and its edges by destination.

    What has an entry for each node or edge goes along (features, labels, masks), and node numbers are those of the new
    order: ``edge_index``, ``face``, and whatever has ``index`` in its name, PyG's own rule for batches. ``n_id`` and
    ``e_id`` are the numbers from before; where the data have them already, they go along.

    Args:
        method: as of ``gsb.reorder``.

    Raises TypeError for other data, ValueError for those that have ``adj_t`` or no ``edge_index``.
    """

    def forward(self, data):
        if isinstance(data, Batch) or not isinstance(data, (Data, HeteroData)):
            raise TypeError(f"expected a Data or HeteroData, got {type(data).__name__}; reorder graphs before batching")
        for store in data.edge_stores:
            if "adj_t" in store or "edge_index" not in store:
                raise ValueError(
                    f"Reorder goes by edge_index alone, got {store}: put it before ToSparseTensor in the transforms"
                )
        if isinstance(data, HeteroData):
            kinds = reorder(RelGraph.from_pyg(data), self.method).source_types
            for (source, _, destination), store in data.edge_items():
                _renumber(store, ("index",), kinds[source], kinds[destination])
                _sort(data, store, _of_edges(store), "e_id", _by_destination(store))
            for kind, store in data.node_items():
                _sort(data, store, filter(store.is_node_attr, store.keys()), "n_id", kinds[kind].order)
            return data
        graph = Graph.from_edge_index(data.edge_index, (data.num_nodes, data.num_nodes))
        nodes, (store,) = reorder(graph, self.method).nodes, data.stores
        of_nodes = [key for key in store.keys() if store.is_node_attr(key) and key != "e_id"]
        of_edges = _of_edges(store)
        _renumber(store, ("index", "face"), nodes, nodes)
        _sort(data, store, of_edges, "e_id", _by_destination(store))
        _sort(data, store, of_nodes, "n_id", nodes.order)
        return data


def _of_edges(store) -> list[str]:
    """What has an entry for each edge, and is not taken for data of nodes, which PyG is to be asked for first."""
    return [key for key in store.keys() if not store.is_node_attr(key) and store.is_edge_attr(key)]


def _renumber(store, names: tuple[str, ...], sources: Permutation, destinations: Permutation) -> None:
    """What has node numbers by its name: of sources in its first row and of destinations in the second, where these
    differ.
    """
    for key, value in list(store.items()):
        if isinstance(value, Tensor) and "batch" not in key and any(name in key for name in names):
            if sources is destinations:
                store[key] = sources.renumber(value)
            else:
                store[key] = torch.stack([sources.renumber(value[0]), destinations.renumber(value[1])])


def _by_destination(store) -> Tensor:
    """The order of edges by destination, then by source."""
    return lexsort([*store.edge_index])


def _sort(data, store, belonging: Iterable[str], ids: str, order: Tensor) -> None:
    """Put what belongs to nodes or edges in an order, with their numbers from before under ``ids``."""
    if ids not in store:
        store[ids] = torch.arange(len(order), device=order.device)
    for key in {*belonging, ids}:
        value = store[key]
        dim = data.__cat_dim__(key, value, store)
        store[key] = value.take(order.cpu(), dim) if isinstance(value, np.ndarray) else select(value, order, dim)
