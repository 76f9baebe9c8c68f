"""Sums and means over locally dense graphs on a GPU, from blocks that are made once for a graph.

Sums of the features of sources, times any numbers of the edges and sources: SpMM with and without weights, of one head
or of several, and its gradient by the features, that of a mean too.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ....compiler.cache.bounded import kept, shared
from ....compiler.cache.kernel import Kernel
from ....compiler.language.reduction import REDUCTIONS, adds
from ....formats.block_counts import BlockCounts, count_blocks
from ....formats.bsr import BsrFormat
from ....formats.sr_bcrs import SrBcrsFormat
from ....frozen import dataclass
from ....planner.cuda.blocks import BlockPlan, most_in_bsr, most_slots, refusal
from ....planner.cuda.tensor_cores import block_of
from ....runtime.layout import compact
from ....runtime.memory import empty
from ....runtime.precision import on_tensor_cores
from ....runtime.type_names import type_name
from ....structures.derived import fact
from ...core.executable import build, builds
from ...core.last_run import note
from ..message_op import MessageOp
from ..programs.aggregate import AggregateSpec
from ..programs.message import Message
from ..schedules_blocks import bsr_kernel
from .aggregation import final_plan
from .parts_cuda import OnTeams

_kernels = shared("kernels of blocks")


@dataclass(frozen=True, eq=False)
class Blocks:
    """What blocks make of a graph.

    stored: the graph in the format that the planner takes, None where both store too much. in_sr_bcrs, in_bsr: elements
    that each stores, or would store; 0 where that does not matter. counts: None where coordinates cannot be numbered.
    """

    stored: BsrFormat | SrBcrsFormat | None
    in_sr_bcrs: int
    in_bsr: int
    counts: BlockCounts | None

    @property
    def shared(self) -> bool:
        """Whether edges share a slot."""
        return self.stored is not None and self.counts.coordinates < self.stored.nnz


def run_blocks(
    of: MessageOp | AggregateSpec, graph, operands: list[Tensor | None], arch: str, out: Tensor | None = None
) -> tuple[Tensor, Kernel] | None:
    """The aggregation on Tensor Cores, in ``out`` where that is given, and its kernel; None where it is none of these,
    or the graph is not dense enough.
    """
    which = _features_of(of, operands)
    if which is None:
        return None
    x, numbers = operands[which], [(of.places[n], y) for n, y in enumerate(operands) if n != which]
    heads = _heads(x, [y for _, y in numbers])
    if not heads or operands[0].dtype is not x.dtype or not on_tensor_cores(x.dtype):
        return None
    if any(place == "edge" and y.shape[0] != graph.num_edges for place, y in numbers):
        return None
    features = x.shape[1:].numel() // heads
    if refusal(graph.num_edges, features, type_name(x.dtype), arch, bool(numbers)):
        return None
    blocks = dense_blocks(graph, block_of(type_name(x.dtype)))
    stored = blocks.stored
    values = None if stored is None else _values(graph, blocks, x.dtype, heads, numbers)
    if values is None:
        return None
    mean, listed = REDUCTIONS[of.reduce].divides, type(stored) is SrBcrsFormat
    key = (features, mean, type_name(x.dtype), type_name(stored.index_dtype), arch, listed, heads)
    kernel = _kernels.get(key)
    if kernel is None:
        kernel = _kernels.keep(key, bsr_kernel(*key))
    rows, cols = graph.shape
    out = empty(x, rows, *x.shape[1:]) if out is None else out
    degrees = (graph.in_degrees.to(stored.index_dtype),) if mean else ()
    across = () if listed else (-(-cols // stored.block[1]),)
    sizes = stored.indptr.numel() - 1, *across, stored.mask.shape[0], rows, cols
    arrays = stored.indptr, stored.indices, values, stored.mask.view(torch.uint8), *degrees
    kernel.entry(*sizes, *arrays, compact(x).view(cols, heads, features), out.view(rows, heads, features))
    return out, kernel


@fact
def dense_blocks(graph, block: tuple[int, int]) -> Blocks:
    """The blocks of a graph: counted, which waits for the GPU once, and made if they pay."""
    counts = count_blocks(graph.indptr, graph.indices, graph.shape, block)
    if counts is None:  # there are more places for blocks than can be numbered
        return Blocks(None, 0, 0, None)
    in_sr_bcrs, in_bsr = counts.groups * block[0] * block[1], counts.blocks * block[0] * block[1]
    if in_sr_bcrs > most_slots(graph.num_edges):  # BSR would store no less
        return Blocks(None, in_sr_bcrs, 0, counts)
    kind = BsrFormat if in_bsr <= most_in_bsr(graph.num_edges, in_sr_bcrs) else SrBcrsFormat
    csr, most = (graph.indptr, graph.indices, graph.shape), most_slots(graph.num_edges)
    stored = kind.from_csr(*csr, block, max_slots=most, check=False, counts=counts)
    return Blocks(stored, in_sr_bcrs, in_bsr, counts)


@fact
def edges_of_slots(graph, block: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """(1, blocks, 16, columns): how many edges each slot of the blocks has, in a floating type."""
    stored = dense_blocks(graph, block).stored
    return stored.pad_values(torch.ones(stored.nnz, device=stored.device)).to(dtype).unsqueeze(0)


@fact
def entries_of_slots(graph, block: tuple[int, int], place: str) -> Tensor:
    """(slots,) the entry of an operand in each slot, one past its last for none; of edges that share no slot. What is
    kept is the places alone, for the operand may change between calls."""
    stored, numbers = dense_blocks(graph, block).stored, _numbers(graph, place)
    position = stored.position_of_slots().flatten()
    entry = position if numbers is None else numbers.index_select(0, position.clamp(min=0))
    return torch.where(position < 0, graph.shape[1] if place == "column" else graph.num_edges, entry)


def _values(graph, blocks: Blocks, dtype: torch.dtype, heads: int, numbers: list) -> Tensor | None:
    """What the blocks store, (heads, blocks, 16, columns): numbers of edges, or the products of their numbers. None
    where a slot has more edges than the type counts, or several, whose numbers would be added up in any order."""
    stored = blocks.stored
    if not numbers:
        if blocks.counts.most * torch.finfo(dtype).eps > 2:
            return None
        return edges_of_slots(graph, stored.block, dtype)
    if blocks.shared:
        return None
    numbers = [(place, y.reshape(y.shape[0], -1)) for place, y in numbers]
    place, product = numbers[0] if len(numbers) == 1 else ("position", None)
    known = "position" if _numbers(graph, place) is None else place
    entries = entries_of_slots(graph, stored.block, known)
    if product is None:
        in_order = [
            y if at is None else y.index_select(0, at)
            for at, y in ((_numbers(graph, place), y) for place, y in numbers)
        ]
        product = functools.reduce(torch.mul, in_order)
    product = product.to(dtype).expand(-1, heads)
    laid = [torch.cat([y, y.new_zeros(1)]).index_select(0, entries) for y in product.unbind(1)]
    return (laid[0] if heads == 1 else torch.stack(laid)).view(heads, *stored.mask.shape)


def _numbers(graph, place: str) -> Tensor | None:
    """The entry of an operand at each CSR position, None where that is the position itself. place: of the operand, or
    "position".
    """
    return {"edge": graph.edge_ids, "column": graph.indices, "position": None}[place]


@kept
def _is_product(of: MessageOp | AggregateSpec) -> bool:
    """Whether the form sums products of operands of columns and edges, each of which occurs once."""
    factors, parts = [], [of.message]
    while parts:
        part: Message = parts.pop()
        if part.op == "mul":
            parts += part.parts
        elif part.op == "arg":
            factors += part.parts
        else:
            return False
    return (
        adds(of.reduce)
        and sorted(factors) == list(range(len(of.places)))
        and "column" in of.places
        and set(of.places) <= {"column", "edge"}
    )


def _features_of(of: MessageOp | AggregateSpec, operands: list[Tensor | None]) -> int | None:
    """The operand of the features where the form is such a sum: that of columns with the most of them."""
    if not _is_product(of):
        return None
    return max(
        (n for n, place in enumerate(of.places) if place == "column"), key=lambda n: operands[n].shape[1:].numel()
    )


def _heads(x: Tensor, numbers: list[Tensor]) -> int:
    """Heads that have numbers of their own, 1 where all have the same; 0 where the numbers are none of a whole head."""
    heads = 1
    for y in numbers:
        if y.dim() > x.dim() or y.dtype not in (x.dtype, torch.float32):
            return 0
        if y.shape[1:].numel() == 1:
            continue
        if x.dim() != 3 or y.shape[1:] != (x.shape[1], 1):
            return 0
        heads = x.shape[1]
    return heads


@builds(AggregateSpec, BlockPlan)
class OnBlocks(OnTeams):
    """An aggregation on Tensor Cores where the graph fills blocks; else by the rest of the plan."""

    variants: ClassVar = {
        "blocks": "where the graph fills them, each slot has few edges, and PyTorch allows the type to be cut",
        "rows": "elsewhere",
    }

    def __init__(self, spec: AggregateSpec, plan: BlockPlan):
        super().__init__(spec, plan)
        self.otherwise = build(spec, plan.rest)

    @classmethod
    def final(cls, spec: AggregateSpec, plan: BlockPlan) -> BlockPlan:
        return replace(plan, rest=final_plan(plan.rest, spec))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return super().kernels + self.otherwise.kernels

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        found = run_blocks(self.spec, graph, operands, self.plan.arch, results[0])
        if found is None:
            self.otherwise(graph, operands, results)
            return
        self._kernels[found[1].key] = found[1]
        note(self, "blocks")
