"""``torch.classes.pyg``: places of keys, and samplers that keep their graph. TorchScript knows none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...deferred import later

if TYPE_CHECKING:
    from ...sampling import balanced, seeds
    from ..torch_sparse import relations
else:
    balanced, seeds = (later(__name__, f"...sampling.{each}") for each in ("balanced", "seeds"))
    relations = later(__name__, "..torch_sparse.relations")

_NUMBERS = {torch.int16: 2, torch.int32: 3, torch.int64: 4}
"""Types of keys, and their numbers in C++."""


class CPUHashMap:
    """Places of keys (n,), which are different integers: int16, int32 or int64.

    num_submaps: is not looked at. Raises ValueError for keys that are not of such a vector, or come twice.
    """

    def __init__(self, key: Tensor, num_submaps: int = 0) -> None:
        if key.dtype not in _NUMBERS or key.dim() != 1:
            raise ValueError(f"keys must be a vector of int16, int32 or int64, got {key.dtype} of {tuple(key.shape)}")
        self._key = key.clone()
        self._sorted, self._order = key.sort()
        again = (self._sorted.diff() == 0).nonzero()
        if again.numel():
            raise ValueError(f"keys must be different, but {int(self._sorted[again[0]])} comes twice")

    def get(self, query: Tensor) -> Tensor:
        """Return (m,) int64 the place of each key of ``query`` (m,), -1 of those that there are not."""
        if query.dtype != self._key.dtype:
            raise ValueError(f"keys are {self._key.dtype}, but {query.dtype} are looked for")
        if not self._key.numel():
            return torch.full(query.shape, -1, device=query.device)
        place = torch.searchsorted(self._sorted, query).clamp(max=self._key.numel() - 1)
        return torch.where(self._sorted[place] == query, self._order[place], -1)

    def keys(self) -> Tensor:
        """Return (n,) the keys in the order of their places."""
        return self._key

    def size(self) -> int:
        """Return how many keys there are."""
        return self._key.numel()

    def dtype(self) -> int:
        """Return the number that the type of the keys has in C++."""
        return _NUMBERS[self._key.dtype]

    def device(self) -> torch.device:
        """Return the device of the keys."""
        return self._key.device


class CUDAHashMap(CPUHashMap):
    """Keys on a GPU. load_factor: is not looked at."""

    def __init__(self, key: Tensor, load_factor: float = 0.5) -> None:
        super().__init__(key)


class HeteroNeighborSampler:
    """Samples of a graph of several types of nodes and edges, as `sampler.hetero_neighbor_sample` takes it with types
    of edges joined by ``__``. What some nodes of a tree have too few neighbours for, others are asked for
    (`sampling.balanced`).
    """

    def __init__(
        self,
        node_types: Sequence[str],
        edge_types: Sequence[tuple[str, str, str]],
        rowptr: Mapping[str, Tensor],
        col: Mapping[str, Tensor],
        edge_weight: Mapping[str, Tensor] | None = None,
        node_time: Mapping[str, Tensor] | None = None,
        edge_time: Mapping[str, Tensor] | None = None,
    ) -> None:
        if edge_weight is not None:
            raise ValueError("HeteroNeighborSampler draws no edges by weights; hetero_neighbor_sample does")
        self._kinds, self._edges = list(node_types), [tuple(each) for each in edge_types]
        self._given = rowptr, col, node_time or {}, edge_time or {}

    def sample(
        self,
        num_neighbors: Mapping[str, Sequence[int]],
        seed_node: Mapping[str, Tensor],
        seed_time: Mapping[str, Tensor] | None = None,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        return_edge_id: bool = True,
    ) -> tuple[Any, ...]:
        """Return (rows, columns, nodes, edges, trees, nodes by layer, edges by layer): dicts of tensors, and of lists
        that begin with the seeds, which have no edges.
        """
        graph = relations.of_types(self._kinds, self._edges, *self._given, {}, seed_node, False)
        layers = balanced.sample_balanced(
            graph.relations,
            graph.sizes,
            seed_node,
            [num_neighbors["__".join(each)] for each in self._edges],
            seeds.drawn_seed(),
            disjoint=disjoint,
            latest=graph.latest(seed_node, seed_time, disjoint),
            last=relations.is_last(temporal_strategy),
        )
        found = {"__".join(kind): each for kind, each in zip(self._edges, layers.edges)}
        trees = {kind: torch.zeros_like(nodes) for kind, nodes in layers.nodes.items()}
        return (
            {kind: each.destinations for kind, each in found.items()},
            {kind: each.sources for kind, each in found.items()},
            layers.nodes,
            {kind: each.positions for kind, each in found.items()} if return_edge_id else None,
            trees if layers.trees is None else layers.trees,
            layers.hops,
            {kind: [0, *each.hops] for kind, each in found.items()},
        )


class NeighborSampler:
    """Samples of a graph of one type, as those of `HeteroNeighborSampler`."""

    def __init__(
        self,
        rowptr: Tensor,
        col: Tensor,
        edge_weight: Tensor | None = None,
        node_time: Tensor | None = None,
        edge_time: Tensor | None = None,
    ) -> None:
        by_edge = [None if each is None else {"____": each} for each in (edge_weight, edge_time)]
        by_node = None if node_time is None else {"": node_time}
        self._all = HeteroNeighborSampler(
            [""], [("", "", "")], {"____": rowptr}, {"____": col}, by_edge[0], by_node, by_edge[1]
        )

    def sample(
        self,
        num_neighbors: Sequence[int],
        seed_node: Tensor,
        seed_time: Tensor | None = None,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        return_edge_id: bool = True,
    ) -> tuple[Any, ...]:
        """Return (rows, columns, nodes, edges, trees, nodes by layer, edges by layer)."""
        times = None if seed_time is None else {"": seed_time}
        found = self._all.sample(
            {"____": num_neighbors}, {"": seed_node}, times, disjoint, temporal_strategy, return_edge_id
        )
        return tuple(None if each is None else next(iter(each.values())) for each in found)


def _is_known(name: str) -> bool:
    try:
        return getattr(torch.classes.pyg, name) is not None
    except RuntimeError:  # which PyTorch raises for a class that nobody has registered
        return False


def register() -> None:
    """Have ``torch.classes.pyg`` give our classes, unless the library whose names these are has registered some."""
    for each in (
        CPUHashMap,
        NeighborSampler,
        HeteroNeighborSampler,
        *([CUDAHashMap] if torch.cuda.is_available() else []),
    ):
        if not _is_known(each.__name__):
            setattr(torch.classes.pyg, each.__name__, each)


__all__ = ["CPUHashMap", "CUDAHashMap", "HeteroNeighborSampler", "NeighborSampler"]
