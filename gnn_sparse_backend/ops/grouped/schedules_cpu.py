"""Plans and kernels of grouped matrix products and sums.

Rules; docs/decisions/bf16-dot-product-instruction.md has the measurements behind the first two:

- Accumulators are four rows by up to four vectors: half of 32 registers, the rest for what is loaded. Five rows by two
  vectors where there are 16 registers (docs/decisions/five-rows-of-a-product.md).
- bfloat16 features two at a time where the CPU has an instruction for it that is worth more than widening them.
- Panels of fewer rows where relations are so short that filling up the last panel would cost more than it saves.
- One thread where the work is less than a parallel region costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...compiler.cache.kernel import Kernel
from ...compiler.codegen import Target, host_target
from ...compiler.compile import compile_program
from ...compiler.language.program import Program, walk_iterations
from ...compiler.own_schedules import chosen, kept_by_schedules
from ...compiler.schedules.cpu import cpu_schedule
from ...compiler.schedules.primitives.cpu.bf16_pair_dot import bf16_pair_dot
from ...compiler.schedules.sequence import Schedule, Step
from ...compiler.transforms.dense_axes.tile import tile_axis
from ..core.tiles.tiles import STEP
from .programs.grouped import GroupedSpec, grouped_product, grouped_sum

# Lanes of the narrowest vector that multiplies features two at a time.
NARROWEST = 4


@kept_by_schedules
def product_kernel(spec: GroupedSpec, parallel: bool) -> Kernel:
    """The kernel of a grouped product; the tile is chosen here."""
    return _kernel(grouped_product, spec, parallel)


@kept_by_schedules
def sum_kernel(spec: GroupedSpec, parallel: bool) -> Kernel:
    """The kernel of a grouped sum; the tile is chosen here."""
    return _kernel(grouped_sum, spec, parallel)


def _kernel(make: Callable[[GroupedSpec], Program], spec: GroupedSpec, parallel: bool) -> Kernel:
    target = host_target()
    program, schedule = scheduled(make, spec, parallel, target)
    return compile_program(program, chosen(spec, program, schedule), target)


def scheduled(
    make: Callable[[GroupedSpec], Program], spec: GroupedSpec, parallel: bool, target: Target
) -> tuple[Program, Schedule]:
    """The program that `make` gives with the tile of this CPU, and its schedule."""
    lanes = target.lanes(spec.dtype)
    spec = replace(spec, tile=column_tile(spec.out_features, lanes, target))
    program = make(spec)
    for axis in program.axes:
        if axis.name in ("K", "L"):
            program = tile_axis(program, axis.name, (vectors(axis.static_length, lanes, spec.bf16_pairs),))
    return program, cpu_schedule(*bf16_pair_dots(program), parallel=parallel)


def takes_bf16_pairs(in_features: int, dtype: str, target: Target | None = None) -> bool:
    """Whether products on the CPU, this one by default, take ``in_features`` terms two at a time (``vdpbf16ps``,
    ``bfdot``).
    """
    fast = (target or host_target()).has_fast_bf16_pairs
    return dtype == "bfloat16" and in_features % 2 == 0 and fast


def bf16_pair_dots(program: Program) -> tuple[Step, ...]:
    """A step for each of the iterations of a program that take features two at a time."""
    iterations = walk_iterations(program.iterations)
    return tuple(bf16_pair_dot(it.name) for it in iterations if it.axes and it.axes[-1].name == STEP)


def column_tile(features: int, lanes: int, target: Target) -> int:
    """Columns of the block of accumulators: whole vectors, so that tiles are about equally wide."""
    most = (4 if target.registers > 16 else 2) * lanes
    passes = -(-features // most)
    return -(-features // (passes * lanes)) * lanes


def vectors(width: int, lanes: int, whole: bool = False) -> tuple[int, ...]:
    """Columns of the vectors of a row of accumulators. whole: what is left is vectors of half the width, and so on, as
    long as an instruction has their width."""
    found = []
    while width and lanes:
        full, width = divmod(width, lanes)
        found += [lanes] * full
        lanes = lanes // 2 if whole and lanes > NARROWEST else 0
    return (*found, width) if width else tuple(found)
