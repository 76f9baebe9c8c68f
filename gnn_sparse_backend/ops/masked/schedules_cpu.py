"""Kernels on the blocks of a mask for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...compiler.cache.bounded import kept
from ...compiler.codegen import Target, host_target
from ...compiler.language.program import Program, walk_iterations
from ...compiler.schedules.cpu import cpu_schedule
from ...compiler.schedules.primitives.cpu.bf16_pair_dot import bf16_pair_dot
from ...compiler.schedules.primitives.cpu.brief_exponentials import brief_exponentials
from ...compiler.schedules.primitives.cpu.memory_tiles import tile_products
from ...compiler.schedules.primitives.cpu.pairs import interleave, round_rows, transpose_pairs, transpose_words
from ...compiler.schedules.primitives.cpu.prefetch import prefetch_reads
from ...compiler.schedules.sequence import Schedule
from ..core.executable import Launch, compiled, in_threads
from .programs.backward import backward
from .programs.few_queries import ACROSS, AHEAD, PAIRS
from .programs.forward import forward
from .programs.modifier import Modifier
from .programs.pairs import masked_dots, masked_sums
from .programs.softmax import BRIEF
from .programs.spec import SIDE, MaskedSpec
from .programs.tiles.backward import backward_parts, tile_backward
from .programs.tiles.forward import forward_parts, tile_forward
from .programs.tiles.products import INTERLEAVED, ROUNDED, TILES, TRANSPOSED

PROGRAMS: dict[str, Callable[[MaskedSpec], Program]] = {
    "forward": lambda spec: tile_forward(spec) if spec.tiles else forward(spec),
    "backward": lambda spec: tile_backward(spec) if spec.tiles else backward(spec),
    "dots": masked_dots,
    "sums": lambda spec: masked_sums(spec, False),
    "sums_transposed": lambda spec: masked_sums(spec, True),
}
WORKSPACES: dict[str, Callable[[MaskedSpec], dict[str, int]]] = {"forward": forward_parts, "backward": backward_parts}
"""Numbers in the parts of what each task of a program on tiles has for itself."""
REWRITTEN = {
    interleave: INTERLEAVED,
    transpose_pairs: TRANSPOSED,
    round_rows: ROUNDED,
    brief_exponentials: BRIEF,
    bf16_pair_dot: PAIRS,
}
"""Steps, and what the names of iterations begin with that they are for."""
# What may be added to a width so that tiles divide it, relative to it.
MOST_PADDING = 0.6
# Rows and vectors of a tile of sums: with a vector of the right and a number of the left for each they fill the 16
# registers of AVX2.
TILE = 6, 2
# One vector of few queries: with as many sums again they do not wait for each other.
NARROW_TILE = 12, 1


def spec_of(
    block: int,
    width: int,
    value_width: int,
    dtype: str,
    padding: bool = False,
    dropout: bool = False,
    target: Target | None = None,
    modifier: Modifier | None = None,
    queries: int = 0,
) -> MaskedSpec:
    """The spec of a program on this CPU by default. queries: of all rows of a mask; 0 for more than a vector holds."""
    target = target or host_target()
    lanes = target.lanes(dtype)
    few = queries if 0 < queries <= min(lanes, block) else 0
    tiles = takes_tiles(block, width, value_width, dtype, target) and not few
    tile = NARROW_TILE if few else TILE
    static = width, value_width, dtype, *tile, lanes, padding, dropout, tiles, modifier, few
    spec = MaskedSpec(block, *static)
    if few and not spec.in_features:
        return replace(spec, queries=lanes)  # one kernel for any number of them
    whole = few > 1 and width % (2 * lanes) == 0  # a single query waits for its keys, not for products
    by_pairs = whole and dtype == "bfloat16" and target.has_fast_bf16_pairs
    return replace(spec, by_pairs=True) if by_pairs else spec


def takes_tiles(block: int, width: int, value_width: int, dtype: str, target: Target) -> bool:
    """Whether products on blocks of more than a few queries go by tiles of bfloat16 on a CPU."""
    filled = block % SIDE == 0 and all(-side % SIDE <= side * MOST_PADDING for side in (width, value_width))
    return target.has_bf16_tiles and dtype == "bfloat16" and filled


@kept
def masked_kernel(make: str, spec: MaskedSpec, parallel: bool) -> Launch:
    """The kernel of a program of `PROGRAMS`."""
    return compiled(*scheduled(make, spec, parallel), f"{make}, {in_threads(parallel)}")


def scheduled(make: str, spec: MaskedSpec, parallel: bool) -> tuple[Program, Schedule]:
    """A program of `PROGRAMS` and its schedule."""
    program = PROGRAMS[make](spec)
    iterations = list(walk_iterations(program.iterations))
    tiles = tuple(buffer.name for it in iterations for buffer in it.locals if buffer.name.startswith(TILES))
    steps = [rewrite(it.name) for rewrite, word in REWRITTEN.items() for it in iterations if it.name.startswith(word)]
    steps += [
        prefetch_reads(it.name, operand)
        for operand in "KV"
        for it in iterations
        if it.name.startswith(f"{AHEAD}_{operand}")
    ]
    if spec.accumulator == "float32":
        steps += [transpose_words(it.name, spec.lanes) for it in iterations if it.name.startswith(ACROSS)]
    if tiles:
        steps.append(tile_products(tiles, host_target()))
    return program, cpu_schedule(*steps, parallel=parallel)
