"""Sparse convolution on the CPU: calls of one shape and type on a map, made for `executables`."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from ...compiler.codegen import host_target
from ...planner.cpu.convolution import (
    ORDERS,
    chunk_of,
    conv_costs,
    shares_of_sum,
    shares_of_tasks,
    splits_of_sum,
)
from ...planner.cpu.products import ConvPlan
from ...runtime.layout import kernel_ready, matrices
from ...runtime.memory import empty
from ...runtime.type_names import accumulator_of, type_name
from ...structures.kernel_map import KernelMap
from ..core.executable import Launch, in_threads
from ..grouped.executables import in_bf16_pairs
from .programs.pack import PackSpec
from .programs.spec import ConvSpec
from .schedules_cpu import conv_kernel, pack_kernel, spec_of
from .tasks import Counts, OffsetTasks, PairsOfRows, Parts, RowRanges, RowTasks, Shares, SumTasks

Call = Callable[..., Tensor]


def predicted(
    kernel_map: KernelMap, groups: int, in_features: int, out_features: int, dtype: torch.dtype
) -> dict[str, float]:
    """What each dataflow costs, in multiply-adds."""
    name = type_name(dtype)
    counts = kernel_map.unmirrored.derived(Counts(spec_of("offsets", in_features, out_features, name, "int32").block))
    return conv_costs(counts, groups, in_features, out_features, host_target().lanes(name), dtype.itemsize)


def product(
    kernel_map: KernelMap,
    plan: ConvPlan,
    groups: int,
    in_features: int,
    out_features: int,
    dtype: torch.dtype,
    threads: int,
) -> Call:
    """What runs products of one shape and type on the map; it does not hold the map."""
    order = plan.dataflow
    if order == "depthwise":
        return _depthwise(kernel_map, plan, groups, dtype, threads)
    if order not in ORDERS:
        raise ValueError(f"order must be one of {ORDERS}, got {order!r}")
    # the transpose of a symmetric map has its pairs, offset K - 1 - k those of k
    mirrored, kernel_map = kernel_map, kernel_map.unmirrored
    (rows, columns), index = kernel_map.shape, kernel_map.indptr.dtype
    spec = spec_of(order, in_features, out_features, type_name(dtype), type_name(index), vectors=plan.vectors)
    tiles = -(-out_features // spec.tile)
    work = kernel_map.num_pairs * groups * in_features * tiles * spec.tile
    ranges, splits = shares_of_tasks(rows, groups * tiles, work, threads)
    ranges = min(plan.scaled(ranges), rows)
    described = ranges, splits, groups * tiles, spec.block
    if order == "offsets":
        sizes, arrays, _ = kernel_map.derived(OffsetTasks(*described))
        sizes, arrays = (*sizes, rows, columns, kernel_map.num_pairs), (*arrays, kernel_map.inputs, kernel_map.outputs)
        offset = OffsetTasks.OFFSET
    else:
        sizes, arrays = kernel_map.derived(RowTasks(*described))
        sizes, offset = (*sizes, rows, columns), RowTasks.OFFSET
    if mirrored is not kernel_map:
        arrays = *arrays[:offset], kernel_map.num_offsets - 1 - arrays[offset], *arrays[offset + 1 :]
    wide_in, wide_out = groups * in_features, groups * tiles * spec.tile
    steps = in_features // 2 if spec.bf16_pairs else in_features
    sizes = (*sizes, kernel_map.num_offsets, groups * tiles, tiles, in_features, wide_in, wide_out, steps)
    parallel = sizes[0] > 1 and plan.is_parallel(work, threads)
    entry = Launch(conv_kernel(order, spec, parallel), f"by {order}, {in_threads(parallel)}")
    wide = accumulator_of(dtype)

    def run(x: Tensor, w: Tensor) -> Tensor:
        out = empty(x, rows, wide_out, dtype=wide)
        entry(*sizes, *arrays, _operand(x, spec), _packed(w, spec, tiles, parallel), out)
        return _narrowed(out, groups, out_features).to(dtype)

    return run


def sums(
    kernel_map: KernelMap,
    plan: ConvPlan,
    groups: int,
    in_features: int,
    out_features: int,
    dtype: torch.dtype,
    threads: int,
) -> Call | None:
    """What runs sums of outer products of one shape and type on the map; None where rows are too wide for chunks."""
    alone = groups > 1 and in_features == out_features == 1
    (rows, columns), offsets, index = kernel_map.shape, kernel_map.num_offsets, type_name(kernel_map.indptr.dtype)
    matrix = groups * in_features * out_features
    work = kernel_map.num_pairs * matrix
    shares = min(plan.scaled(shares_of_sum(kernel_map.num_pairs, matrix)), kernel_map.num_pairs)
    wide, make = accumulator_of(dtype), "depthwise_sums" if alone else "sums"
    spec = spec_of(make, in_features, groups if alone else out_features, type_name(dtype), index, vectors=plan.vectors)
    tiles = -(-(groups if alone else out_features) // spec.tile)
    width = tiles * spec.tile
    *_, full, more = kernel_map.derived(Parts(shares))
    slots = offsets + more.numel()
    if alone:
        sizes, arrays = kernel_map.derived(Shares(shares))
        sizes = [*sizes, kernel_map.num_pairs, columns, rows, slots, tiles, width]
        shape: tuple[int, ...] = (slots, width)
    else:
        chunk, stride = chunk_of(max(in_features, width))
        if not chunk:
            return None
        splits = splits_of_sum(shares, tiles, work, threads)
        sizes, arrays = kernel_map.derived(SumTasks(shares, chunk, splits, tiles))
        sizes = [*sizes, kernel_map.num_pairs, columns, rows, slots, groups, -(-in_features // spec.block)]
        sizes += [in_features, groups * in_features, groups * width, width, stride, *divmod(in_features, spec.lanes)]
        shape = (slots, groups, in_features, width)
    arrays = (*arrays, kernel_map.inputs, kernel_map.outputs)
    parallel = sizes[0] > 1 and plan.is_parallel(work, threads)
    entry = Launch(conv_kernel(make, spec, parallel), in_threads(parallel))

    def run(x: Tensor, g: Tensor) -> Tensor:
        out = empty(x, *shape, dtype=wide)
        if not full:
            out[:offsets].zero_()
        x = _operand(_padded(x, width) if alone else x, spec)
        g = _operand(_padded(g, width) if alone else _padded(g.unflatten(1, (groups, -1)), width).flatten(1), spec)
        entry(*sizes, *arrays, x, g, out)
        if more.numel():
            out[:offsets].index_add_(0, more, out[offsets:])
        found = out[:offsets, :groups, None, None] if alone else out[:offsets, ..., :out_features]
        # nobody keeps the further matrices alive
        return found.to(dtype, memory_format=torch.contiguous_format, copy=slots > offsets).contiguous()

    return run


def _depthwise(kernel_map: KernelMap, plan: ConvPlan, width: int, dtype: torch.dtype, threads: int) -> Call:
    """Products of channels by themselves."""
    (rows, columns), index = kernel_map.shape, kernel_map.indptr.dtype
    spec = spec_of("depthwise", 1, width, type_name(dtype), type_name(index))
    tiles = -(-width // spec.tile)
    wide_out = tiles * spec.tile
    ranges, _ = shares_of_tasks(rows, 1, kernel_map.num_pairs * wide_out, threads)
    ranges = min(plan.scaled(ranges), rows)
    indptr, offset, inputs = kernel_map.derived(PairsOfRows())
    task_ptr = torch.from_numpy(kernel_map.derived(RowRanges(ranges))).to(index, copy=True)
    sizes = ranges, rows, columns, kernel_map.num_pairs, kernel_map.num_offsets, tiles, wide_out
    parallel = ranges > 1 and plan.is_parallel(kernel_map.num_pairs * wide_out, threads)
    entry = Launch(conv_kernel("depthwise", spec, parallel), f"depthwise, {in_threads(parallel)}")
    wide = accumulator_of(dtype)

    def run(x: Tensor, w: Tensor) -> Tensor:
        out = empty(x, rows, wide_out, dtype=wide)
        matrix = _padded(w.flatten(1), wide_out).to(wide).contiguous()
        entry(*sizes, task_ptr, indptr, offset, inputs, _operand(_padded(x, wide_out), spec), kernel_ready(matrix), out)
        return _narrowed(out, 1, width).to(dtype)

    return run


def _operand(x: Tensor, spec: ConvSpec) -> Tensor:
    """x as a program of this spec takes it."""
    return kernel_ready(x if type_name(x.dtype) == spec.dtype else x.to(accumulator_of(x.dtype)))


def _packed(w: Tensor, spec: ConvSpec, tiles: int, parallel: bool) -> Tensor:
    """(K, groups * tiles, F_in, tile): the columns of each matrix in tiles, filled up with zeros; in pairs (K, groups *
    tiles, F_in / 2, 2 * tile)."""
    w, tile = _padded(w, tiles * spec.tile), spec.tile
    if spec.bf16_pairs:
        w, tile = in_bf16_pairs(w), 2 * tile
    w, by_columns = matrices(w)
    count, (rows, columns) = prod(w.shape[:2]), (w.shape[:1:-1] if by_columns else w.shape[2:])
    found = empty(
        w, w.shape[0], w.shape[1] * tiles, rows, tile, dtype=w.dtype if spec.bf16_pairs else accumulator_of(w.dtype)
    )
    pack = PackSpec(tile, by_columns, type_name(w.dtype), type_name(found.dtype))
    pack_columns = Launch(pack_kernel(pack, parallel), in_threads(parallel))
    pack_columns(count, tiles, rows, columns, w.view(count, *w.shape[2:]), found.view(count, tiles, rows, tile))
    return found


def _padded(x: Tensor, width: int) -> Tensor:
    """x with ``width`` columns, the last of them zeros."""
    lack = width - x.shape[-1]
    return torch.nn.functional.pad(x, (0, lack)) if lack else x


def _narrowed(out: Tensor, groups: int, width: int) -> Tensor:
    """The columns of each group that the result has: (rows, groups * width)."""
    if out.shape[1] == groups * width:
        return out
    return out.view(out.shape[0], groups, -1)[:, :, :width].reshape(out.shape[0], groups * width).contiguous()
