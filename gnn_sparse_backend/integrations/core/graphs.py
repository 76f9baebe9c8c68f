"""From index tensors to a ``Graph``, found again at the next call.

PyG has no graph object that lives from call to call: ``propagate`` sees index tensors, and layers that add self loops
or normalise make new ones at every call. An index tensor is therefore known by content, found in three steps, cheapest
first:

1. *Sample*. Its length and ``SAMPLES`` evenly spaced entries are the dictionary key. An index with at most ``WHOLE``
   entries is the key as a whole, and the search ends here.
2. *Provenance*. The store remembers, weakly, which tensors had this content and their version counters. A tensor of
   unchanged version and address has unchanged content.
3. *Content*. Otherwise every entry is compared with the store's own copy, half a millisecond for 2 million edges.

A graph belongs to its two indices, one with relations to three: the types of its edges are an index too. What asks for
one end alone (a reduction of edge features) is served by any graph that has this index as an end.

A mini-batch's index is never seen again once its tensor is gone, a layer's fresh one is. So of the contents that were
found in no second tensor yet, only those are kept whose tensor lives, and of the others the last ``TRANSIENT``.
Graphs of a few edges do not come here at all (`integrations.few`).
On a GPU the first and the third step would make the host wait for it, so provenance alone counts there, and no copy is
kept: what belongs to an index lives as long as its tensor. A tensor that is made anew at every call has a graph built
at every call: a sort, and a wait.

A pointer or a hash alone is never believed. What PyTorch's version counter does not see (writes through ``.data``,
through a NumPy array that shares the memory, or from another process) is noticed only if it reaches a sampled entry;
after such a write call ``gnn_sparse_backend.integrations.pyg.forget()``.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...deferred import later
from ...runtime import devices
from ...runtime.accounts import account
from ...structures.graph import Graph
from .contents import IndexContent, Sighting, pair
from .room import bytes_of, default_capacity, note_lost

if TYPE_CHECKING:
    from ...structures.relational import graph as relational
    from ...structures.relational.graph import RelGraph
    from ...structures.relational.sources import Parts
else:
    relational = later(__name__, "...structures.relational.graph")

WHOLE = 512
SAMPLES = 64
_SAME_SAMPLE = 4  # indices kept under one key: different contents whose samples agree
TRANSIENT = 6
MOST = 1024  # contents, however small
_INPUT = object()  # stands for the edge index itself in what was derived from it: no tensor of the user is kept
_TIMES = 4  # bytes of two indices of a graph, it and its transpose, by those of one index
_SIGHTINGS = 4  # tensors remembered for one content: layers often see it in several tensors


class GraphStore:
    """Graphs by the content of their index tensors, least recently used out first.

    Up to ``capacity`` bytes are kept (with copies for comparison), and no tensor of the user. An index too large for
    it, or on a GPU, has no copy, is known by provenance only, and goes with its tensors.
    """

    def __init__(self, capacity: int | None = None):
        self.capacity = default_capacity() if capacity is None else capacity
        self._indices: OrderedDict[tuple, list[IndexContent]] = OrderedDict()
        self._transient: OrderedDict[IndexContent, None] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.RLock()

    @property
    def nbytes(self) -> int:
        """Bytes that count against ``capacity``."""
        return self._nbytes

    @property
    def copied(self) -> int:
        """Bytes of the copies that contents are compared with."""
        with self._lock:
            indices = [index for same in self._indices.values() for index in same]
        return sum(index.copy.nbytes for index in indices if index.copy is not None)

    def __len__(self) -> int:
        """Number of graphs."""
        return sum(len(index.graphs) for same in self._indices.values() for index in same)

    def clear(self) -> None:
        with self._lock:
            self._indices.clear()
            self._transient.clear()
            self._nbytes = 0

    def find(
        self, kind: str, first: Tensor, second: Tensor, shape: tuple[int, int], owner: Tensor | None = None
    ) -> Graph:
        """The graph of two index tensors, on their device.

        Args:
            kind: ``"coo"``: destination and source of every edge; ``"csr"``: indptr and indices, rows the destinations;
                ``"csc"``: the same, rows the sources; ``"segments"``: pointers, twice, of segments that are the rows.
            first, second: 1-D integer tensors.
            shape: (destinations, sources).
            owner: the object that ``first`` and ``second`` were taken from, if they are no views of a dense tensor.

        Raises:
            ValueError: an index is out of range, or the pointers are not those of a CSR structure.
        """
        with self._lock:
            one = self._index(first, owner)
            other = one if second is first else self._index(second, owner)
            graph = one.graphs.get((kind, other, shape))
        return self._add(one, other, kind, shape, first, second) if graph is None else graph

    def find_either(self, first: Tensor, second: Tensor, shape: tuple[int, int]) -> tuple[Graph, bool]:
        """``find("coo", first, second, shape)``, or the transpose if that is known already; whether the former."""
        with self._lock:
            one, other = self._index(first, None), self._index(second, None)
            if ("coo", one, shape[::-1]) in other.graphs and ("coo", other, shape) not in one.graphs:
                return other.graphs["coo", one, shape[::-1]], False
        return self.find("coo", first, second, shape), True

    def find_relations(
        self, source: Tensor, destination: Tensor, relation: Tensor, shape: tuple[int, int], num_relations: int
    ) -> RelGraph:
        """The graph of three index tensors, (edges,) each, as ``RelGraph.from_triples`` takes them.

        Raises as it does.
        """
        return self._relations(
            (destination, source, relation),
            (shape, num_relations),
            lambda: relational.RelGraph.from_triples(source, destination, relation, shape, num_relations),
        )

    def find_parts(self, parts: Parts) -> RelGraph:
        """The graph of edges between nodes of several types, by named relations. Raises as ``find_relations``."""
        source, destination, _ = parts.joined()
        names = (parts.relations, tuple(parts.source_types.items()), tuple(parts.destination_types.items()))
        tensors = destination, source, parts.relation_numbers()
        return self._relations(tensors, names, lambda: relational.RelGraph._of_parts(parts, None, None))

    def _relations(self, tensors: tuple[Tensor, ...], key: tuple, make: Callable[[], RelGraph]) -> RelGraph:
        """The graph of destinations, sources and relations that ``key`` tells from others of the same."""
        with self._lock:
            indices = tuple(self._index(index, None) for index in tensors)
            key = ("relations", *indices[1:], *key)
            found = indices[0].graphs.get(key)
        return self._keep(indices, key, make) if found is None else found

    def find_end(self, index: Tensor, size: int) -> Graph:
        """A graph whose edges go into rows ``index``, of which there are ``size``. Raises as ``find``."""
        with self._lock:
            one = self._index(index, None)
            found = one.ends.get(size)
        if found is None:
            return self._add(one, one, "coo", (size, size), index, index)
        return found[0] if found[1] else found[0].transpose()

    def derived(self, edge_index: Tensor, key: tuple, compute: Callable[[], tuple]) -> tuple:
        """What ``compute`` makes of the two rows of ``edge_index``: the tensors of an earlier call with this content
        and ``key``, unless somebody has written to them.

        compute: returns tensors and None, which depend on nothing but the content and ``key``.
        """
        with self._lock:
            one, other = self._index(edge_index[0], None), self._index(edge_index[1], None)
            found = one.derived.get((other, key))
        if found is not None and _versions(found[0]) == found[1]:
            return tuple(edge_index if x is _INPUT else x for x in found[0])
        with torch.inference_mode(False):
            value = compute()
        kept = tuple(_INPUT if x is edge_index else x for x in value)
        with self._lock:
            if self._knows(one) and self._knows(other) and (one.copy is not None or _may_outlive(edge_index, kept)):
                one.derived[other, key] = kept, _versions(kept)
                pair(one, other)
                if found is None and one.copy is not None:
                    self._count(one, sum(x.nbytes for x in kept if type(x) is Tensor))
        return value

    def _index(self, index: Tensor, owner: Tensor | None) -> IndexContent:
        """The content of ``index``, which becomes the most recently used. The lock is held."""
        length = index.numel()
        on_gpu = bool(devices.arch_of(index.device))
        whole = length <= WHOLE and not on_gpu
        if on_gpu:
            key = (length, index.dtype, (index.device, index.data_ptr(), index.stride()))
        else:
            values = index.numpy()
            sample = values if whole else values[:: -(-length // SAMPLES)]
            key = (length, index.dtype, sample.tobytes())
        same_sample = self._indices.get(key)
        if same_sample is not None:
            self._indices.move_to_end(key)
            if whole:
                return same_sample[0]
        elif whole:
            return self._new(key, index, True)
        state = None
        if not index.is_inference():
            if owner is None:
                owner = index if index._base is None else index._base
            state = (index._version, index.data_ptr(), index.stride())
            for known in same_sample or ():
                for sighting in known.sightings:
                    if sighting.state == state and sighting.owner() is owner:
                        return known
        if on_gpu and state is None:
            return IndexContent(key, None)  # it will not be known again
        for known in same_sample or ():
            if known.copy is not None and np.array_equal(values, known.copy.numpy()):  # 8 times as fast as torch.equal
                self._transient.pop(known, None)
                known.came_back = True
                break
        else:
            known = self._new(key, index, not on_gpu)
        if state is not None:
            when_gone = None if known.came_back else self._forgetter(known)
            known.sightings = [Sighting(weakref.ref(owner, when_gone), state), *known.sightings[: _SIGHTINGS - 1]]
        return known

    def _new(self, key: tuple, index: Tensor, copied: bool) -> IndexContent:
        # a graph and its transpose take about as much as the copies of both indices
        fits = copied and (index.numel() <= WHOLE or 4 * index.nbytes <= self.capacity)
        with torch.inference_mode(False):
            known = IndexContent(key, index.clone() if fits else None)
        same_sample = self._indices.setdefault(key, [])
        same_sample.append(known)
        self._nbytes += known.nbytes
        if len(same_sample) > _SAME_SAMPLE:
            self._drop(same_sample[0])
        if len(self._indices) > MOST:
            self._drop(next(iter(self._indices.values()))[0])
        return known

    def _add(
        self, one: IndexContent, other: IndexContent, kind: str, shape: tuple[int, int], first: Tensor, second: Tensor
    ) -> Graph:
        graph = self._keep((one, other), (kind, other, shape), lambda: _build(kind, first, second, shape))
        with self._lock:
            if kind == "coo" and self._knows(one) and self._knows(other):
                one.ends[shape[0]] = graph, True
                if other is not one:
                    other.ends.setdefault(shape[1], (graph, False))
        return graph

    def _keep(
        self, indices: tuple[IndexContent, ...], key: tuple, make: Callable[[], Graph | RelGraph]
    ) -> Graph | RelGraph:
        """The graph under ``key`` of the first index, made if there is none, as long as all indices are known."""
        try:
            graph = make()
        except (TypeError, ValueError):
            with self._lock:
                for index in set(indices):
                    if not index.ends and not index.graphs:
                        self._drop(index)
            raise
        one = indices[0]
        with self._lock:
            if not all(map(self._knows, indices)):  # dropped by another thread meanwhile
                return graph
            known = one.graphs.setdefault(key, graph)
            if known is not graph:
                return known
            for other in indices[1:]:
                pair(one, other)
            if one.copy is not None:
                self._count(one, bytes_of(graph))
        return graph

    def _count(self, index: IndexContent, nbytes: int) -> None:
        """Count what is kept with an index. The lock is held."""
        index.nbytes += nbytes
        self._nbytes += nbytes
        needed, alone = self._nbytes, index.nbytes > self.capacity
        while self._nbytes > self.capacity:
            self._drop(next(iter(self._indices.values()))[0])
        if needed > self.capacity:
            note_lost(needed, self.capacity, alone)

    def _knows(self, index: IndexContent) -> bool:
        return index in self._indices.get(index.key, ())

    def _drop(self, index: IndexContent) -> None:
        """Forget one content with its graphs. The lock is held."""
        if not self._knows(index):
            return
        same_sample = self._indices[index.key]
        same_sample.remove(index)
        if not same_sample:
            del self._indices[index.key]
        self._transient.pop(index, None)
        self._nbytes -= index.nbytes
        gone = set(index.graphs.values())
        index.graphs.clear()
        index.ends.clear()
        index.derived.clear()
        for other in index.partners:
            other.partners.discard(index)
            lost = [key for key in other.graphs if any(part is index for part in key)]
            gone.update(other.graphs.pop(key) for key in lost)
            other.derived = {key: value for key, value in other.derived.items() if key[0] is not index}
            other.ends = {size: end for size, end in other.ends.items() if end[0] not in gone}
        index.partners.clear()

    def _forgetter(self, index: IndexContent) -> Callable:
        store, this = weakref.ref(self), weakref.ref(index)

        def forget(_):
            kept, index = store(), this()
            if kept is not None and index is not None:
                with kept._lock:
                    kept._gone(index)

        return forget

    def _gone(self, index: IndexContent) -> None:
        """A tensor that had this content is gone. The lock is held."""
        if index.came_back or any(sighting.owner() is not None for sighting in index.sightings):
            return
        if index.copy is None:
            length, dtype, where = index.key
            if index.partners and type(where) is bytes:  # too large to be copied, and to be known in another tensor
                note_lost(_TIMES * length * dtype.itemsize, self.capacity, False)
            self._drop(index)
        elif self._knows(index):
            self._transient[index] = None
            while len(self._transient) > TRANSIENT:
                self._drop(next(iter(self._transient)))


def _may_outlive(edge_index: Tensor, kept: tuple) -> bool:
    """Whether none of what is kept would keep the edge index alive, as a view of it does: where there is no copy, its
    life alone bounds what is kept."""
    memory = edge_index.untyped_storage().data_ptr()
    return all(x.untyped_storage().data_ptr() != memory for x in kept if type(x) is Tensor)


def _versions(tensors: tuple) -> tuple:
    return tuple(x._version if type(x) is Tensor else None for x in tensors)


def _build(kind: str, first: Tensor, second: Tensor, shape: tuple[int, int]) -> Graph:
    if kind == "coo":
        return Graph.from_coo(first, second, shape)
    if kind == "segments":
        return Graph.from_csr(first, torch.arange(shape[1], device=first.device), shape)
    if kind == "csr":
        return Graph.from_csr(first, second, shape)
    return Graph.from_csr(first, second, shape[::-1]).transpose()


GRAPHS = GraphStore()
"""Graphs of the index tensors that layers were called with, PyG's and those of compiled programs."""


@account("copies of edge indices, to be known again by content")
def _copied() -> int:
    return GRAPHS.copied
