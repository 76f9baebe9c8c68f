"""The boundary to the kernels of grouped products and sums: forward only, no autograd, operands already validated.

What a caller guarantees: all tensors on one device, floating operands of one type, indices in range.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.cache.bounded import shared
from ...planner.cpu.grouped import SUM_BLOCK
from ...planner.cuda.tensor_cores import ROWS
from ...runtime import devices
from ...runtime.layout import ByLayout, compact, kernel_ready, matrices
from ...runtime.memory import empty
from ...runtime.precision import on_tensor_cores
from ...runtime.type_names import accumulator_of, type_name
from ...structures.segments import Segments
from ..core.executable import Launch, in_threads
from . import schedules_cuda as cuda_grouped
from .outer_sums_cuda import OuterSums, takes_sum
from .programs.grouped import GroupedSpec
from .schedules_cpu import product_kernel, sum_kernel, takes_bf16_pairs
from .schedules_cuda import sum_lanes_kernel, sum_tiles_kernel

_entries = shared("kernels of grouped products and sums")
_CUDA_KERNELS = {
    sum_kernel: cuda_grouped.sum_kernel,
    sum_tiles_kernel: sum_tiles_kernel,
    sum_lanes_kernel: sum_lanes_kernel,
}


def run_grouped_mm(segments: Segments, a: Tensor, b: Tensor, at: Tensor | None = None) -> Tensor:
    """``out[n] = a[at[n]] @ b[segment of n]``: (rows, F_out)."""
    in_features, out_features = b.shape[1:]
    count = segments.num_rows
    if count == 0 or in_features == 0 or out_features == 0:
        return empty(a, count, out_features).zero_()
    arch = devices.arch_of(a.device)
    if arch:
        described = in_features, out_features, a.dtype, None if at is None else at.dtype, arch
        return segments.calls.found(
            (ProductOnGpu, on_tensor_cores(a.dtype), *described), lambda: ProductOnGpu(segments, *described)
        )(a, b, at)
    block, (groups, panels, *arrays) = segments.panels(in_features * out_features, torch.get_num_threads())
    rows = (segments.rows_of(at), segments.order)
    b = in_bf16_pairs(b) if takes_bf16_pairs(in_features, type_name(a.dtype)) else b
    a, b = kernel_ready(a), kernel_ready(b).contiguous()
    out = empty(a, count, out_features)
    sizes = [groups, panels, segments.num_segments, a.shape[0], count]
    entry = _entry(product_kernel, (in_features, out_features), block, rows, a.dtype, arrays, sizes, groups > 1)
    entry(*sizes, *arrays, a, b, out)
    return out


def in_bf16_pairs(w: Tensor) -> Tensor:
    """(..., F_in, F_out) as (..., F_in / 2, 2 * F_out): rows 2 i and 2 i + 1 side by side, column by column."""
    return w.unflatten(-2, (-1, 2)).transpose(-2, -1).flatten(-2)


class ProductOnGpu:
    """A product of one shape and type on segments: the kernel, and its arguments but for the operands.

    On Tensor Cores where they take matrices of this shape and type, by blocks of warps in full precision. index: the
    type of what names the rows of the left operand, None for rows in their order.
    """

    def __init__(
        self,
        segments: Segments,
        in_features: int,
        out_features: int,
        dtype: torch.dtype,
        index: torch.dtype | None,
        arch: str,
    ):
        count, name = segments.num_rows, type_name(dtype)
        make, block = None, cuda_grouped.BLOCK_ROWS
        if on_tensor_cores(dtype):
            tiles = cuda_grouped.tiles(in_features, out_features, name, arch)
            if tiles:
                make, block = cuda_grouped.tiles_kernel, ROWS * tiles
        else:
            panel = cuda_grouped.panel_of(count, segments.num_segments)
            if cuda_grouped.rows_spec(in_features, out_features, name, panel) is not None:
                make, block = cuda_grouped.rows_kernel, panel
        groups, panels, *arrays = segments.panels_apart(block)
        order = segments.order
        given = [] if order is None else [order, order] if index is None else [order]
        types = {x.dtype for x in (*arrays, *given)} | ({index} if index else set())
        self.index = types.pop() if len(types) == 1 else torch.int64
        self.arrays = [x.to(self.index) for x in (*arrays, *given)]
        self.order, self.at = order, len(arrays)
        gathered = (index is not None or order is not None, order is not None)
        # rows of the result, and positions where rows have indices
        self.sizes, self.counts = (groups, panels, segments.num_segments), (count, count) if gathered[0] else (count,)
        self.shape, self.either = (count, out_features), make is not None
        spec = GroupedSpec(in_features, out_features, block, 0, gathered, name, type_name(self.index))
        self.entries = ByLayout(
            lambda by_columns: Launch(
                make(spec, arch, by_columns) if make else cuda_grouped.product_kernel(spec, arch), f"panels on {arch}"
            )
        )

    def __call__(self, a: Tensor, b: Tensor, at: Tensor | None) -> Tensor:
        arrays = self.arrays
        if at is not None:
            at = at if self.order is None else at.index_select(0, self.order)
            arrays = [*arrays[: self.at], at.to(self.index), *arrays[self.at :]]
        out = torch.empty(self.shape, dtype=a.dtype, device=a.device)
        b, by_columns = matrices(b) if self.either else (compact(b), False)
        self.entries[by_columns](*self.sizes, a.shape[0], *self.counts, *arrays, compact(a), b, out)
        return out


def run_grouped_sum(segments: Segments, a: Tensor, g: Tensor, at: Tensor | None = None) -> Tensor:
    """``out[s] = sum over the rows n of segment s of the outer product of a[at[n]] and g[n]``: (segments, F_in,
    F_out).
    """
    in_features, out_features = a.shape[1], g.shape[1]
    shape = (segments.num_segments, in_features, out_features)
    if segments.num_rows == 0 or 0 in shape:
        return a.new_zeros(shape)
    arch = devices.arch_of(a.device)
    if arch and takes_sum(in_features, out_features, a.dtype, arch):
        return _sum_in_tiles(segments, a, g, at, arch)
    out = a.new_zeros(shape, dtype=accumulator_of(a.dtype))
    given = (
        segments.units_apart(in_features)
        if arch
        else segments.units(in_features, out_features, a.itemsize, torch.get_num_threads())
    )
    groups, units, work, *arrays = given
    rows = (segments.rows_of(at), segments.order)
    ready = compact if arch else kernel_ready
    a, g = ready(a), ready(g)
    sizes = [groups, units, segments.num_segments, a.shape[0], g.shape[0], work]
    block = min(SUM_BLOCK, in_features)
    entry = _entry(sum_kernel, (in_features, out_features), block, rows, a.dtype, arrays, sizes, groups > 1, arch)
    entry(*sizes, *arrays, a, g, out)
    return out.to(a.dtype)


def _sum_in_tiles(segments: Segments, a: Tensor, g: Tensor, at: Tensor | None, arch: str) -> Tensor:
    """`run_grouped_sum` by blocks of warps."""
    in_features, out_features = a.shape[1], g.shape[1]
    sums = OuterSums(segments, in_features, out_features, a.dtype)
    tasks = sums.tasks
    a, g = compact(a), compact(g)
    out = sums.results(a.device)
    sizes = [tasks.tasks, tasks.chunks, tasks.tasks, a.shape[0], g.shape[0]]
    arrays = [tasks.task_ptr, tasks.slot, tasks.start, tasks.stop]
    rows = (segments.rows_of(at), segments.order)
    make = sum_lanes_kernel if sums.full else sum_tiles_kernel
    entry = _entry(make, (in_features, out_features), 0, rows, a.dtype, arrays, sizes, True, arch)
    entry(*sizes, *arrays, a, g, out)
    return sums.total(out).to(a.dtype)


def _entry(
    make, widths: tuple[int, int], block: int, rows, dtype, arrays: list, sizes: list, parallel: bool, arch: str = ""
):
    """The kernel; ``rows``, the index arrays of the operands' rows, join ``arrays``, all in one type, and ``sizes``."""
    given = [x for x in rows if x is not None]
    if given:
        sizes.append(given[0].numel())
        arrays += given
    if any(x.dtype != arrays[0].dtype for x in arrays):
        arrays[:] = [x.long() for x in arrays]
    gathered = (rows[0] is not None, rows[1] is not None)
    key = (make, widths, block, gathered, dtype, arrays[0].dtype, parallel, arch)
    entry = _entries.get(key)
    if entry is None:
        bf16_pairs = make is product_kernel and takes_bf16_pairs(widths[0], type_name(dtype))
        types = type_name(dtype), type_name(arrays[0].dtype)
        spec = GroupedSpec(*widths, block, 0, gathered, *types, bf16_pairs)
        kernel = _CUDA_KERNELS[make](spec, arch) if arch else make(spec, parallel)
        entry = _entries.keep(key, Launch(kernel, f"panels on {arch}" if arch else in_threads(parallel)))
    return entry
