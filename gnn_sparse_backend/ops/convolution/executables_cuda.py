"""Sparse convolution on a GPU: calls of one shape and type on a map, made for `executables`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ...compiler.cache.bounded import shared
from ...frozen import dataclass
from ...runtime.layout import ByLayout, compact, matrices
from ...runtime.precision import on_tensor_cores
from ...runtime.type_names import accumulator_of, type_name
from ...structures.derived import Derived
from ...structures.graph import Graph
from ...structures.kernel_map import KernelMap, NeighbourTable
from ...structures.segments import Segments
from ..core.executable import Launch
from ..grouped.outer_sums_cuda import OuterSums, takes_sum
from ..grouped.programs.grouped import GroupedSpec
from ..grouped.schedules_cuda import sum_lanes_kernel, sum_tiles_kernel
from ..message.calls import run_aggregate
from ..message.message_op import SUM_OF_COLUMNS
from .schedules_cuda import PART_PAIRS, depthwise_kernel, tiles_kernel, tiles_spec
from .tasks import PairsOfRows, rows_by_set

Call = Callable[..., Tensor]
_entries = shared("kernels of sums of a sparse convolution on a GPU")


def order_on_gpu(
    kernel_map: KernelMap, groups: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str
) -> str:
    """How products of one shape and type are made, of groups that are not single channels."""
    return "rgms" if spec_on_gpu(kernel_map, groups, in_features, out_features, dtype, arch) is None else "tiles"


def spec_on_gpu(kernel_map, groups: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str):
    rows = 1 << (kernel_map.shape[0] - 1).bit_length()  # maps of about a size have the same kernels
    full = not on_tensor_cores(dtype)
    return tiles_spec(in_features, out_features, type_name(dtype), arch, groups, rows, full)


def product(
    kernel_map: KernelMap,
    order: str,
    groups: int,
    in_features: int,
    out_features: int,
    dtype: torch.dtype,
    arch: str,
) -> Call:
    """What runs products of one shape and type on the map; it does not hold the map."""
    (rows, columns), index = kernel_map.shape, kernel_map.indptr.dtype
    if order == "depthwise":
        arrays = kernel_map.derived(PairsOfRows())
        sizes = rows, columns, kernel_map.num_pairs, kernel_map.num_offsets
        entry = Launch(
            depthwise_kernel("rows", groups, type_name(dtype), type_name(index), arch), f"depthwise on {arch}"
        )

        def multiply(x: Tensor, w: Tensor) -> Tensor:
            out = torch.empty((rows, groups), dtype=dtype, device=x.device)
            entry(*sizes, *arrays, compact(x), compact(w.flatten(1)), out)
            return out

        return multiply
    spec = spec_on_gpu(kernel_map, groups, in_features, out_features, dtype, arch)
    if spec is None or order != "tiles":
        raise ValueError(
            f"order {order!r} does not make products of {in_features} x {out_features} in {dtype} on {arch}: choose "
            '"rgms"'
        )
    spec = replace(spec, index_dtype=type_name(index))
    tiles, panels, *given = kernel_map.derived(Tiles(spec.rows))
    entries = ByLayout(
        lambda by_columns: Launch(tiles_kernel(replace(spec, by_columns=by_columns), arch), f"tiles on {arch}")
    )
    sizes = tiles, panels, columns, rows, kernel_map.num_offsets

    def run(x: Tensor, w: Tensor) -> Tensor:
        w, by_columns = matrices(w)
        # no view is given back: layers write into results, which autograd forbids of views
        out = torch.empty((rows, groups * out_features), dtype=dtype, device=x.device)
        by_group = out.view(rows, groups, out_features)
        entries[by_columns](*sizes, *given, compact(x).view(columns, groups, in_features), w, by_group)
        return out

    return run


def sums(
    kernel_map: KernelMap, groups: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str
) -> Call | None:
    """What runs sums of outer products of one shape and type on the map; None where no blocks of warps take them."""
    inputs, outputs, index = kernel_map.inputs, kernel_map.outputs, type_name(kernel_map.indptr.dtype)
    (rows, columns), pairs = kernel_map.shape, kernel_map.num_pairs
    if groups > 1 and in_features == out_features == 1:
        ends, of_offset = kernel_map.derived(Parts(PART_PAIRS))
        parts, wide = ends.numel() - 1, accumulator_of(dtype)
        entry = Launch(depthwise_kernel("parts", groups, type_name(dtype), index, arch), f"parts on {arch}")

        def add_up(x: Tensor, g: Tensor) -> Tensor:
            out = torch.empty((parts, groups), dtype=wide, device=x.device)
            entry(parts, columns, rows, pairs, ends, inputs, outputs, compact(x), compact(g), out)
            return run_aggregate(SUM_OF_COLUMNS, of_offset, [out]).to(dtype)[..., None, None]

        return add_up
    if groups > 1 or not takes_sum(in_features, out_features, dtype, arch):
        return None
    segments = kernel_map.derived(SegmentsOfPairs())
    outer = OuterSums(segments, in_features, out_features, dtype)
    tasks = outer.tasks
    sizes = *outer.sizes, columns, rows, pairs
    make = sum_lanes_kernel if outer.full else sum_tiles_kernel
    spec = GroupedSpec(in_features, out_features, 0, 0, (True, True), type_name(dtype), index)
    arrays = [a.to(kernel_map.indptr.dtype) for a in (tasks.task_ptr, tasks.slot, tasks.start, tasks.stop)]
    entry = _entries.found((make, spec, arch), lambda: Launch(make(spec, arch), f"tiles on {arch}"))

    def run(x: Tensor, g: Tensor) -> Tensor:
        out = outer.results(x.device)
        entry(*sizes, *arrays, inputs, outputs, compact(x), compact(g), out)
        return outer.total(segments, out).to(dtype).unsqueeze(1)

    return run


class SegmentsOfPairs(Derived[Segments]):
    """The pairs of each offset."""

    def compute(self, kernel_map: KernelMap) -> Segments:
        return Segments(kernel_map.indptr, None, kernel_map.num_pairs)


@dataclass(frozen=True)
class Parts(Derived[tuple]):
    """(where parts of up to ``longest`` pairs of one offset begin and the end, the parts of each offset as the edges of
    a graph)."""

    longest: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        indptr = kernel_map.indptr.long()
        counts = -(-indptr.diff() // self.longest)
        ends = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        of_part = torch.repeat_interleave(counts)
        part = torch.arange(of_part.numel(), device=indptr.device)
        start = indptr[of_part] + (part - ends[of_part]) * self.longest
        shape = kernel_map.num_offsets, part.numel()
        graph = Graph.from_csr(ends, part, shape, trusted=True)
        return torch.cat([start, indptr[-1:]]).to(kernel_map.indptr.dtype), graph


@dataclass(frozen=True)
class Tiles(Derived[tuple]):
    """(tiles, panels, panel_ptr, Offset, In, Row) of `conv_tiles`, for tiles of ``rows`` rows: rows in the order of the
    sets of their offsets."""

    rows: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        count, index = kernel_map.shape[0], kernel_map.indptr.dtype
        order, _ = rows_by_set(kernel_map)
        tiles = -(-count // self.rows)
        row = torch.nn.functional.pad(order, (0, tiles * self.rows - count), value=-1).view(tiles, self.rows)
        table = torch.nn.functional.pad(kernel_map.derived(NeighbourTable()), (0, 0, 0, 1), value=-1)
        met = table[row].transpose(1, 2)  # (tiles, offsets, rows): a row that is lacking is the last of the table
        tile, offset = (met >= 0).any(2).nonzero(as_tuple=True)  # waits for the GPU
        panel_ptr = torch.nn.functional.pad(torch.bincount(tile, minlength=tiles).cumsum(0), (1, 0))
        return tiles, tile.numel(), *(a.to(index) for a in (panel_ptr, offset, met[tile, offset].contiguous(), row))
