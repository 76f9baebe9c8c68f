"""``DistGraph``: the part of a graph that one process holds, which operators take as a structure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..ops.core.partitioned import Partitioned
from ..structures.graph import Graph
from ..structures.immutable import Immutable
from ..structures.relational.graph import RelGraph
from . import files, operators
from .halo import Delayed, Exchange, Traffic, Travelling
from .partition import MANIFEST, VERSION
from .shared import SharedMemory

_set = object.__setattr__


class DistGraph(Immutable, Partitioned):
    """The rows of one process, with the columns that its edges come from: its own, then the halo.

    Made by ``DistGraph.load``. ``spmm``, ``aggregate``, ``sddmm``, ``edge_softmax``, ``attention``, ``gat_attention``,
    ``gatv2_attention`` and ``rgms`` take it: operands of sources and destinations are those of this process, edge
    operands those of ``edge_ids``. All processes call the same operators in the same order.

    Attributes:
        shape: (own destinations, own sources) of this process. num_edges: edges into its destinations.
        part, parts: which part this is, and of how many.
        row_ids, column_ids, halo_ids, edge_ids: numbers in the whole graph of what this process has.
        local: the ordinary ``Graph`` or ``RelGraph`` with columns [own sources | halo].
        inner, outer: the same in two, the edges from own sources and those from the halo.
        traffic: bytes sent and seconds waited, by layer.
        group: processes that exchange halos; None for one alone.
        manifest: what ``partition`` wrote of the whole graph.
    """

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        wire: torch.dtype | None = None,
        timeout: float = 120,
        verify: bool = True,
        shared_memory: bool = True,
    ) -> DistGraph:
        """The part of this process: part r of rank r of ``torch.distributed``, all of it in a process alone.

        Args:
            folder: what ``gsb.distributed.partition`` wrote; files are mapped, not read.
            wire: ``torch.bfloat16`` halves what is sent of float32, and rounds it; None sends all bits.
            timeout: seconds after which a process that waits for another one raises an error. One that has ended is
                noticed at once.
            verify: compare the files with the hashes of the manifest.
            shared_memory: hand halos over in memory where all processes are on one machine (Linux); otherwise they go
                through gloo as they do between machines.
        """
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            raise FileNotFoundError(f"DistGraph.load: {folder} has no {MANIFEST}; make it by gsb.distributed.partition")
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["version"] != VERSION:
            raise ValueError(f"DistGraph.load: {folder} is of version {manifest['version']}, not {VERSION}: cut again")
        started = dist.is_available() and dist.is_initialized()
        part, parts = (dist.get_rank(), dist.get_world_size()) if started else (0, 1)
        if len(manifest["parts"]) != parts:
            raise ValueError(
                f"DistGraph.load: {folder} has {len(manifest['parts'])} parts, but torch.distributed has {parts} "
                "processes: start as many by torchrun, or cut again"
            )
        told, of_part = manifest["parts"][part], folder / f"part{part}"
        held = {name: files.mapped(of_part, name, about, verify) for name, about in told["files"].items()}
        group = dist.new_group(timeout=timedelta(seconds=timeout)) if parts > 1 else None
        self = object.__new__(cls)
        shared = SharedMemory.of(group) if group is not None and shared_memory else None
        exchange = Exchange(held["send"], told["sends"], told["receives"], group, wire, shared)
        for name, value in (
            ("part", part),
            ("parts", parts),
            ("manifest", manifest),
            ("row_ids", held["rows"]),
            ("column_ids", held["columns"]),
            ("halo_ids", held["halo"]),
            ("edge_ids", held["edges"]),
            ("shape", (held["rows"].numel(), held["columns"].numel())),
            ("num_edges", held["row"].numel()),
            ("group", group),
            ("_held", held),
            ("_exchange", exchange),
            ("_delayed", Delayed()),
        ):
            _set(self, name, value)
        self._cut(held["row"], held["col"], held.get("relation"))
        return self

    def _cut(self, row: Tensor, col: Tensor, relation: Tensor | None) -> None:
        """Make the three structures."""
        own, halo = self.shape[1], self.halo_ids.numel()
        near = col < own
        _set(self, "inner_edges", near.nonzero().squeeze(1))
        _set(self, "outer_edges", (~near).nonzero().squeeze(1))
        for name, edges, first, columns in (
            ("local", slice(None), 0, own + halo),
            ("inner", self.inner_edges, 0, own),
            ("outer", self.outer_edges, own, halo),
        ):
            some = None if relation is None else relation[edges]
            _set(self, name, self._made(row[edges], col[edges] - first, some, (self.shape[0], columns)))

    def _made(self, row: Tensor, col: Tensor, relation: Tensor | None, shape: tuple[int, int]) -> Graph | RelGraph:
        if relation is None:
            return Graph.from_coo(row, col, shape)
        return RelGraph.from_triples(col, row, relation, shape, self.manifest["num_relations"])

    @cached_property
    def halves(self) -> tuple[operators.Half, operators.Half] | None:
        """Rows whose edges all come from own sources, and the others, with columns [own sources | halo]; None where
        one of the two has no edges.
        """
        row, col, relation = self._held["row"], self._held["col"], self._held.get("relation")
        far = torch.zeros(self.shape[0], dtype=torch.bool)
        far[row[self.outer_edges].long()] = True
        of_edges, found = far[row.long()], []
        for wanted, columns in ((False, self.shape[1]), (True, self.shape[1] + self.halo_ids.numel())):
            rows, edges = ((each == wanted).nonzero().squeeze(1) for each in (far, of_edges))
            place = torch.zeros(far.shape, dtype=row.dtype)
            place[rows] = torch.arange(rows.numel(), dtype=row.dtype)
            some = None if relation is None else relation[edges]
            graph = self._made(place[row[edges].long()], col[edges], some, (rows.numel(), columns))
            found.append(operators.Half(graph, rows, edges))
        return (found[0], found[1]) if all(half.edges.numel() for half in found) else None

    def features(self) -> Tensor:
        """(own sources, ...) what ``partition`` was given, mapped."""
        return self._given("features")

    def labels(self) -> Tensor:
        """(own destinations, ...) what ``partition`` was given, mapped."""
        return self._given("labels")

    def _given(self, name: str) -> Tensor:
        if name not in self._held:
            raise ValueError(f"DistGraph: partition was given no {name}: gsb.distributed.partition(..., {name}=...)")
        return self._held[name]

    @property
    def traffic(self) -> dict[str, Traffic]:
        return self._exchange.traffic

    def predicted_bytes(self, width: int, dtype: torch.dtype) -> tuple[int, int]:
        """Bytes that one exchange of rows of ``width`` numbers sends from here, forward and backward, by the
        manifest.
        """
        told = self.manifest["parts"][self.part]
        size = width * (self._exchange.wire or dtype).itemsize
        return sum(told["sends"]) * size, sum(told["receives"]) * size

    @cached_property
    def edge_index(self) -> Tensor:
        """(2, E) PyG's edges of this process, from columns [own sources | halo] to own destinations."""
        return torch.stack([self._held["col"], self._held["row"]])

    @cached_property
    def block(self) -> Any:
        """DGL's block of this process, with the same columns."""
        import dgl

        columns = self.shape[1] + self.halo_ids.numel()
        return dgl.create_block(tuple(self.edge_index), columns, self.shape[0])

    @property
    def edge_type(self) -> Tensor:
        """(E,) relations of the edges of this process."""
        return self._given("relation")

    def start(self, x: Tensor, layer: str) -> Travelling:
        """The halo of ``x`` under way; ``wait`` has it."""
        if not isinstance(x, Tensor):
            raise TypeError(f"{layer}: operands of sources must be torch tensors, got {type(x).__name__}")
        if x.dim() == 0 or x.shape[0] != self.shape[1]:
            raise ValueError(
                f"{layer}: operands of sources must have {self.shape[1]} rows, one per source of part {self.part}, got "
                f"{tuple(x.shape)}"
            )
        return self._exchange.start(x, layer)

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """One step of a training whose halos are those of the step before, and so are the gradients of halos: nobody
        waits for what was just sent. ``with graph.delayed():`` stands around the forward and the backward pass; the
        first step is exact, and so is what stands outside.

        The method is PipeGCN's (Wan et al., ICLR 2022), without its smoothing. Each step has to call the same operators
        in the same order. Halos of one step are kept for each call.
        """
        self._delayed.count, self._exchange.delayed = 0, self._delayed
        try:
            yield
        finally:
            self._exchange.delayed = None

    def call(self, operator: Any, arguments: Mapping[str, Any]) -> Any:
        return operators.call(self, operator, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a DistGraph belongs to its process: load it in each, by DistGraph.load")

    def __repr__(self) -> str:
        return (
            f"DistGraph(part {self.part} of {self.parts}: {self.shape[0]} destinations, {self.shape[1]} sources and "
            f"{self.halo_ids.numel()} of other parts, {self.num_edges} edges)"
        )
