"""How a row of features is cut for the register file of this CPU."""

from __future__ import annotations

from ...compiler.codegen import Target

# Vectors of several registers keep enough independent chains in flight; one vector of the whole tile makes LLVM spill.
REGISTERS_PER_CHUNK = 4
# Additions wait four cycles for each other, and two start in each.
MOST_ROW_LANES = 8


def register_tiles(features: int, itemsize: int, target: Target) -> tuple[tuple[int, ...], ...]:
    """Tiles of chunks for `tile_axis`: accumulators of one tile take half of the vector registers.

    features: width of the row. itemsize: bytes of one accumulator. The other half of the registers holds rows in
    flight. A wide row is cut into tiles of equal numbers of chunks, so that no pass over the non-zeros is nearly idle.
    """
    lanes = max(1, target.vector_bytes // itemsize)
    chunk = lanes * REGISTERS_PER_CHUNK
    most = max(chunk, target.registers // 2 * lanes)
    passes = -(-features // most)
    width = -(-features // (passes * lanes)) * lanes
    tiles = []
    while features > 0:
        tile = min(width, features)
        features -= tile
        tiles.append(_chunks(tile, chunk))
    return tuple(tiles)


def product_rows(target: Target) -> int:
    """Rows of the accumulators of a matrix product. Ten of 16 registers accumulate, in five rows of two vectors: two
    units have that many sums under way where one takes five cycles. Five hold what the rows are multiplied by.
    """
    return 4 if target.registers > 16 else 5


def _chunks(width: int, chunk: int) -> tuple[int, ...]:
    full, rest = divmod(width, chunk)
    return (chunk,) * full + ((rest,) if rest else ())


def sum_lanes(width: int, itemsize: int, target: Target, registers: int = REGISTERS_PER_CHUNK) -> int:
    """Lanes of a two-stage sum over `width` terms: a power of two, at most `registers` registers of them."""
    most = max(1, target.vector_bytes // itemsize) * registers
    lanes = 1
    while lanes * 2 <= min(width, most):
        lanes *= 2
    return lanes


def fits_together(lanes: int, itemsize: int, target: Target) -> bool:
    """Whether the lanes of several sums, ``lanes`` in all, stay in registers while they are folded together: a quarter
    of them, since what is summed, and other sums, take theirs.
    """
    return lanes * itemsize <= target.vector_bytes * (target.registers // 4)


def row_lanes(features: int, itemsize: int, target: Target) -> int:
    """Lanes of a sum over the non-zeros of a row: chains enough to hide the latency of an addition, in half of the
    registers; 1 where the features alone are chains enough.

    features: width of the row. itemsize: bytes of one accumulator.
    """
    room = max(1, target.vector_bytes // itemsize) * REGISTERS_PER_CHUNK // features
    lanes = 1
    while lanes * 2 <= min(room, MOST_ROW_LANES):
        lanes *= 2
    return lanes


def chunks_of_runs(width: int, run: int, most: int) -> tuple[int, ...]:
    """Chunks of at most ``most`` that hold whole runs or parts of one: along a run the head is the same."""
    if run >= most:
        run, rest = divmod(run, most)
        return ((most,) * run + ((rest,) if rest else ())) * (width // (run * most + rest))
    step = most // run * run
    full, rest = divmod(width, step)
    return (step,) * full + ((rest,) if rest else ())
