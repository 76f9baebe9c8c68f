"""Kernels of products of composed matrices for the CPU: how many accumulators stay in registers, and the schedule."""

from __future__ import annotations

from collections.abc import Sequence

from ...compiler.codegen import Target, host_target
from ...compiler.language.program import Program
from ...compiler.language.types import ACCUMULATOR, BYTES
from ...compiler.schedules.cpu import cpu_schedule
from ...compiler.schedules.primitives.cpu.lanes import fold_in_lanes
from ...compiler.schedules.primitives.cpu.memory_tiles import tile_products
from ...compiler.schedules.primitives.cpu.pairs import interleave, transpose_pairs, transpose_words
from ...compiler.schedules.primitives.cpu.unroll_and_jam import unroll_and_jam
from ...compiler.schedules.sequence import Schedule, Step
from ...compiler.transforms.dense_axes.lanes import reduce_in_lanes
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...formats.composed.spec import FormatSpec
from ...planner.cpu.tiling import register_tiles, row_lanes
from ...planner.machine import private_cache_bytes
from .programs.linear import linear
from .programs.rules import ComposedSpec, name_of, within_of
from .programs.sddmm import by_terms, sddmm
from .programs.sliced import sliced
from .programs.sliced_sddmm import sliced_sddmm
from .programs.spmm import spmm
from .programs.tiled import NARROW, TOKENS, TiledSpec, tiled
from .programs.tiled_sddmm import tiled_sddmm

VECTORS = 2
"""Vectors of a row of accumulators that blocks have in registers."""
TILE_VECTORS = 8
"""Vectors of the columns that all pieces go through together."""


