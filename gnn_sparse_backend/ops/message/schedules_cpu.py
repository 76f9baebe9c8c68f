"""Kernels for the operators, by what is static in them. One compiled kernel serves every graph of its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.codegen import Target, host_target
from ...compiler.compile import compile_program
from ...compiler.language.folds import folds
from ...compiler.language.program import Program
from ...compiler.language.types import ACCUMULATOR, BYTES, FLOATS
from ...compiler.own_schedules import chosen, kept_by_schedules
from ...compiler.schedules.cpu import cpu_schedule
from ...compiler.schedules.primitives.cpu.prefetch import prefetch_gather
from ...compiler.schedules.sequence import Step
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...deferred import later
from ...planner.cpu.spmm import LINE
from ...planner.cpu.tiling import (
    REGISTERS_PER_CHUNK,
    chunks_of_runs,
    fits_together,
    register_tiles,
    row_lanes,
    sum_lanes,
)
from .programs.aggregate import AggregateSpec, aggregate
from .programs.argmax_scatter import ArgmaxScatterSpec, argmax_scatter
from .programs.edge_map import EdgeMapSpec, edge_map
from .programs.inner import Inner, inner_name
from .programs.operands import Operand
from .programs.scattered import scattered

# what only some kernels have
if TYPE_CHECKING:
    from ...compiler.schedules.primitives.cpu import lanes as lanes_of_rows
    from ...compiler.schedules.primitives.cpu import unroll_and_jam
    from ...compiler.transforms import decompose, format_rules
    from ...compiler.transforms.dense_axes import lanes as lanes_of_sums
    from ...compiler.transforms.dense_axes import lanes_together
else:
    lanes_of_rows = later(__name__, "...compiler.schedules.primitives.cpu.lanes")
    lanes_of_sums = later(__name__, "...compiler.transforms.dense_axes.lanes")
    decompose = later(__name__, "...compiler.transforms.decompose")
    format_rules = later(__name__, "...compiler.transforms.format_rules")
    lanes_together = later(__name__, "...compiler.transforms.dense_axes.lanes_together")
    unroll_and_jam = later(__name__, "...compiler.schedules.primitives.cpu.unroll_and_jam")

# The passes of column partitions: what a row accumulates begins, goes on, and is finished.
PASSES = ("first", "next", "last")
# Features of a row of bfloat16 from which two are taken at a time.
SHORTEST_BF16X2 = 16
# Edges of a row whose sums over features are taken side by side, and rounds from which each sum has two registers.
EDGES_TOGETHER, ROUNDS_OF_TWO = 4, 8


@kept_by_schedules
def aggregate_kernel(
    spec: AggregateSpec, parallel: bool, prefetch: int = 0, reduction: str = "sequential", turn: str = ""
) -> Kernel:
    """The kernel of an aggregation; serial where a parallel region would cost more than it saves.

    prefetch: how many non-zeros the gathers of whole rows of column operands look ahead, 0 for none.
    reduction: "sequential", "simd" (in lanes) or "scattered". turn: one of `PASSES`, for a pass over some non-zeros:
    its parameters are (num_groups, m, n, [num_edges], nnz, group_ptr, indptr, indices, [D], X0, ..., C, ..., [E]).
    """
    target = host_target()
    halves = 2 if spec.bf16x2 else 1
    width = spec.features // halves
    itemsize = _accumulated(spec)
    gathered = {f"X{at}": x.width // halves for at, x in enumerate(spec.operands) if prefetch and _is_wide(spec, x)}
    if reduction == "scattered":
        ahead = [prefetch_gather("edges", buffer, 0, width, prefetch) for buffer in gathered]
        program, schedule = scattered(spec), cpu_schedule(ahead=tuple(ahead), parallel=parallel)
        return compile_program(program, chosen(spec, program, schedule), target)
    program, edges = aggregate(spec), "edges"
    if turn:
        rules = [format_rules.csr_rule(program, name=name) for name in PASSES]
        program = decompose.split_parts(decompose.decompose_format(program, rules, copies=False))[PASSES.index(turn)]
        edges = f"edges_{turn}"
    if spec.staged or spec.inner:
        # one pass over the edges, so that what is staged is loaded once
        chunk = max(1, target.vector_bytes // itemsize) * REGISTERS_PER_CHUNK
        tiles: tuple[tuple[int, ...], ...] = (chunks_of_runs(width, _run(spec) // halves, chunk),)
        ahead = [prefetch_gather(edges, buffer, 0, own, prefetch) for buffer, own in gathered.items()]
        program = inner_in_lanes(program, spec.inner, itemsize, target, f"_{turn}" if turn else "")
    else:
        tiles = register_tiles(width, itemsize, target)
        ahead = []
        first = 0
        for number, tile in enumerate(tiles):
            ahead += [
                prefetch_gather(f"{edges}_tile_{number}", buffer, first, sum(tile), prefetch) for buffer in gathered
            ]
            first += sum(tile)
    lanes: tuple[Step, ...] = ()
    if reduction == "simd":
        lanes = (lanes_of_rows.fold_in_lanes(f"{edges}_tile_0", row_lanes(spec.features, itemsize, target)),)
    schedule = cpu_schedule(*lanes, ahead=tuple(ahead), parallel=parallel)
    program = tile_axis(program, "K", tiles)
    return compile_program(program, chosen(spec, program, schedule), target)


def _is_wide(spec: AggregateSpec, operand: Operand) -> bool:
    """Whether rows of an operand at columns are long, and so fetched ahead: as wide as the message, or summed over."""
    return operand.at == "column" and (operand.width == spec.features or (bool(spec.inner) and operand.width > 1))


def sums_in_lanes(program: Program, terms: Mapping[str, int], sums: int, itemsize: int, target: Target) -> Program:
    """Reduce sums in lanes. terms: of each, by iteration. sums: how many of each there are, in neighbouring heads."""
    for name, count in terms.items():
        if count > 1:
            lanes = sum_lanes(count, itemsize, target)
            if sums > 1 and not count % lanes and fits_together(sums * lanes, itemsize, target):
                program = lanes_together.reduce_together(program, name, lanes)
            else:
                program = lanes_of_sums.reduce_in_lanes(program, name, lanes)
    return program


def inner_in_lanes(
    program: Program, inner: Sequence[Inner], itemsize: int, target: Target, suffix: str = ""
) -> Program:
    """Reduce the sums of the values that a message is made of in lanes. suffix: of the names of iterations."""
    for number, one in enumerate(inner):
        name = inner_name(number) + suffix
        program = sums_in_lanes(program, {name: one.terms}, one.width, itemsize, target)
    return program


def as_bf16x2(spec: AggregateSpec) -> AggregateSpec | None:
    """The aggregation on words of two features, where that is possible and rows are long enough for it to pay."""
    return replace(spec, bf16x2=True) if spec.fits_bf16x2 and spec.features >= SHORTEST_BF16X2 else None


@kept
def refuses_lanes(spec: AggregateSpec) -> str | None:
    """Why what one lane has of a row cannot be taken in by another as a message is, or None where it can."""
    if spec.inner:
        return "lanes share the edges of a row, and sums over features those of an edge"
    if spec.keep and not (spec.keep == ("unique",) and spec.propagate):
        return "in lanes nobody knows which of equal messages came last"
    if spec.dtype not in FLOATS:
        return f"lanes begin with numbers that {spec.dtype} does not have"
    found = folds(aggregate(spec, stage=False).iteration("edges").stores)
    return f"a {spec.reduce} {found}" if isinstance(found, str) else None


def refuses_host_lanes(spec: AggregateSpec) -> str | None:
    """Why an aggregation cannot be taken in lanes on this CPU, or None where it can."""
    if spec.staged:
        return "reduction in lanes does not go with weights of heads, which are kept in registers"
    if (reason := refuses_lanes(spec)) is not None:
        return reason
    if row_lanes(spec.features, _accumulated(spec), host_target()) < 2:
        return f"{spec.features} features are chains enough without lanes"
    return None


def _accumulated(spec: AggregateSpec) -> int:
    """Bytes of what a row accumulates of a feature, or of a word of two: a choice is kept beside the value."""
    return BYTES[ACCUMULATOR[spec.dtype]] * (2 if spec.bf16x2 else 1) + BYTES[spec.index_dtype] * len(spec.keep)


def _run(spec: AggregateSpec) -> int:
    """Neighbouring features along which no staged operand changes."""
    run = 1
    narrow = [spec.operands[number].dims for number in spec.staged] + [one.outer for one in spec.inner if one.outer]
    for extents in zip(reversed(spec.dims), *map(reversed, narrow)):
        if any(own > 1 for own in extents[1:]):
            break
        run *= extents[0]
    return run


@kept_by_schedules
def edge_map_kernel(spec: EdgeMapSpec, parallel: bool, prefetch: int = 0) -> Kernel:
    """The kernel of an edge map. prefetch: how many edges the gathers of column operands look ahead, 0 for none."""
    target = host_target()
    itemsize = BYTES[ACCUMULATOR[spec.dtype]]
    together: tuple[Step, ...] = ()
    if spec.inner:
        program = inner_in_lanes(edge_map(spec), spec.inner, itemsize, target)
        program = sums_in_lanes(program, {"sum": spec.terms}, spec.width, itemsize, target)
        if spec.terms == 1:
            chunk = max(1, target.vector_bytes // itemsize) * REGISTERS_PER_CHUNK
            program = tile_axis(program, "H", (chunks_of_runs(spec.width, 1, chunk),))
    elif spec.terms == 1:
        program = tile_axis(edge_map(spec), "H", register_tiles(spec.width, itemsize, target))
    else:
        # a register of each edge is chains enough, and leaves the fewest lanes to add up; of long sums that is little
        wide = sum_lanes(spec.terms, itemsize, target, 2)
        lanes = wide if spec.terms >= ROUNDS_OF_TWO * wide else sum_lanes(spec.terms, itemsize, target, 1)
        program = lanes_of_sums.reduce_in_lanes(edge_map(spec), "sum", lanes)
        together = (unroll_and_jam.unroll_and_jam("edges", EDGES_TOGETHER),)
    ahead = tuple(
        prefetch_gather("edges", f"X{number}", 0, x.width, prefetch)
        for number, x in enumerate(spec.operands)
        if prefetch and x.at == "column" and x.dtype in FLOATS
    )
    schedule = cpu_schedule(*together, ahead=ahead, parallel=parallel)
    return compile_program(program, chosen(spec, program, schedule), target)


@kept
def choices_kernel(features: int, dtype: str, index_dtype: str, parallel: bool) -> Kernel:
    """The kernel that adds what flows back through choices. Threads share blocks of features, of a cache line each: of
    smaller ones they would write to the same lines.
    """
    block = min(features, LINE // BYTES[ACCUMULATOR[dtype]])
    program = argmax_scatter(ArgmaxScatterSpec(features, block, dtype, index_dtype))
    return compile_program(program, cpu_schedule(parallel=parallel and features > block), host_target())
