"""Kernels of attention and of the softmax over edges, by what is static in them."""

from __future__ import annotations

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.codegen import Target, host_target
from ...compiler.compile import compile_program
from ...compiler.language.program import Program
from ...compiler.language.types import ACCUMULATOR, BYTES
from ...compiler.own_schedules import chosen, kept_by_schedules
from ...compiler.schedules.cpu import cpu_schedule
from ...compiler.schedules.primitives.cpu.prefetch import prefetch_gather
from ...compiler.schedules.sequence import Step
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...planner.cpu.prefetch_distance import distance
from ...planner.cpu.rows import RowPlan
from ...planner.cpu.spmm import group_count
from ...planner.cpu.tiling import REGISTERS_PER_CHUNK, chunks_of_runs, register_tiles
from ..message.programs.operands import Operand
from ..message.schedules_cpu import sums_in_lanes
from .programs.attention import AttentionSpec, attention
from .programs.attention_gradient import GradientSpec, attention_gradient
from .programs.edge_softmax import EdgeSoftmaxSpec, edge_softmax, edge_softmax_gradient
from .programs.listed_softmax import listed_softmax, listed_softmax_gradient
from .programs.sums import Output, SumsSpec, sums

# Scores, and the branch on them, wait for gathers: those run ahead as soon as they miss the first caches.
NEAR = 1 << 18
# Bytes of gathered rows on their way at once.
IN_FLIGHT = 8 << 10


def plan_attention(rows: int, cols: int, nnz: int, spec: AttentionSpec, threads: int) -> RowPlan:
    """How an attention of (rows, cols) with nnz edges is shared out, and how many edges its gathers run ahead."""
    work = spec.features + spec.scores * spec.terms
    return _plan(rows, cols, nnz, work, spec.operands, threads)


def plan_sums(rows: int, cols: int, nnz: int, spec: SumsSpec, threads: int) -> RowPlan:
    """How several sums over the same edges are shared out, and how many edges their gathers run ahead."""
    return _plan(rows, cols, nnz, sum(output.features for output in spec.outputs), spec.operands, threads)


def _plan(rows: int, cols: int, nnz: int, work: int, operands: tuple[Operand, ...], threads: int) -> RowPlan:
    row = sum(x.width * BYTES[x.dtype] for x in operands if x.at == "column")
    ahead = distance(row, IN_FLIGHT) if cols * row > NEAR else 0
    return RowPlan(group_count(nnz, rows, work, threads), ahead)


@kept_by_schedules
def attention_kernel(spec: AttentionSpec, parallel: bool, prefetch: int = 0) -> Kernel:
    """The kernel of attention; serial where threads would cost more than they save.

    prefetch: how many edges the gathers of column operands look ahead, 0 for none.
    """
    target = host_target()
    itemsize = BYTES[ACCUMULATOR[spec.dtype]]
    program = sums_in_lanes(attention(spec), {"dot": spec.terms}, spec.scores, itemsize, target)
    program = sums_in_lanes(program, {"above": spec.scores}, 1, itemsize, target)
    program = _cut(program, spec, itemsize, target)
    schedule = cpu_schedule(ahead=_ahead(spec, prefetch), parallel=parallel)
    return compile_program(program, chosen(spec, program, schedule), target)


@kept_by_schedules
def attention_gradient_kernel(gradient: GradientSpec, parallel: bool, prefetch: int = 0) -> Kernel:
    """The kernel of what the gradients of attention need of every edge, with sums along the way."""
    target, spec, by_columns = host_target(), gradient.attention, gradient.by_columns
    itemsize = BYTES[ACCUMULATOR[spec.dtype]]
    width = spec.features // spec.scores
    terms = {"dot": spec.terms, **({} if by_columns else {"delta": width}), "weight": width}
    program = sums_in_lanes(attention_gradient(gradient), terms, spec.scores, itemsize, target)
    program = _cut_outputs(_cut(program, spec, itemsize, target), gradient.outputs, itemsize, target)
    ahead = _ahead(spec, prefetch)
    if by_columns and prefetch:
        gathered = {"M": spec.scores, "R": spec.scores, "Delta": spec.scores, "dC": spec.features}
        ahead += tuple(prefetch_gather("edges", name, 0, width, prefetch) for name, width in gathered.items())
    return compile_program(program, chosen(gradient, program, cpu_schedule(ahead=ahead, parallel=parallel)), target)


@kept_by_schedules
def sums_kernel(spec: SumsSpec, parallel: bool, prefetch: int = 0) -> Kernel:
    """The kernel of several sums over the edges of each row."""
    target = host_target()
    itemsize = BYTES[ACCUMULATOR[spec.outputs[0].dtype]]
    program = _cut_outputs(sums(spec), spec.outputs, itemsize, target)
    ahead = _gathers([(f"X{which}", x) for which, x in enumerate(spec.operands)], spec.numbered, prefetch)
    return compile_program(program, chosen(spec, program, cpu_schedule(ahead=ahead, parallel=parallel)), target)


def _ahead(spec: AttentionSpec, distance: int) -> tuple[Step, ...]:
    named = [
        (f"{letter}{which}", x)
        for letter, what in (("X", spec.score), ("V", spec.value))
        for which, x in enumerate(what.operands)
    ]
    return _gathers(named, spec.numbered, distance)


def _gathers(named: list[tuple[str, Operand]], numbered: bool, distance: int) -> tuple[Step, ...]:
    """The gathers of column operands, and of edge operands in an order of their own, ``distance`` edges ahead; none
    for 0.
    """
    places = ("column", "edge") if numbered else ("column",)
    return tuple(
        prefetch_gather("edges", name, 0, x.width, distance) for name, x in named if x.at in places and distance
    )


def _cut(program: Program, spec: AttentionSpec, itemsize: int, target: Target) -> Program:
    """Features and heads in chunks, all of them in one pass over the edges."""
    chunk = max(1, target.vector_bytes // itemsize) * REGISTERS_PER_CHUNK
    inner = 1
    for extent, own in zip(reversed(spec.value.dims), reversed(spec.heads)):
        if own > 1:
            break
        inner *= extent
    program = tile_axis(program, "K", (chunks_of_runs(spec.features, inner, chunk),))
    if spec.scores < spec.features:
        program = tile_axis(program, "H", (chunks_of_runs(spec.scores, 1, chunk),))
    return program


def _cut_outputs(program: Program, outputs: tuple[Output, ...], itemsize: int, target: Target) -> Program:
    chunk = max(1, target.vector_bytes // itemsize) * REGISTERS_PER_CHUNK
    for which, output in enumerate(outputs):
        program = tile_axis(program, f"O{which}_features", (chunks_of_runs(output.features, output.run, chunk),))
    return program


@kept_by_schedules
def edge_softmax_kernel(spec: EdgeSoftmaxSpec, gradient: bool, parallel: bool) -> Kernel:
    """The kernel of a softmax over edges, or of its gradient; serial where threads would cost more than they save."""
    target = host_target()
    program = edge_softmax_gradient(spec) if gradient else edge_softmax(spec)
    tiles = register_tiles(spec.width, BYTES[ACCUMULATOR[spec.dtype]], target)
    program = tile_axis(program, "K", tiles)
    return compile_program(program, chosen(spec, program, cpu_schedule(parallel=parallel)), target)


@kept
def listed_softmax_kernel(spec: EdgeSoftmaxSpec, gradient: bool) -> Kernel:
    """The kernel of a softmax over listed edges, or of its gradient."""
    program = listed_softmax_gradient(spec) if gradient else listed_softmax(spec)
    return compile_program(program, cpu_schedule(parallel=False), host_target())
