"""``Graph``: an immutable sparse structure. Rows are destinations, columns are sources, edges carry no values."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from ..compiler.cache.bounded import KernelCache
from ..runtime import devices
from . import facts, sources
from .build import index_dtype
from .checks import (
    IndexArray,
    as_index_vector,
    check_csr,
    check_edges,
    check_permutation,
    check_same_device,
    check_shape,
    is_fixed,
)
from .csr import Csr, EdgeList, Pair, find_pair, stored
from .derived import Keeper, Keeps
from .immutable import Immutable
from .statistics import GraphStatistics
from .unsynchronised import csr_in_range

if TYPE_CHECKING:
    from ..formats.composed.decomposition import Decomposition
    from ..formats.composed.spec import FormatSpec

_set = object.__setattr__
_ARRAYS = ("indptr", "indices", "edge_ids")

Opposite: TypeAlias = Callable[[], tuple[Tensor, Tensor, Tensor | None] | None]
"""What has (indptr, indices, edge_ids) of the transpose, or None."""


class Graph(Immutable, Keeps):
    """The structure of a sparse matrix of shape (destinations, sources) in CSR form.

    Made by ``from_csr``, ``from_coo``, ``from_scipy``, ``from_edge_index`` or ``from_dgl``. Edges keep the order in
    which the user gave them: that is the order of weights and of edge results, whatever the order in memory.
    Columns may be unsorted within a row and edges may repeat. Index arrays are int32 if the numbers of rows, columns
    and edges all fit, else int64. The arrays belong to the graph and must not be written to.

    Graphs hash and compare by identity; ``same_structure`` and ``fingerprint`` compare content.

    Attributes:
        shape: (number of destinations, number of sources).
        num_edges: number of edges, duplicates included.
        indptr: (destinations + 1,) row offsets.
        indices: (edges,) source of each CSR position.
        edge_ids: (edges,) edge, in the user's order, at each CSR position; None if the two orders are the same.
        device: where the arrays are.
        plans: of the operators that ran on it, by what the planner was asked; they live as long as the structure.
        facts: what was derived from it (`derived`), shared like the plans by all that show this structure.
        listed: the edges as they were given, of a graph that is not converted yet (``_of_list``); else None.
    """

    __slots__ = (
        "__weakref__",
        "_pair",
        "_side",
        "calls",
        "device",
        "edge_ids",
        "facts",
        "indices",
        "indptr",
        "listed",
        "num_edges",
        "plans",
        "shape",
    )

    shape: tuple[int, int]
    num_edges: int
    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor | None
    listed: EdgeList | None
    device: torch.device
    facts: dict[Any, Any]
    calls: KernelCache[Any, Any]
    plans: dict[Any, Any]
    _pair: Pair
    _side: int

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError("make a Graph with Graph.from_csr, from_coo, from_scipy, from_edge_index or from_dgl")

    @classmethod
    def from_csr(
        cls,
        indptr: IndexArray,
        indices: IndexArray,
        shape: Sequence[int],
        edge_ids: IndexArray | None = None,
        *,
        trusted: bool = False,
        opposite: Opposite | None = None,
    ) -> Graph:
        """A graph from CSR arrays (torch tensors or NumPy arrays of any integer type, on one device).

        Arrays of a file that is mapped into memory to be read alone (``numpy.load(path, mmap_mode="r")``) stay where
        they are, if they have the graph's index type; other arrays are copied.

        Args:
            indptr: (destinations + 1,) non-decreasing offsets from 0 to the number of edges.
            indices: (edges,) source of each position, in [0, sources).
            shape: (destinations, sources).
            edge_ids: (edges,) the user's number of the edge at each position; None for CSR order.
            trusted: the arrays are known to be right and will not be written to: skip the O(edges) checks and
                do not copy. Wrong arrays then crash the process.
            opposite: a function that returns (indptr, indices, edge_ids) of the transpose, as trusted as these, or None
                where it has not got them; called when the transpose is first needed.
        """
        shape = check_shape(shape)
        copied = [not trusted and not is_fixed(array) for array in (indptr, indices, edge_ids)]
        indptr, indices = as_index_vector("indptr", indptr), as_index_vector("indices", indices)
        edge_ids = None if edge_ids is None else as_index_vector("edge_ids", edge_ids)
        check_same_device(indptr=indptr, indices=indices, edge_ids=edge_ids)
        if not trusted:
            check_csr(indptr, indices, edge_ids, shape)
        dtype = index_dtype(shape, indices.numel())
        return _view(Pair(Csr(*stored(indptr, indices, edge_ids, dtype, copied), shape, opposite)), 0)

    @classmethod
    def from_coo(cls, row: IndexArray, col: IndexArray, shape: Sequence[int]) -> Graph:
        """A graph with edges ``col[e] -> row[e]``: row is the destination, col the source, shape (destinations,
        sources).

        ``row`` and ``col`` are (edges,) torch tensors or NumPy arrays of integers, in any order; edge e keeps its
        number.
        """
        shape = check_shape(shape)
        row, col = as_index_vector("row", row), as_index_vector("col", col)
        check_same_device(row=row, col=col)
        if row.numel() != col.numel():
            raise ValueError(f"row and col must have the same length, got {row.numel()} and {col.numel()}")
        return _view(*Pair.of_edges(row, col, shape, check_edges(row, col, shape)))

    @classmethod
    def from_scipy(cls, matrix: object) -> Graph:
        """The structure of a SciPy sparse matrix or array of any format: ``matrix[destination, source]``.

        Stored entries are edges, explicit zeros too. Values are not part of a graph: pass ``matrix.data`` of a CSR or
        COO matrix as ``weight=`` (for these two formats edge e is entry e of ``data``; other formats are converted to
        CSR first, so take the values from ``matrix.tocsr()``).
        """
        kind, arrays, shape = sources.scipy_arrays(matrix)
        return cls.from_csr(*arrays, shape) if kind == "csr" else cls.from_coo(*arrays, shape)

    @classmethod
    def from_edge_index(
        cls, edge_index: IndexArray, size: Sequence[int | None] | None = None, *, release: bool = False
    ) -> Graph:
        """A graph from a (2, edges) tensor in PyG's convention: row 0 the sources, row 1 the destinations.

        Args:
            edge_index: (2, edges) integers.
            size: (number of sources, number of destinations), PyG's order and the reverse of ``shape``; an entry may be
                None. What is not given is the largest index of either row plus one (a square graph).
            release: leave ``edge_index`` without its memory, with shape (0,), once the graph is made. The memory is
                freed where no other tensor shows it.

        Raises:
            TypeError, ValueError: ``edge_index`` or ``size`` is none, an index is out of range, or a tensor that is to
                be released has a class of its own. It keeps its memory then.
        """
        source, destination, shape = sources.edge_index_arrays(edge_index, size)
        if release:
            sources.check_plain(edge_index)
        graph = cls.from_coo(destination, source, shape)
        if release:
            sources.let_go(edge_index)
        return graph

    @classmethod
    def from_dgl(cls, graph: object, etype: str | tuple[str, str, str] | None = None) -> Graph:
        """The structure of a DGL graph or block; ``etype`` is needed only if it has several edge types.

        Shares memory with DGL where the index types agree. Edge e is DGL's edge e.
        """
        indptr, indices, edge_ids, shape = sources.dgl_arrays(graph, etype)
        return cls.from_csr(indptr, indices, shape, edge_ids, trusted=True)

    @classmethod
    def _of_arrays(cls, indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, num_sources: int) -> Graph:
        """The live graph that owns these arrays, or a new one on them, checked; on a GPU without waiting for their
        values.
        """
        found = find_pair(indptr, indices, edge_ids, num_sources)
        if found is not None:
            return _view(*found)
        shape = (indptr.numel() - 1, num_sources)
        if not devices.on_cpu(indices.device):
            return cls._unsynchronised(*csr_in_range(indptr, indices, edge_ids, num_sources), shape, indices.numel())
        check_csr(indptr, indices, edge_ids, shape)
        return cls.from_csr(indptr, indices, shape, edge_ids, trusted=True)

    @classmethod
    def _unsynchronised(
        cls, indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, shape: tuple[int, int], longest: int
    ) -> Graph:
        """Make a graph of arrays on a GPU that are known to be right, in one index type, for one call, which must not
        wait for their values.

        longest: edges of a row at most, as far as sizes tell. ``indices`` may have more entries than rows have.
        """
        graph = _view(Pair(Csr(indptr, indices, edge_ids, shape)), 0)
        graph._csr.unsynchronised = longest
        return graph

    @classmethod
    def _of_rows(cls, indptr: Tensor, indices: Tensor, columns: int) -> Graph:
        """Some rows of a graph, on arrays that are known to be right, as a part of what the graph keeps."""
        return _view(Pair(Csr(indptr, indices, None, (indptr.numel() - 1, columns)), found=False), 0)

    @classmethod
    def _of_list(cls, edges: EdgeList) -> Graph:
        """The graph of a list of edges, which is checked and converted once somebody asks for its arrays."""
        return _view(Pair(Csr.of_list(edges)), 0)

    def __getattr__(self, name: str) -> Any:
        """The arrays, at the first time that somebody asks for one of them."""
        if name not in _ARRAYS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if self.listed is None:  # a transpose with the arrays of the graph
            _set(self, name, self._pair.numbers(self._side))
            return self.edge_ids
        csr = self._pair.convert(self._side)
        for each in _ARRAYS:
            _set(self, each, getattr(csr, each))
        _set(self, "listed", None)
        return getattr(self, name)

    @classmethod
    def _of_one_row(cls, edges: int, like: Tensor) -> Graph:
        """One node with ``edges`` self-loops, in the index type and on the device of ``like``, whatever type its size
        asks for.
        """
        indptr, indices = torch.tensor([0, edges]).to(like), like.new_zeros(edges)
        return _view(Pair(Csr(indptr, indices, None, (1, 1))), 0)

    @classmethod
    def _of_loops(cls, nodes: int, device: torch.device) -> Graph:
        """The graph of ``nodes`` nodes with a self-loop each: edge e is that of node e."""
        indptr = torch.arange(nodes + 1, dtype=index_dtype((nodes, nodes), nodes), device=device)
        return _view(Pair(Csr(indptr, indptr[:-1], None, (nodes, nodes))), 0)

    @staticmethod
    def _showing(pair: Pair) -> Graph | None:
        """A live graph that shows a pair, if there is one."""
        shown = (None if view is None else view() for view in pair.views)
        return next((graph for graph in shown if graph is not None), None)

    def transpose(self) -> Graph:
        """The graph with every edge reversed. Computed once; its transpose is this graph again; edges keep their
        ids.
        """
        return _view(self._pair, 1 - self._side)

    def decomposed(self, formats: tuple[FormatSpec, ...], fill: float) -> Decomposition:
        """The graph in several formats, kept: ``gsb.formats.decompose(graph, ...)``."""
        return facts.decomposition(self, formats, fill)

    def to(self, device: torch.device | str | int) -> Graph:
        """This graph on ``device``: itself if it is there already."""
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        arrays = [None if a is None else a.to(device) for a in (self.indptr, self.indices, self.edge_ids)]
        return _view(Pair(Csr(*arrays, self.shape)), 0)

    def validate(self) -> Graph:
        """Check every index again, and that ``edge_ids`` is a permutation: O(edges). Returns the graph.

        Raises ValueError that quotes the first bad entry.
        """
        check_csr(self.indptr, self.indices, self.edge_ids, self.shape)
        if self.edge_ids is not None:
            check_permutation(self.edge_ids)
        return self

    @property
    def in_degrees(self) -> Tensor:
        """(destinations,) number of edges into each, in the index type."""
        return facts.in_degrees(self)

    @property
    def edge_numbers(self) -> Tensor:
        """(edges,) edge, in the user's order, at each CSR position: ``edge_ids``, or counting up."""
        if self.edge_ids is not None:
            return self.edge_ids
        return facts.edge_numbers(self)

    @property
    def some_index(self) -> Tensor:
        """One of its index arrays, for whoever asks for its type and device alone: nothing is converted for it."""
        return self.indices if self.listed is None else self.listed.row

    @property
    def inverse_in_degrees(self) -> Tensor:
        """(destinations,) float32: 1 / max(in-degree, 1)."""
        return self.derived(facts.InverseInDegrees(torch.float32))

    @property
    def statistics(self) -> GraphStatistics:
        """Size and in-degree distribution."""
        return facts.statistics(self)

    @property
    def fingerprint(self) -> str:
        """32 hex digits that identify the content: shape, arrays and edge order."""
        return facts.fingerprint(self, numbered=True)

    def same_structure(self, other: Graph) -> bool:
        """Whether shape, arrays and edge order are equal (devices may differ)."""
        if not isinstance(other, Graph):
            raise TypeError(f"expected a Graph, got {type(other).__name__}")
        return self is other or (self.shape == other.shape and self.fingerprint == other.fingerprint)

    def keepers(self) -> Iterator[Keeper]:
        """This side of it, and the other one where it was made."""
        for of, side in (("graph", self._side), ("transpose", 1 - self._side)):
            csr = self._pair.sides[side]
            if csr is not None:
                yield Keeper(of, csr, csr.arrays, self._pair.spare(side))

    def release(self) -> None:
        """Free all that was derived of the graph and its transpose, and the transpose itself if it was computed and
        nobody holds it. It is derived again where it is needed, and results are the same bits. A call that is under way
        keeps what it uses, and so does a gradient that is still to come what it was given.
        """
        super().release()
        self._pair.release()

    @property
    def unsynchronised(self) -> int | None:
        """None; or for a graph of one call on a GPU, of whose arrays nothing is read: edges of a row at most."""
        return self._csr.unsynchronised

    @property
    def of_arrays(self) -> Csr:
        """What keeps facts of rows and columns alone, for both directions of a symmetric graph."""
        csr = self._csr
        return csr.first or csr

    @property
    def _csr(self) -> Csr:
        return self._pair.sides[self._side]

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph.from_csr, (self.indptr, self.indices, self.shape, self.edge_ids)

    def __repr__(self) -> str:
        order = "CSR" if self.edge_ids is None else "own"
        return (
            f"Graph({self.shape[0]} destinations, {self.shape[1]} sources, {self.num_edges} edges, "
            f"{str(self.indices.dtype).removeprefix('torch.')} indices, {order} edge order, {self.device})"
        )


def _view(pair: Pair, side: int) -> Graph:
    """The one live Graph that shows this side of the pair."""
    reference = pair.views[side]
    graph = None if reference is None else reference()
    if graph is None:
        with pair.lock:  # a side without a view may be released
            csr = pair.side(side)
            reference = pair.views[side]
            graph = None if reference is None else reference()
            if graph is None:
                graph = object.__new__(Graph)
                _set(graph, "_pair", pair)
                _set(graph, "_side", side)
                _set(graph, "shape", csr.shape)
                _set(graph, "listed", csr.listed)
                indices = csr.indices if csr.listed is None else csr.listed.col
                _set(graph, "num_edges", indices.shape[0])
                _set(graph, "device", indices.device)
                if csr.listed is None:
                    for name in _ARRAYS[: None if csr.mirrors is None else -1]:
                        _set(graph, name, getattr(csr, name))
                for name in ("plans", "facts", "calls"):
                    _set(graph, name, getattr(csr, name))
                pair.views[side] = weakref.ref(graph)
    return graph
