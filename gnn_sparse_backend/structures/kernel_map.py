"""``KernelMap``: which input row meets which output row at which offset of a convolution's kernel."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..compiler.cache.bounded import KernelCache
from ..formats.structure import check_offsets, row_of_position
from .build import index_dtype
from .checks import IndexArray, as_index_vector, check_ranges, check_same_device, check_shape
from .derived import Derived, Keeper, Keeps
from .graph import Graph
from .immutable import Movable
from .relational.graph import RelGraph

_set = object.__setattr__
MOST_CALLS = 256
"""Signatures of calls that a map remembers."""


class KernelMap(Movable):
    """The pairs of a sparse convolution: ``out[outputs[p]] += x[inputs[p]] @ weight[k]`` for the pairs p of offset k.

    At one offset of the kernel an output meets at most one input, and an input at most one output. Maps are made from
    coordinates by the layers of ``gnn_sparse_backend.nn``, or of arrays by ``from_pairs``. Index arrays are int32 if
    all sizes fit, else int64; they belong to the map and must not be written to.

    Attributes:
        shape: (number of outputs, number of inputs).
        num_offsets: K, the volume of the kernel.
        num_pairs: P.
        inputs, outputs: (P,) rows, by offset, then by output.
        indptr: (K + 1,) where the pairs of each offset begin.
        symmetric: whether offset K - 1 - k has the pairs of offset k with inputs and outputs swapped, as in a
            submanifold convolution (Graham et al., 2018) of an odd kernel.
        monotone: whether it is known that inputs ascend as outputs do at each offset, as between sites in order.
        facts: what was derived from it (`derived`). calls: what is ready to run.
    """

    __slots__ = (
        "_reverse",
        "calls",
        "facts",
        "indptr",
        "inputs",
        "monotone",
        "num_offsets",
        "num_pairs",
        "outputs",
        "shape",
        "symmetric",
    )

    shape: tuple[int, int]
    num_offsets: int
    num_pairs: int
    inputs: Tensor
    outputs: Tensor
    indptr: Tensor
    symmetric: bool
    monotone: bool
    facts: dict[Any, Any]
    calls: KernelCache[Any, Any]
    _reverse: weakref.ref[KernelMap] | None

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError("make a KernelMap with KernelMap.from_pairs, or by a layer of gnn_sparse_backend.nn")

    @classmethod
    def from_pairs(
        cls, inputs: IndexArray, outputs: IndexArray, indptr: IndexArray, shape: tuple[int, int]
    ) -> KernelMap:
        """A map of pairs that come offset by offset, in any order within one.

        Args:
            inputs, outputs: (P,) integers, torch tensors or NumPy arrays on one device.
            indptr: (K + 1,) where the pairs of each offset begin, from 0 to P.
            shape: (number of outputs, number of inputs).

        Raises:
            TypeError, ValueError: an argument is not as above, or a row meets two others at one offset; the first bad
                entry is quoted.
        """
        shape = check_shape(shape)
        inputs, outputs = as_index_vector("inputs", inputs), as_index_vector("outputs", outputs)
        indptr = as_index_vector("indptr", indptr)
        check_same_device(inputs=inputs, outputs=outputs, indptr=indptr)
        if inputs.numel() != outputs.numel():
            raise ValueError(
                f"inputs and outputs must have one entry per pair, got {inputs.numel()} and {outputs.numel()}"
            )
        if not indptr.numel():
            raise ValueError("indptr must have one entry more than there are offsets, got none")
        check_offsets("indptr", indptr, inputs.numel(), "pairs")
        check_ranges(("inputs", inputs, shape[1], "inputs"), ("outputs", outputs, shape[0], "outputs"))
        dtype = index_dtype(shape, inputs.numel())
        with torch.inference_mode(False):  # made now, kept for a backward pass later
            inputs, outputs, indptr = (a.detach().to(dtype, copy=True) for a in (inputs, outputs, indptr))
            offset = row_of_position(indptr, inputs.numel()).long()
            _check_once("inputs", offset, inputs, shape[1])
            order = _check_once("outputs", offset, outputs, shape[0])
            return cls._make(inputs[order], outputs[order], indptr, shape)

    @classmethod
    def _make(
        cls,
        inputs: Tensor,
        outputs: Tensor,
        indptr: Tensor,
        shape: tuple[int, int],
        symmetric: bool = False,
        monotone: bool = False,
    ) -> KernelMap:
        """Make a kernel map of arrays that are known to be right, in one index type and in order."""
        return cls._new(
            shape=tuple(shape),
            num_offsets=indptr.numel() - 1,
            num_pairs=inputs.numel(),
            inputs=inputs,
            outputs=outputs,
            indptr=indptr,
            symmetric=symmetric,
            monotone=monotone,
            facts={},
            calls=KernelCache("calls of a kernel map", MOST_CALLS),
            _reverse=None,
        )._found_by(inputs, outputs, indptr, *shape)

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    def transpose(self) -> KernelMap:
        """The map with inputs and outputs swapped, offset by offset. Made once; its transpose is this map again."""
        original = None if self._reverse is None else self._reverse()
        return self.derived(Transposed()) if original is None else original

    @property
    def unmirrored(self) -> KernelMap:
        """The symmetric map that this one is the transpose of, which has its pairs: those of offset K - 1 - k at k. Any
        other map itself.
        """
        original = self._reverse() if self.symmetric and self._reverse is not None else None
        return self if original is None else original

    def _parts(self) -> tuple[Any, ...]:
        return self.inputs, self.outputs, self.indptr, self.shape, self.symmetric, self.monotone

    def keepers(self) -> Iterator[Keeper]:
        """The map, its transpose, and the graphs that were made of it."""
        yield Keeper("kernel map", self, (self.inputs, self.outputs, self.indptr))
        for fact, value in list(self.facts.items()):
            if isinstance(value, Keeps):
                for keeper in value.keepers():
                    yield keeper._replace(of=f"{keeper.of} of {type(fact).__name__}", derived=True)

    def __repr__(self) -> str:
        return (
            f"KernelMap({self.shape[0]} outputs, {self.shape[1]} inputs, {self.num_offsets} offsets, "
            f"{self.num_pairs} pairs, {self.device})"
        )


class Offsets(Derived[Tensor]):
    """(P,) the offset of each pair, in the index type."""

    def compute(self, kernel_map: KernelMap) -> Tensor:
        return row_of_position(kernel_map.indptr, kernel_map.num_pairs)


class Transposed(Derived[KernelMap]):
    """The map with inputs and outputs swapped, which holds this one weakly."""

    def compute(self, kernel_map: KernelMap) -> KernelMap:
        inputs, outputs, indptr = kernel_map.outputs, kernel_map.inputs, kernel_map.indptr
        if not kernel_map.monotone:
            offset = kernel_map.derived(Offsets()).long()
            if kernel_map.symmetric:
                # the pairs of offset k, by input, are those of offset K - 1 - k, by output
                mirrored = kernel_map.num_offsets - 1 - offset
                order = torch.arange(kernel_map.num_pairs, device=indptr.device) - indptr[offset] + indptr[mirrored]
                inputs, outputs = outputs[order], inputs[order]
            else:
                order = torch.argsort(offset * max(kernel_map.shape[1], 1) + outputs)
                inputs, outputs = inputs[order], outputs[order]
        made = KernelMap._make(
            inputs, outputs, indptr.clone(), kernel_map.shape[::-1], kernel_map.symmetric, kernel_map.monotone
        )
        _set(made, "_reverse", weakref.ref(kernel_map))
        return made


class RelGraphOf(Derived[RelGraph]):
    """The pairs as the edges of a relational graph, one relation an offset, in their order."""

    def compute(self, kernel_map: KernelMap) -> RelGraph:
        return RelGraph.from_triples(
            kernel_map.inputs,
            kernel_map.outputs,
            kernel_map.derived(Offsets()),
            kernel_map.shape,
            kernel_map.num_offsets,
        )


class GraphOf(Derived[Graph]):
    """The pairs as the edges of a graph, in their order: what pooling reduces over."""

    def compute(self, kernel_map: KernelMap) -> Graph:
        return Graph.from_coo(kernel_map.outputs, kernel_map.inputs, kernel_map.shape)


class NeighbourTable(Derived[Tensor]):
    """(number of outputs, K) the input row that an output meets at each offset, -1 where there is none."""

    def compute(self, kernel_map: KernelMap) -> Tensor:
        table = kernel_map.inputs.new_full((kernel_map.shape[0], kernel_map.num_offsets), -1)
        at = kernel_map.outputs.long() * kernel_map.num_offsets + kernel_map.derived(Offsets())
        table.view(-1)[at] = kernel_map.inputs
        return table


def _check_once(name: str, offset: Tensor, rows: Tensor, count: int) -> Tensor:
    """No row occurs twice at one offset. Returns the order of pairs by offset, then by row."""
    keys, order = torch.sort(offset * max(count, 1) + rows)
    again = keys[1:] == keys[:-1]
    if bool(again.any()):
        pair = int(order[1:][again][0])
        raise ValueError(
            f"{name}[{pair}] = {int(rows[pair])} is there twice at offset {int(offset[pair])}: at one offset of the "
            "kernel a row meets at most one other"
        )
    return order