def column_tile(features: int, dtype: str, vectors: int = 0) -> int:
    """Columns that are accumulated together: the widest tile of those that compute fewest columns twice. vectors: of
    the widest one, 0 for the rule's.
    """
    lanes = host_target().lanes(dtype)
    if is_narrow(features, dtype):
        return features
    most = vectors or TILE_VECTORS
    tiles = [count * lanes for count in {most, min(most, 4), min(most, 2)} if count * lanes <= features]
    return min(tiles, key=lambda tile: (-(-features // tile) * tile, -tile))


def is_narrow(features: int, dtype: str) -> bool:
    """Whether all columns are accumulated together, whatever a tile has at most."""
    return features < 2 * host_target().lanes(dtype)


def stored_width(pieces: Sequence[FormatSpec], features: int, dtype: str) -> int:
    """Columns that operands get, with zeros behind their own: a power of two where they are fewer than a vector has, of
    rows with equally many elements, whose lanes are vectors of columns. Code for vectors of other widths takes up to
    twice as long.
    """
    lanes = host_target().lanes(dtype)
    if features >= lanes or not any(piece.shape.alike for piece in pieces):
        return features
    return 1 << (features - 1).bit_length()


def rows_together(target: Target, most: int, wide: bool = False) -> int:
    """Rows of a block whose accumulators fill the registers: half of them, or all but what a product loads."""
    registers = target.registers
    rows = (registers - 4) // VECTORS if wide else registers // 2 // VECTORS
    return min(rows, most)


def scheduled_spmm(spec: ComposedSpec, parallel: bool, target: Target) -> tuple[Program, Schedule]:
    """The program and its schedule: of a block several rows at a time, of rows of equally many elements several, or
    several elements of each where features are few, and of any other piece one row.
    """
    program, together = spmm(spec), []
    lanes = target.lanes(spec.dtype)
    for number, piece in enumerate(spec.pieces):
        rows = f"rows_{name_of(number)}"
        if piece.block[0] > 1 and not spec.masked:
            tiles = tuple((width,) for width in _cut(spec.tile, VECTORS * lanes))
            count = rows_together(target, piece.block[0])
            if count > 1:
                together.append(unroll_and_jam(rows, count))
        else:
            itemsize = BYTES[ACCUMULATOR[spec.dtype]]
            tiles = register_tiles(spec.tile, itemsize, target)
            count = CHAINS_OF_ROWS // -(-max(map(sum, tiles)) // lanes)
            if piece.shape.alike and not spec.masked:
                if spec.tile <= lanes:
                    in_lanes = row_lanes(spec.tile, itemsize, target)
                    together.append(fold_in_lanes(f"sum_{name_of(number)}_tile_0", in_lanes))
                elif count > 1:
                    together.append(unroll_and_jam(rows, count))
        program = tile_axis(program, "C", tiles, rows)
    return program, cpu_schedule(*together, parallel=parallel)


def scheduled_linear(spec: ComposedSpec, parallel: bool, target: Target) -> tuple[Program, Schedule]:
    """The program and its schedule: several tokens at a time."""
    program, together = linear(spec), []
    if spec.masked:
        return program, cpu_schedule(parallel=parallel)
    for number, piece in enumerate(spec.pieces):
        name = name_of(number)
        widths = _cut(piece.block[0], VECTORS * target.lanes(spec.dtype))
        program = tile_axis(program, within_of(piece, name), tuple((width,) for width in widths), f"rows_{name}")
        together.append(unroll_and_jam(f"each_{name}", rows_together(target, TOKENS_TOGETHER, wide=True)))
    return program, cpu_schedule(*together, parallel=parallel)


TOKENS_TOGETHER = 8
"""Most tokens that a vector of weights meets in registers: with two vectors sixteen sums, which keep all units busy."""
FEW_TURNS, MANY_TURNS = 2, 8
"""How often a task visits ``TOKENS_TOGETHER`` tokens. Rows of few tokens are in few pages of memory, and many tokens
share what is loaded of weights that a core's own cache does not hold."""


def task_tokens(nbytes: int) -> int:
    """Tokens of a task of `programs.linear`, whose weights have ``nbytes`` bytes."""
    turns = FEW_TURNS if nbytes <= private_cache_bytes() else MANY_TURNS
    return turns * rows_together(host_target(), TOKENS_TOGETHER, wide=True)


LONG_BLOCK = {16: 4, 32: 1}
"""Vectors of the rows of a block from which `programs.linear` is as fast as slices, by how many registers there are."""
CHAINS = 4
"""Sums of a row of single non-zeros side by side: with one, each addition waits for the one before."""


CHAINS_OF_ROWS = 8
"""Sums side by side of several rows of equally many elements, in vectors."""


def slice_tokens(dtype: str, tokens: int = 0, threads: int = 1) -> int:
    """Tokens of a slice. More have more vectors to each value and index, but fewer rows in the caches. Where threads
    are more than slices of ``tokens`` tokens, a slice has one vector; each token's sums are the same bits.
    """
    lanes = host_target().lanes(dtype)
    return lanes if 0 < tokens < VECTORS * lanes * threads else VECTORS * lanes


def scheduled_sliced(spec: ComposedSpec, parallel: bool, target: Target) -> tuple[Program, Schedule]:
    """The program and its schedule: of a block several rows at a time, and of a row of single non-zeros several."""
    program, together, lanes = sliced(spec), [], []
    for number, piece in enumerate(spec.pieces):
        name = name_of(number)
        program = tile_axis(program, "C", ((spec.tile,),), f"rows_{name}")
        if piece.kind == "csr":
            lanes.append(fold_in_lanes(f"sum_{name}_tile_0", CHAINS))
        elif piece.shape.alike and not spec.masked:
            together.append(unroll_and_jam(f"rows_{name}", CHAINS))
        elif piece.block[0] > 1 and not spec.masked:
            together.append(unroll_and_jam(f"rows_{name}", rows_together(target, piece.block[0])))
    turned = ("pack_stretch", "unpack_stretch") if spec.turned else ()
    return program, cpu_schedule(*lanes, *together, *_in_squares(turned, target), parallel=parallel)


def turns(dtype: str) -> bool:
    """Whether what goes by slices of this type is transposed in squares of as many rows as a vector has lanes."""
    return dtype == "float32"


def _in_squares(iterations: Sequence[str], target: Target) -> list[Step]:
    return [transpose_words(name, target.lanes("float32")) for name in iterations]


PACKED_ALONE = 1 << 20
"""Bytes of weights that one thread packs in about the time in which another one is woken up: 0.34 MB took some 15 us,
and a second parallel loop 50 us, where threads sleep while they wait (a Xeon, two cores of a virtual machine)."""


def scheduled_tiled(spec: TiledSpec, parallel: bool, few: bool) -> tuple[Program, Schedule]:
    """The program and its schedule: products of tiles. few: of weights that one thread packs."""
    alone = ("pack",) if few else ()
    return tiled(spec), cpu_schedule(
        interleave("pairs"), tile_products(("C",), host_target()), parallel=parallel, alone=alone
    )


def scheduled_tiled_sddmm(spec: TiledSpec, parallel: bool) -> tuple[Program, Schedule]:
    """The program and its schedule: products of tiles."""
    pairs = interleave("pairs_u"), interleave("pairs_v"), transpose_pairs("turned")
    return tiled_sddmm(spec), cpu_schedule(*pairs, tile_products(("C",), host_target()), parallel=parallel)


def terms_of_slice(dtype: str) -> int:
    """Tokens of a slice of `programs.sliced_sddmm`: with fewer, lanes are added up more often; of more, slices of wide
    matrices are larger than a core's own cache.
    """
    return 2 * VECTORS * host_target().lanes(dtype)


def scheduled_sliced_sddmm(spec: ComposedSpec, parallel: bool, target: Target) -> tuple[Program, Schedule]:
    """The program and its schedule: each dot product in the lanes of a vector."""
    program = reduce_in_lanes(sliced_sddmm(spec), f"dot_{name_of(0)}", target.lanes(spec.dtype))
    turned = ("rows_stretch", "columns_stretch") if spec.turned else ()
    return program, cpu_schedule(*_in_squares(turned, target), parallel=parallel)


def takes_tiles(pieces: Sequence[FormatSpec], tokens: int, target: Target | None = None) -> bool:
    """Whether `programs.tiled` has this product in bfloat16: of one piece of blocks that tiles divide."""
    return (
        (target or host_target()).has_bf16_tiles
        and tokens >= TOKENS
        and len(pieces) == 1
        and (piece := pieces[0].as_first) is not None
        and piece.is_bsr
        and all(side % NARROW == 0 for side in pieces[0].block)
    )


def scheduled_sddmm(spec: ComposedSpec, parallel: bool, target: Target) -> tuple[Program, Schedule]:
    """The program and its schedule: of a block several columns at a time."""
    program, together = sddmm(spec), []
    if by_terms(spec):
        (piece,), name = spec.pieces, name_of(0)
        elements = f"elements_{name}"
        widths = _cut(piece.block[0], VECTORS * target.lanes(spec.dtype))
        program = tile_axis(program, within_of(piece, name), tuple((width,) for width in widths), elements)
        count = rows_together(target, piece.block[1], wide=True)
        if count > 1:
            together.append(unroll_and_jam(elements, count))
    return program, cpu_schedule(*together, parallel=parallel)


def takes_blocks(spec: ComposedSpec) -> bool:
    """Whether `programs.linear` has vectors for all pieces."""
    return all(piece.beside and piece.block[0] % host_target().lanes(spec.dtype) == 0 for piece in spec.pieces)


def in_short_blocks(spec: ComposedSpec) -> bool:
    """Whether blocks have so few rows that slices of tokens have more vectors to each value."""
    long = LONG_BLOCK[host_target().registers]
    return any(piece.block[0] < long * host_target().lanes(spec.dtype) for piece in spec.pieces)


def _cut(width: int, part: int) -> tuple[int, ...]:
    full, rest = divmod(width, part)
    return (part,) * full + ((rest,) if rest else ())
