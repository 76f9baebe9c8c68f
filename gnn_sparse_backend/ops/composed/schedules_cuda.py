"""Kernels of products of composed matrices for a GPU.

Blocks without padding are multiplied by blocks of warps: half types, and float32 where PyTorch allows tf32, on Tensor
Cores, other float32 in full precision. Everything else is a team's work for each unit of rows, whose lanes share the
columns of the dense operand; products at the non-zeros have the rows of a block among the lanes, or the terms. None of
the rules has been measured on a GPU yet.
"""

from __future__ import annotations

from ...compiler.language.program import Program
from ...compiler.language.types import BYTES
from ...compiler.schedules.primitives.cuda.mma import multiply_fragments
from ...compiler.schedules.sequence import Schedule
from ...compiler.schedules.teams import team_schedule
from ...compiler.transforms.dense_axes.share import share_axis
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...formats.composed.spec import FormatSpec
from ...planner.cuda.plan import WARP, shares
from ...planner.cuda.tensor_cores import COLUMNS, LANES, SIDE_BY_SIDE, has_instructions
from ..core.tiles.row_products import STRETCH
from .programs.blocks import BlocksSpec, blocks
from .programs.rules import ComposedSpec, name_of, within_of
from .programs.sddmm import by_terms, sddmm
from .programs.spmm import spmm

WIDEST = 128
"""Columns that a team accumulates together, a vector for each lane; rows of the largest blocks that warps multiply."""
WARPS = 4
TILES = 4
"""Tiles that a warp accumulates, across and down."""


def column_tile(features: int) -> tuple[int, int]:
    """(columns of a tile, tiles): whole vectors where there are several."""
    count = max(1, -(-features // WIDEST))
    return (features, 1) if count == 1 else (-(-features // (4 * count)) * 4, count)


def multiplies(piece: FormatSpec, dtype: str, arch: str, full: bool) -> bool:
    """Whether blocks of warps take the blocks of a format. full: float32 is not to be cut to tf32."""
    first = piece.as_first
    if first is None or not first.is_bsr or dtype not in SIDE_BY_SIDE:
        return False
    height, width = piece.block
    if height % COLUMNS or height > WIDEST:
        return False
    return full or (has_instructions(arch) and width % (8 * SIDE_BY_SIDE[dtype]) == 0)


def blocks_spec(
    piece: FormatSpec, types: tuple[str, str, str], features: int, tokens: bool, onto: bool, full: bool
) -> BlocksSpec:
    """The shape of a block of warps that covers the rows of a block, and the features as far as it goes."""
    height, width = piece.block
    across = min(8, height // STRETCH) if full else 0
    across = 1 << (across.bit_length() - 1) if across else 0
    tile = STRETCH * across if full else COLUMNS
    wide = -(-height // tile)
    tiles = min(TILES, 1 << (wide - 1).bit_length())
    along = -(-wide // tiles)
    rows = LANES // across if full else 16
    down = 1
    while down * along < WARPS and down * rows < features:
        down *= 2
    high = 2 if down * rows < features and tiles < TILES else 1
    shape = (down, along), (high, tiles), across
    return BlocksSpec(width, height, *shape, tokens, onto, *types)


def scheduled_blocks(spec: BlocksSpec) -> tuple[Program, Schedule]:
    """The program and its schedule: a warp for each tile."""
    return blocks(spec), team_schedule(LANES, *map(multiply_fragments, spec.product.instruction), teams=1)


def scheduled_spmm(spec: ComposedSpec) -> tuple[Program, Schedule]:
    """The program and its schedule: a team for each unit of rows."""
    program, of = spmm(spec), shares(spec.tile, BYTES[spec.dtype])
    for number in range(len(spec.pieces)):
        rows = f"rows_{name_of(number)}"
        program = _shared(program, "C", spec.tile, rows, of.lanes, of.part)
    return program, team_schedule(of.lanes)


def scheduled_sddmm(spec: ComposedSpec) -> tuple[Program, Schedule]:
    """The program, of one piece, and its schedule."""
    program, lanes = sddmm(spec), WARP
    if by_terms(spec):
        height, name = spec.pieces[0].block[0], name_of(0)
        lanes = shares(height, BYTES["float32"] * STRETCH).lanes  # a row each
        program = _shared(program, within_of(spec.pieces[0], name), height, f"elements_{name}", lanes, 1)
    return program, team_schedule(lanes)


def _shared(program: Program, axis: str, width: int, within: str, lanes: int, part: int) -> Program:
    program = tile_axis(program, axis, ((width,),), within)
    return share_axis(program, f"{axis}_{within}_0", lanes, part)
