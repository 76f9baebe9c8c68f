"""Kernels of sparse convolution for the CPU: the blocks of its programs, and their schedule.

Nothing of a layer is static in them but types and the width of a tile, so a whole network takes a handful.
"""

from __future__ import annotations

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.codegen import Target, host_target
from ...compiler.compile import compile_program
from ...compiler.language.program import Program
from ...compiler.language.types import ACCUMULATOR
from ...compiler.own_schedules import chosen, kept_by_schedules
from ...compiler.schedules.cpu import cpu_schedule
from ...compiler.schedules.sequence import Schedule
from ...planner.cpu.convolution import CHUNK_ELEMENTS, MOST_ROWS, ROW_VECTORS, block_of, sum_block_of, vectors_of
from ..grouped.schedules_cpu import bf16_pair_dots, takes_bf16_pairs
from .programs.depthwise import depthwise, depthwise_sums
from .programs.offsets import conv_offsets
from .programs.pack import PackSpec, pack_matrices
from .programs.rows import conv_rows
from .programs.spec import ConvSpec
from .programs.sums import conv_sums

PROGRAMS = {
    "offsets": conv_offsets,
    "rows": conv_rows,
    "row": conv_rows,
    "sums": conv_sums,
    "depthwise": depthwise,
    "depthwise_sums": depthwise_sums,
}
SINGLE = ("row", "depthwise", "depthwise_sums")
"""Programs whose block is one row."""
COPYING = ("sums",)
"""Programs that copy the rows of operands before they multiply them, and convert them there."""


def spec_of(
    make: str,
    in_features: int,
    out_features: int,
    dtype: str,
    index_dtype: str,
    target: Target | None = None,
    vectors: int = 0,
) -> ConvSpec:
    """The spec of a program of `PROGRAMS` for a group of ``in_features`` channels, on this CPU by default.

    Types narrower than the accumulation type are converted before they are multiplied, once for all pairs of a row: the
    spec has the accumulation type, but where the CPU multiplies them two at a time. vectors: of a tile, 0 for those of
    the rules.
    """
    target = target or host_target()
    bf16_pairs = make in ("offsets", "rows", "row") and takes_bf16_pairs(in_features, dtype, target)
    lanes = target.lanes(dtype)
    vectors = vectors or vectors_of(out_features, lanes, ROW_VECTORS if make in SINGLE else (2, 1))
    block = 1 if make in SINGLE else block_of(vectors, target)
    if make == "sums":
        block = sum_block_of(in_features, block)
    rows = {"offsets": MOST_ROWS, "sums": CHUNK_ELEMENTS}.get(make, 1)
    stored = dtype if bf16_pairs or make in COPYING else ACCUMULATOR[dtype]
    return ConvSpec(block, vectors, lanes, rows, stored, index_dtype, bf16_pairs)


@kept_by_schedules
def conv_kernel(make: str, spec: ConvSpec, parallel: bool) -> Kernel:
    """The kernel of a program of `PROGRAMS`."""
    program, schedule = scheduled(make, spec, parallel)
    return compile_program(program, chosen(spec, program, schedule), host_target())


@kept
def pack_kernel(spec: PackSpec, parallel: bool) -> Kernel:
    """The kernel that puts matrices in tiles."""
    return compile_program(pack_matrices(spec), cpu_schedule(parallel=parallel), host_target())


def scheduled(make: str, spec: ConvSpec, parallel: bool) -> tuple[Program, Schedule]:
    """The program and its schedule."""
    program = PROGRAMS[make](spec)
    return program, cpu_schedule(*bf16_pair_dots(program), parallel=parallel)
