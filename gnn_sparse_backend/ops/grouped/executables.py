"""The boundary to the kernels of grouped products and sums: forward only, no autograd, operands already validated.

What a caller guarantees: all tensors on one device, floating operands of one type, indices in range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...compiler.cache.kernel import Kernel
from ...compiler.own_schedules import in_force, kept_by_schedules
from ...deferred import later
from ...planner.cpu.grouped import SUM_BLOCK
from ...planner.cuda.tensor_cores import ROWS
from ...runtime import devices
from ...runtime.layout import ByLayout, compact, kernel_ready, matrices
from ...runtime.memory import empty
from ...runtime.precision import on_tensor_cores
from ...runtime.threads import planned_threads
from ...runtime.type_names import accumulator_of, type_name
from ...structures.segments import Segments
from ..core.executable import Launch, in_threads
from . import schedules_cpu
from .programs.grouped import GroupedSpec
from .schedules_cpu import takes_bf16_pairs

if TYPE_CHECKING:
    from . import outer_sums_cuda, schedules_cuda
else:
    outer_sums_cuda, schedules_cuda = later(__name__, ".outer_sums_cuda"), later(__name__, ".schedules_cuda")


def run_grouped_mm(segments: Segments, a: Tensor, b: Tensor, at: Tensor | None = None) -> Tensor:
    """``out[n] = a[at[n]] @ b[segment of n]``: (rows, F_out)."""
    _, *shape = b.shape
    if segments.num_rows == 0 or 0 in shape:
        return empty(a, segments.num_rows, shape[1]).zero_()
    return _found(Product, segments, (shape[0], shape[1]), a, at)(a, b, at)


def run_grouped_sum(segments: Segments, a: Tensor, g: Tensor, at: Tensor | None = None) -> Tensor:
    """``out[s] = sum over the rows n of segment s of the outer product of a[at[n]] and g[n]``: (segments, F_in,
    F_out).
    """
    shape = a.shape[1], g.shape[1]
    if segments.num_rows == 0 or segments.num_segments == 0 or 0 in shape:
        return a.new_zeros((segments.num_segments, *shape))
    return _found(Sum, segments, shape, a, at)(segments, a, g, at)


def _found(make: Callable, segments: Segments, shape: tuple[int, int], a: Tensor, at: Tensor | None):
    """What runs calls of one shape and type on the segments, made once."""
    arch = devices.arch_of(a.device)
    described = shape, a.dtype, None if at is None else at.dtype, arch
    how = on_tensor_cores(a.dtype) if arch else torch.get_num_threads()
    return segments.calls.found((make, how, in_force.generation, *described), lambda: make(segments, *described))


def in_bf16_pairs(w: Tensor) -> Tensor:
    """(..., F_in, F_out) as (..., F_in / 2, 2 * F_out): rows 2 i and 2 i + 1 side by side, column by column."""
    return w.unflatten(-2, (-1, 2)).transpose(-2, -1).flatten(-2)


class _Rows:
    """The index arrays of a kernel on segments: those that lead, and then which rows of the operands stand at each
    position, where these are not in their order; all in one type.

    index: the type of what names the rows of the left operand, None for rows in their order. gathered: whether there
    are such arrays for each of the two. counts: sizes that go with them.
    """

    def __init__(self, segments: Segments, leading: list[Tensor], index: torch.dtype | None):
        order = segments.order
        given = [] if order is None else [order, order] if index is None else [order]
        self.arrays, self.dtype = [*leading, *given], leading[0].dtype
        if any(x.dtype != self.dtype for x in self.arrays) or index not in (None, self.dtype):
            self.arrays, self.dtype = [x.long() for x in self.arrays], torch.int64
        self.order, self.at = order, len(leading)
        self.gathered = (index is not None or order is not None, order is not None)
        self.counts = (segments.num_rows,) if self.gathered[0] else ()

    def __call__(self, at: Tensor | None) -> list[Tensor]:
        if at is None:
            return self.arrays
        at = at if self.order is None else at.index_select(0, self.order)
        return [*self.arrays[: self.at], at.to(self.dtype), *self.arrays[self.at :]]


@kept_by_schedules
def _on_cpu(
    make: Callable[[GroupedSpec, bool], Kernel],
    shape: tuple[int, int],
    block: int,
    gathered: tuple[bool, bool],
    dtype: torch.dtype,
    index_dtype: torch.dtype,
    bf16_pairs: bool,
    parallel: bool,
) -> Launch:
    """The launch of a kernel for the CPU, found without its spec: most segments are new at each call."""
    spec = GroupedSpec(*shape, block, 0, gathered, type_name(dtype), type_name(index_dtype), bf16_pairs)
    return Launch(make(spec, parallel), in_threads(parallel))


class Product:
    """A product of one shape and type on segments: the kernel, and its arguments but for the operands.

    On a GPU on Tensor Cores where they take matrices of this shape and type, by blocks of warps in full precision.
    index: as of `_Rows`. arch: "" for a CPU.
    """

    def __init__(
        self, segments: Segments, shape: tuple[int, int], dtype: torch.dtype, index: torch.dtype | None, arch: str
    ):
        (in_features, out_features), count, name = shape, segments.num_rows, type_name(dtype)
        by_layout = False
        if not arch:
            block, (groups, panels, *arrays) = segments.panels(in_features * out_features, planned_threads())
        else:
            make, block = schedules_cuda.product_kernel, schedules_cuda.BLOCK_ROWS
        if arch and on_tensor_cores(dtype):
            tiles = schedules_cuda.tiles(in_features, out_features, name, arch)
            if tiles:
                make, block, by_layout = schedules_cuda.tiles_kernel, ROWS * tiles, True
        elif arch:
            panel = schedules_cuda.panel_of(count, segments.num_segments)
            if schedules_cuda.rows_spec(in_features, out_features, name, panel) is not None:
                make, block, by_layout = schedules_cuda.rows_kernel, panel, True
        if arch:
            groups, panels, *arrays = segments.panels_apart(block)
        self.rows = rows = _Rows(segments, arrays, index)
        self.sizes, self.counts = (groups, panels, segments.num_segments), (count, *rows.counts)
        self.shape, self.by_layout, self.bf16_pairs = (count, out_features), by_layout, False
        self.ready: Callable[[Tensor], Tensor] = compact if arch else kernel_ready
        self.launches: dict[bool, Launch] = {}
        if arch:
            spec = GroupedSpec(in_features, out_features, block, 0, rows.gathered, name, type_name(rows.dtype))
            self.launches = ByLayout(
                lambda by_columns: Launch(
                    make(spec, arch, by_columns) if by_layout else make(spec, arch), f"panels on {arch}"
                )
            )
        else:
            self.bf16_pairs = takes_bf16_pairs(in_features, name)
            how = shape, block, rows.gathered, dtype, rows.dtype, self.bf16_pairs
            self.launches[False] = _on_cpu(schedules_cpu.product_kernel, *how, groups > 1)

    def __call__(self, a: Tensor, b: Tensor, at: Tensor | None) -> Tensor:
        out, by_columns = empty(a, *self.shape), False
        if self.by_layout:
            b, by_columns = matrices(b)
        else:
            b = self.ready(in_bf16_pairs(b) if self.bf16_pairs else b).contiguous()
        self.launches[by_columns](*self.sizes, a.shape[0], *self.counts, *self.rows(at), self.ready(a), b, out)
        return out


class Sum:
    """A sum of outer products of one shape and type on segments, as `Product`; on a GPU by blocks of warps where they
    take it. It does not hold the segments.
    """

    def __init__(
        self, segments: Segments, shape: tuple[int, int], dtype: torch.dtype, index: torch.dtype | None, arch: str
    ):
        self.outer, self.work, block, parallel = None, (), 0, False
        if arch and outer_sums_cuda.takes_sum(*shape, dtype, arch):
            self.outer = outer = outer_sums_cuda.OuterSums(segments, *shape, dtype)
            tasks = outer.tasks
            self.sizes, arrays = outer.sizes, [tasks.task_ptr, tasks.slot, tasks.start, tasks.stop]
        else:
            block = min(SUM_BLOCK, shape[0])
            groups, units, work, *arrays = (
                segments.units_apart(shape[0]) if arch else segments.units(*shape, dtype.itemsize, planned_threads())
            )
            self.sizes, self.work, parallel = (groups, units, segments.num_segments), (work,), groups > 1
        self.rows = rows = _Rows(segments, arrays, index)
        self.ready: Callable[[Tensor], Tensor] = compact if arch else kernel_ready
        self.shape, self.wide = (segments.num_segments, *shape), accumulator_of(dtype)
        if arch:
            spec = GroupedSpec(*shape, block, 0, rows.gathered, type_name(dtype), type_name(rows.dtype))
            make = schedules_cuda.sum_kernel
            if self.outer:
                make = schedules_cuda.sum_lanes_kernel if self.outer.full else schedules_cuda.sum_tiles_kernel
            self.launch = Launch(make(spec, arch), f"panels on {arch}")
        else:
            how = shape, block, rows.gathered, dtype, rows.dtype, False
            self.launch = _on_cpu(schedules_cpu.sum_kernel, *how, parallel)

    def __call__(self, segments: Segments, a: Tensor, g: Tensor, at: Tensor | None) -> Tensor:
        outer, rows = self.outer, self.rows
        out = a.new_zeros(self.shape, dtype=self.wide) if outer is None else outer.results(a.device)
        sizes = *self.sizes, a.shape[0], g.shape[0], *self.work, *rows.counts
        self.launch(*sizes, *rows(at), self.ready(a), self.ready(g), out)
        return (out if outer is None else outer.total(segments, out)).to(a.dtype)
