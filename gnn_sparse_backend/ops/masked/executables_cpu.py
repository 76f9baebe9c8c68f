"""Attention and products on the blocks of a mask on the CPU: no autograd, operands already validated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...planner.cpu.spmm import group_count
from ...runtime.layout import in_memory
from ...runtime.memory import empty
from ...runtime.threads import planned_threads
from ...runtime.type_names import accumulator_of, type_name
from ...structures.masks import Mask
from .arrays import narrowed, padding_of, shared_out, some_feature, task_structure, value_order, without_padding
from .change import Change, arguments_of
from .dropout import Dropout, scalars
from .programs.spec import MaskedSpec
from .schedules_cpu import WORKSPACES, masked_kernel, spec_of

LARGEST, SIDE = 128, 64
"""Side of the largest blocks that attention goes by, and of those that larger ones are cut into."""
PARTS = 8
"""Tasks of a backward pass at least: with fewer heads of sequences than that their keys are shared out, and each share
adds up a gradient of the queries of its own.
"""
SHARES, LEAST_SHARE = 32, 2048
"""Where there are fewer heads of sequences than ``SHARES``, the keys of few queries are shared out among about that
many items, each of ``LEAST_SHARE`` keys or more. Threads do not count: results do not depend on their number.
"""
NARROW = 2
"""Vectors of keys in a block that few queries look at: memory brings the next ones while these are multiplied."""
OF_KEYS = ("backward", "dots", "sums_transposed")
"""Programs on the transposed mask."""


def _run(
    make: str,
    mask: Mask,
    spec: MaskedSpec,
    operands: dict[str, Tensor],
    given: dict[str, Any],
    work: int,
    parts: int = 0,
    shares: int = 1,
) -> None:
    """Run a program of `schedules_cpu.PROGRAMS`, with arguments by the names of the parameters.

    operands: in any strides but the last. work: multiplications for a pair. parts: of the keys of a head of a sequence,
    of which a task has whole ones; 0: tasks have any rows of blocks. shares: heads of the mask for each of operands.
    """
    own = mask.transposed() if make in OF_KEYS else mask
    x = next(iter(operands.values()))
    batch, heads = x.shape[0], x.shape[1] * shares
    groups = batch * heads // mask.heads
    pairs, lines = mask.num_blocks * groups * mask.block**2, groups * mask.heads * own.block_rows
    count = group_count(pairs, lines, work, planned_threads())
    known = task_structure(own, batch, heads, spec.line, spec.vectors * spec.lanes, count, parts)
    tasks, strided = known["num_tasks"], {}
    for name, operand in operands.items():
        strided[name] = flat = _flat(operand)
        sizes = flat.numel(), *operand.stride()[:3]
        strided |= {f"{name}_{what}": size for what, size in zip(("span", "batch", "head", "row"), sizes)}
    if spec.tiles and make in WORKSPACES:
        strided["Work"] = empty(x, tasks, sum(WORKSPACES[make](spec).values()))
    padding = padding_of(mask.padding, batch)
    masked_kernel(make, spec, count > 1 and tasks > 1).run(known, padding, strided, given)


def _spec(
    mask: Mask,
    x: Tensor,
    width: int,
    value_width: int,
    dropout: bool = False,
    change: Change | None = None,
    queries: int = 0,
) -> MaskedSpec:
    modifier, padded = None if change is None else change.modifier, mask.padding is not None
    dtype = type_name(x.dtype)
    return spec_of(mask.block, width, value_width, dtype, padded, dropout, modifier=modifier, queries=queries)


def attend(
    mask: Mask,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    dropout: Dropout | None,
    change: Change | None = None,
) -> tuple[Tensor, Tensor]:
    """(the result, the logarithm of the sum of exponentials of each query: (batch, heads, queries))."""
    (batch, heads, queries), value_width, acc = q.shape[:3], v.shape[3], accumulator_of(q.dtype)
    if not q.shape[:3].numel() or not value_width or not k.shape[2]:
        return q.new_zeros(batch, heads, queries, value_width), q.new_full(q.shape[:3], torch.inf, dtype=acc)
    q, k, v = _ready(some_feature(q)), _ready(some_feature(k)), _ready(v)
    mask, width = _cut(mask), q.shape[3]
    spec = _spec(mask, q, width, value_width, dropout is not None, change, queries)
    if spec.in_features:
        side = NARROW * spec.lanes
        mask = _with_padding(narrowed(mask, mask.block if mask.block % side else side), mask.padding)
        spec = replace(spec, block=mask.block)
    shares = _shares(mask, spec, batch * heads)
    if shares > 1:
        mask = _with_padding(shared_out(mask, shares), mask.padding)
        change = None if change is None else change.of_shares(shares)
        spec = replace(spec, shared_out=True)
    out, lse = empty(q, batch, heads, queries, value_width), empty(q, batch, heads, queries, dtype=acc)
    given = scalars(q, scale, dropout) | {"Out": out.view(-1, value_width), "Lse": lse.view(-1, 1)}
    if shares > 1:
        rows = batch * heads * shares * queries
        given |= {"shares": shares, "num_results": lse.numel(), "PartSums": empty(q, rows, value_width, dtype=acc)}
        given |= {name: empty(q, rows, 1, dtype=acc) for name in ("PartMost", "PartTotal")}
    given |= arguments_of(change)
    _run("forward", mask, spec, {"Q": q, "K": k, "V": v}, given, width + value_width, shares=shares)
    return out, lse


def _shares(mask: Mask, spec: MaskedSpec, planes: int) -> int:
    """Into how many parts the keys of few queries are cut, so that there is work for all threads.

    planes: batch * heads. Weights are dropped by the numbers of planes, which parts would change.
    """
    if not spec.queries or spec.dropout:
        return 1
    return max(1, min(-(-SHARES // planes), mask.num_blocks // mask.heads * mask.block // LEAST_SHARE))


def attend_backward(
    mask: Mask,
    operands: tuple[Tensor, Tensor, Tensor],
    out: Tensor,
    lse: Tensor,
    g: Tensor,
    scale: float,
    dropout: Dropout | None,
    change: Change | None = None,
    delta: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, given that of the result. delta: as of `delta_of`, or more."""
    own_width = operands[0].shape[3]
    q, k, v = _ready(some_feature(operands[0])), _ready(some_feature(operands[1])), _ready(operands[2])
    batch, heads, queries, width = q.shape
    keys, value_width = v.shape[2:]
    planes, acc = batch * heads, accumulator_of(q.dtype)
    if not out.numel() or not keys:
        return tuple(x.new_zeros(x.shape) for x in operands)  # type: ignore[return-value]
    g = _ready(g)
    delta = delta_of(out, g) if delta is None else delta
    mask = _cut(mask)
    spec = _spec(mask, q, width, value_width, dropout is not None, change)
    parts = min(-(-PARTS // planes), mask.block_columns)
    sums = empty(q, parts, planes, mask.block_rows * mask.block, spec.padded(width), dtype=acc).zero_()
    dk = empty(k, batch, heads, keys, width)
    dv = empty(v, batch, heads, keys, value_width)
    given = scalars(q, scale, dropout) | {
        "parts": parts,
        "planes": planes,
        "block_cols": mask.block_rows,
        "num_sums": parts * planes * mask.block_rows * mask.block,
        "num_queries": planes * queries,
        "Lse": lse.reshape(-1),
        "Delta": delta.view(-1),
        "DQ": sums.view(-1, spec.padded(width)),
        "DK": dk.view(-1, width),
        "DV": dv.view(-1, value_width),
        **arguments_of(change),
    }
    work = 3 * width + 2 * value_width
    _run("backward", mask, spec, {"Q": q, "K": k, "V": v, "G": g}, given, work, parts)
    dq = (sums[0] if parts == 1 else sums.sum(0))[:, :queries, :own_width]
    dq = empty(q, batch, heads, queries, own_width).copy_(dq.unflatten(0, (batch, heads)))
    return dq, dk[..., :own_width].contiguous(), dv


def delta_of(out: Tensor, g: Tensor) -> Tensor:
    """(batch, heads, queries) what a result and its gradient have in common, in the accumulation type."""
    return empty(g, *g.shape, dtype=accumulator_of(g.dtype)).copy_(g).mul_(out).sum(3)


def dots(mask: Mask, a: Tensor, b: Tensor) -> Tensor:
    """(batch, heads / heads of the mask, blocks, block, block): dot products at the pairs of the mask."""
    a, b = _ready(a), _ready(b)
    batch, heads, _, width = a.shape
    out = empty(a, batch, heads // mask.heads, mask.num_blocks, mask.block, mask.block)
    if not out.numel() or not width:
        return out.zero_()
    mask = without_padding(mask)
    _run("dots", mask, _spec(mask, b, width, 1), {"K": b, "Q": a}, _values(out, mask, True), width)
    return out


def sums(mask: Mask, values: Tensor, b: Tensor, transposed: bool) -> Tensor:
    """(batch, heads, rows, width): sums over the pairs of each query, or of each key where ``transposed``."""
    b = _ready(b)
    batch, heads, _, width = b.shape
    out = empty(b, batch, heads, mask.shape[1 if transposed else 0], width)
    if not out.numel():
        return out
    if not values.numel():
        return out.zero_()
    mask, make = without_padding(mask), "sums_transposed" if transposed else "sums"
    given = _values(values.contiguous(), mask, transposed) | {"Out": out.view(-1, width)}
    _run(make, mask, _spec(mask, b, 1, width), {"B": b}, given, width)
    return out


def _values(values: Tensor, mask: Mask, transposed: bool) -> dict[str, Any]:
    flat = values.view(-1, mask.block**2)
    return {"value_rows": flat.shape[0], "Order": value_order(mask, transposed), "Values": flat}


def _cut(mask: Mask) -> Mask:
    """The mask in blocks that a cache holds."""
    return mask if mask.block <= LARGEST else _with_padding(narrowed(mask, SIDE), mask.padding)


def _with_padding(mask: Mask, padding: Tensor | None) -> Mask:
    """A mask without padding with one: what is derived of it is shared."""
    if padding is None:
        return mask
    return Mask._make(mask.shape, mask.heads, mask.block, mask._arrays[:4], padding, mask.facts)


def _ready(x: Tensor) -> Tensor:
    """x itself, in any strides but the last, if kernels can read it."""
    if x.is_neg():
        x = x.resolve_neg()
    if x.stride(3) != 1 and x.shape[3] != 1:
        x = x.contiguous()
    return x if in_memory(x, x.element_size()) else x.clone(memory_format=torch.contiguous_format)


def _flat(x: Tensor) -> Tensor:
    """All that the storage has from the first to the last element of x."""
    last = sum((n - 1) * step for n, step in zip(x.shape[:3], x.stride()[:3]))
    return x.as_strided((last + x.shape[3],), (1,))
