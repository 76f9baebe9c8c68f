"""Attention and products on the blocks of a mask on the CPU: no autograd, operands already validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...planner.cpu.spmm import group_count
from ...runtime.layout import in_memory
from ...runtime.memory import empty
from ...runtime.type_names import accumulator_of, type_name
from ...structures.masks import Mask
from ..core.last_run import Launch, in_threads
from .arrays import narrowed, tasks_of, tile_columns, tile_reach, value_order
from .dropout import least_word
from .programs.spec import MaskedSpec
from .schedules_cpu import WORKSPACES, masked_kernel, spec_of

LARGEST = 128
"""Side of the largest blocks that attention goes by; larger ones are cut."""
PARTS = 8
"""Tasks of a backward pass at least: with fewer heads of sequences than that their keys are shared out, and each share
adds up a gradient of the queries of its own.
"""


class Dropout(NamedTuple):
    """probability: of a weight to be dropped. seed: (2,) int64, words of 32 bits."""

    probability: float
    seed: Tensor


@dataclass(frozen=True)
class Problem:
    """A call on a mask, or on its transpose: what all programs are given.

    rows, columns: lengths, of keys and queries where ``mask`` is the transpose.
    """

    mask: Mask
    batch: int
    heads: int
    spec: MaskedSpec
    padding: Tensor | None

    def run(self, make: str, operands: list[Tensor], rest: tuple, rows: int, whole: int = 0, work: int = 0) -> None:
        """whole: parts of a head of a sequence that one task has; 0: tasks have any rows of blocks."""
        mask, spec = self.mask, self.spec
        groups = self.batch * self.heads // mask.heads
        threads = torch.get_num_threads()
        pairs = mask.num_blocks * groups * mask.block**2
        count = group_count(pairs, groups * mask.heads * mask.block_rows, work, threads)
        tasks = tasks_of(mask, groups, count, whole)
        columns, some, some_row = tile_columns(mask, spec.line)
        reach = tile_reach(mask, spec.line, spec.vectors * spec.lanes)
        lines = mask.indptr.numel() - 1
        flat = [_flat(x) for x in operands]
        sizes = (
            *(
                tasks.count,
                groups * lines,
                groups * mask.num_blocks,
                mask.num_blocks,
                columns.shape[0],
                reach.numel(),
                lines,
            ),
            *(mask.block_rows, mask.heads, self.heads, *mask.shape, rows),
        )
        extra: tuple = (some, some_row) if make == "backward" else (some,)
        if spec.padding:
            assert self.padding is not None
            allowed = self.padding.to(torch.uint8).expand(self.batch, -1).reshape(-1)
            sizes, extra = (*sizes, allowed.numel()), (*extra, allowed)
        numbers = tuple(x for x in rest if not isinstance(x, Tensor))
        tensors = tuple(x for x in rest if isinstance(x, Tensor))
        strides = tuple(n for x, own in zip(operands, flat) for n in (own.numel(), *own_strides(x)))
        arrays = tasks.task_ptr, tasks.block_ptr, tasks.first_item, tasks.first, mask.indices, mask.tile, columns, reach
        if spec.tiles and make in WORKSPACES:
            tensors = *tensors, empty(operands[0], tasks.count, WORKSPACES[make](spec))
        parallel = count > 1 and tasks.count > 1
        launch = Launch(masked_kernel(make, spec, parallel), f"{make}, {in_threads(parallel)}")
        launch(*sizes, *strides, *numbers, *arrays, *extra, *flat, *tensors)


def _problem(mask: Mask, x: Tensor, width: int, value_width: int, transposed: bool, dropout: bool = False) -> Problem:
    spec = spec_of(mask.block, width, value_width, type_name(x.dtype), mask.padding is not None, dropout)
    return Problem(mask.transposed() if transposed else mask, x.shape[0], x.shape[1], spec, mask.padding)


def attend(mask: Mask, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: Dropout | None) -> tuple[Tensor, Tensor]:
    """(the result, the logarithm of the sum of exponentials of each query: (batch, heads, queries))."""
    batch, heads, queries, width = q.shape
    value_width = v.shape[3]
    out = empty(q, batch, heads, queries, value_width)
    lse = empty(q, batch, heads, queries, dtype=accumulator_of(q.dtype))
    if not lse.numel() or not value_width or not k.shape[2]:
        return out.zero_(), lse.fill_(torch.inf)
    q, k, v = _ready(some_feature(q)), _ready(some_feature(k)), _ready(v)
    width = q.shape[3]
    problem = _problem(_cut(mask), q, width, value_width, False, dropout is not None)
    rows = batch * heads * queries
    rest = (*_scalars(q, scale, dropout), out.view(rows, value_width), lse.view(rows, 1))
    problem.run("forward", [q, k, v], rest, rows, work=width + value_width)
    return out, lse


def attend_backward(
    mask: Mask,
    operands: tuple[Tensor, Tensor, Tensor],
    out: Tensor,
    lse: Tensor,
    g: Tensor,
    scale: float,
    dropout: Dropout | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, given that of the result."""
    own_width = operands[0].shape[3]
    q, k, v = _ready(some_feature(operands[0])), _ready(some_feature(operands[1])), _ready(operands[2])
    batch, heads, queries, width = q.shape
    keys, value_width = v.shape[2:]
    planes, acc = batch * heads, accumulator_of(q.dtype)
    if not out.numel() or not keys:
        return tuple(x.new_zeros(x.shape) for x in operands)  # type: ignore[return-value]
    g = _ready(g)
    delta = torch.einsum("bhnd,bhnd->bhn", g.to(acc), out.to(acc)).contiguous()
    problem = _problem(_cut(mask), q, width, value_width, True, dropout is not None)
    own, spec = problem.mask, problem.spec
    parts = min(-(-PARTS // planes), own.block_rows)
    rows = -(-queries // own.block) * own.block
    sums = q.new_zeros(parts, planes, rows, spec.padded(width), dtype=acc)
    dk = empty(k, batch, heads, keys, width)
    dv = empty(v, batch, heads, keys, value_width)
    rest = (
        *(parts, planes, own.block_columns, parts * planes * rows, planes * queries),
        *_scalars(q, scale, dropout),
        *(lse.reshape(-1), delta.view(-1), sums.view(-1, spec.padded(width))),
        *(dk.view(-1, width), dv.view(-1, value_width)),
    )
    problem.run("backward", [q, k, v, g], rest, planes * keys, parts, work=3 * width + 2 * value_width)
    dq = (sums[0] if parts == 1 else sums.sum(0))[:, :queries, :own_width]
    dq = dq.unflatten(0, (batch, heads)).to(q.dtype).contiguous()
    return dq, dk[..., :own_width].contiguous(), dv


def dots(mask: Mask, a: Tensor, b: Tensor) -> Tensor:
    """(batch, heads / heads of the mask, blocks, block, block): dot products at the pairs of the mask."""
    a, b = _ready(a), _ready(b)
    batch, heads, _, width = a.shape
    out = empty(a, batch, heads // mask.heads, mask.num_blocks, mask.block, mask.block)
    if not out.numel() or not width:
        return out.zero_()
    problem = _problem(without_padding(mask), b, width, 1, True)
    values = out.view(-1, mask.block**2)
    rest = values.shape[0], value_order(mask, True), values
    problem.run("dots", [b, a], rest, batch * heads * b.shape[2], work=width)
    return out


def sums(mask: Mask, values: Tensor, b: Tensor, transposed: bool) -> Tensor:
    """(batch, heads, rows, width): sums over the pairs of each query, or of each key where ``transposed``."""
    b = _ready(b)
    batch, heads, _, width = b.shape
    rows = mask.shape[1 if transposed else 0]
    out = empty(b, batch, heads, rows, width)
    if not out.numel():
        return out
    if not values.numel():
        return out.zero_()
    values = values.contiguous().view(-1, mask.block**2)
    problem = _problem(without_padding(mask), b, 1, width, transposed)
    make = "sums_transposed" if transposed else "sums"
    rest = values.shape[0], value_order(mask, transposed), values, out.view(-1, width)
    problem.run(make, [b], rest, batch * heads * rows, work=width)
    return out


def without_padding(mask: Mask) -> Mask:
    """The mask with all keys, which shares what is derived of it."""
    if mask.padding is None:
        return mask
    return Mask._make(mask.shape, mask.heads, mask.block, mask._arrays[:4], None, mask.facts)


def _cut(mask: Mask) -> Mask:
    """The mask in blocks that a cache holds."""
    if mask.block <= LARGEST:
        return mask
    found = narrowed(mask)
    return Mask._make(found.shape, found.heads, found.block, found._arrays[:4], mask.padding, found.facts)


def _scalars(like: Tensor, scale: float, dropout: Dropout | None) -> tuple[Tensor, ...]:
    numbers = torch.tensor([scale], dtype=accumulator_of(like.dtype))
    if dropout is None:
        return (numbers,)
    least = torch.tensor([least_word(dropout.probability)])
    factor = 1.0 / (1.0 - dropout.probability)
    return numbers, dropout.seed, least, torch.tensor([factor], dtype=accumulator_of(like.dtype))


def some_feature(x: Tensor) -> Tensor:
    """x with one feature, a zero, in the place of none: so scores are 0."""
    return x if x.shape[3] else x.new_zeros((*x.shape[:3], 1))


def _ready(x: Tensor) -> Tensor:
    """x itself, in any strides but the last, if kernels can read it."""
    if x.is_neg():
        x = x.resolve_neg()
    if x.stride(3) != 1 and x.shape[3] != 1:
        x = x.contiguous()
    return x if in_memory(x, x.element_size()) else x.clone(memory_format=torch.contiguous_format)


def own_strides(x: Tensor) -> tuple[int, ...]:
    """Steps of sequence, head and row."""
    return x.stride()[:3]


def _flat(x: Tensor) -> Tensor:
    """All that the storage has from the first to the last element of x."""
    last = sum((n - 1) * step for n, step in zip(x.shape[:3], x.stride()[:3]))
    return x.as_strided((last + x.shape[3],), (1,))
