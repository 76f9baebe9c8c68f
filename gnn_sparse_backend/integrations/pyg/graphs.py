"""From PyG's index tensors to a ``Graph``, found again at the next call.

PyG has no graph object that lives from call to call: ``propagate`` sees index tensors, and layers that add self loops
or normalise make new ones at every call. A graph is therefore found by content, in three steps, cheapest first:

1. *Sample*. Sizes and ``SAMPLES`` evenly spaced entries of both tensors are the dictionary key. Of a graph with at
   most ``WHOLE`` edges all entries are the key, and the search ends here.
2. *Provenance*. The entry remembers, weakly, which tensors had this content and their version counters. The same
   tensor at the same version and address has the same content.
3. *Content*. Otherwise every entry is compared with the store's own copy, 1 ms for 2 million edges.

A pointer or a hash alone is never believed. What PyTorch's version counter does not see (writes through ``.data``,
through a NumPy array that shares the memory, or from another process) is noticed only if it reaches a sampled entry;
after such a write call ``gnn_sparse_backend.integrations.pyg.forget()``.
"""
from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import psutil
from torch import Tensor

from ...ops.graph import Graph

WHOLE = 512
SAMPLES = 64
_SAME_SAMPLE = 4  # entries kept under one key: different graphs whose samples agree
_SIGHTINGS = 4  # tensors remembered for one entry: layers often see one content in several tensors


def default_capacity() -> int:
    """Bytes of structure that are kept: ``GSB_PYG_CACHE_BYTES``, or an eighth of the machine's memory."""
    text = os.environ.get("GSB_PYG_CACHE_BYTES")
    if text is None:
        return psutil.virtual_memory().total // 8
    if not text.isdecimal():
        raise ValueError(f"GSB_PYG_CACHE_BYTES must be a number of bytes, got {text!r}")
    return int(text)


class _Sighting:
    """One pair of index tensors that had an entry's content, held weakly."""

    __slots__ = ("owners", "state")

    def __init__(self, owners: tuple, state: tuple, when_gone: Callable | None):
        self.owners = tuple(weakref.ref(owner, when_gone) for owner in owners)
        self.state = state

    def matches(self, owners: tuple, state: tuple) -> bool:
        return self.state == state and all(ref() is owner for ref, owner in zip(self.owners, owners))


class _Entry:
    __slots__ = ("graph", "copies", "sightings", "nbytes")

    def __init__(self, graph: Graph, copies: tuple[Tensor, Tensor] | None, nbytes: int):
        self.graph, self.copies, self.nbytes, self.sightings = graph, copies, nbytes, []


class GraphStore:
    """Graphs by the content of their index tensors, least recently used out first.

    Entries within ``capacity`` bytes (structure, its transpose, and the copy for comparison) are kept; no tensor of the
    user is. A structure larger than ``capacity`` has no copy, is known by provenance only, and goes when its index
    tensors do. Safe to use from several threads.
    """

    def __init__(self, capacity: int | None = None):
        self.capacity = default_capacity() if capacity is None else capacity
        self._entries: OrderedDict[tuple, list[_Entry]] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.RLock()

    @property
    def nbytes(self) -> int:
        """Bytes held by the entries that count against ``capacity``."""
        return self._nbytes

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._nbytes = 0

    def find(self, kind: str, first: Tensor, second: Tensor, shape: tuple[int, int], owner: Tensor | None = None) -> Graph:
        """The graph of two index tensors on the CPU.

        Args:
            kind: ``"coo"``: destination and source of every edge; ``"csr"``: indptr and indices, rows the destinations;
                ``"csc"``: the same, rows the sources.
            first, second: 1-D integer tensors.
            shape: (destinations, sources).
            owner: the object that ``first`` and ``second`` were taken from, if they are no views of a dense tensor.

        Raises:
            ValueError: an index is out of range, or the pointers are not those of a CSR structure.
        """
        whole = first.numel() <= WHOLE and second.numel() <= WHOLE
        key = (kind, shape, first.numel(), second.numel(), first.dtype, second.dtype, _sample(first), _sample(second))
        owners, state = (None, None) if whole else _provenance(first, second, owner)
        with self._lock:
            same_sample = self._entries.get(key)
            if same_sample is not None:
                self._entries.move_to_end(key)
                for entry in same_sample:
                    if whole or (owners is not None and any(s.matches(owners, state) for s in entry.sightings)):
                        return entry.graph
                for entry in same_sample:
                    if entry.copies is not None and _equal(first, entry.copies[0]) and _equal(second, entry.copies[1]):
                        self._remember(key, entry, owners, state)
                        return entry.graph
        return self._add(key, kind, first, second, shape, owners, state)

    def _add(self, key, kind, first, second, shape, owners, state) -> Graph:
        graph = _build(kind, first, second, shape)
        size = graph.indices.element_size()
        nbytes = (first.nbytes + second.nbytes
                  + 2 * size * (2 * graph.num_edges + shape[0] + shape[1]) + len(key[-1]) + len(key[-2]))
        fits = nbytes <= self.capacity
        if not fits and owners is None:
            return graph
        entry = _Entry(graph, (first.clone(), second.clone()) if fits else None, nbytes if fits else 0)
        with self._lock:
            self._remember(key, entry, owners, state)
            same_sample = self._entries.setdefault(key, [])
            self._entries.move_to_end(key)
            same_sample.append(entry)
            self._nbytes += entry.nbytes
            if len(same_sample) > _SAME_SAMPLE:
                self._nbytes -= same_sample.pop(0).nbytes
            while self._nbytes > self.capacity:
                _, evicted = self._entries.popitem(last=False)
                self._nbytes -= sum(old.nbytes for old in evicted)
        return graph

    def _remember(self, key, entry: _Entry, owners, state) -> None:
        if owners is None:
            return
        when_gone = None
        if entry.copies is None:
            store, this = weakref.ref(self), weakref.ref(entry.graph)

            def when_gone(_):
                if store() is not None:
                    store()._drop(key, this())

        entry.sightings = [_Sighting(owners, state, when_gone), *entry.sightings[:_SIGHTINGS - 1]]

    def _drop(self, key, graph: Graph | None) -> None:
        with self._lock:
            kept = [entry for entry in self._entries.get(key, ()) if entry.graph is not graph]
            if kept:
                self._entries[key] = kept
            else:
                self._entries.pop(key, None)


def _build(kind: str, first: Tensor, second: Tensor, shape: tuple[int, int]) -> Graph:
    if kind == "coo":
        return Graph.from_coo(first, second, shape)
    if kind == "csr":
        return Graph.from_csr(first, second, shape)
    return Graph.from_csr(first, second, shape[::-1]).transpose()


def _sample(index: Tensor) -> bytes:
    length = index.numel()
    if length > WHOLE:
        index = index[::-(-length // SAMPLES)]
    return index.numpy().tobytes()


def _equal(index: Tensor, copy: Tensor) -> bool:
    return np.array_equal(index.numpy(), copy.numpy())  # an eighth of the time of torch.equal


def _provenance(first: Tensor, second: Tensor, owner: Tensor | None) -> tuple:
    """``(owners, state)``: the tensors whose life and versions stand for the content; Nones if there are no versions."""
    if first.is_inference() or second.is_inference():
        return None, None
    if owner is None:
        owners = (_base(first), _base(second))
    else:
        owners = (owner,)
    state = (first._version, second._version, first.data_ptr(), second.data_ptr(), first.stride(), second.stride())
    return owners, state


def _base(index: Tensor) -> Tensor:
    base = index._base
    return index if base is None else base
