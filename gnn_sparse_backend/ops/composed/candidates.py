"""The formats that a matrix may be multiplied in: which are worth a try, and what each would store of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from ...formats.composed.decompose import FILL
from ...formats.composed.fills import Stored, stored_values
from ...formats.composed.registry import registered_formats
from ...formats.composed.spec import SEPARATOR, FormatSpec, key_of, parse_formats
from ...planner.composed import DENSE, LINEAR, PieceCount
from ...planner.problem import Problem
from .executables import WHOLE_ROWS
from .schedules_cpu import column_tile

CANDIDATES = (
    *("csr", "bsr(32)", "bsr(16)", "bsr(8)", "bsr(32) + csr", "bsr(16) + csr", "bsr(8) + csr", "bsr(4) + csr"),
    *("nm(2, 4)", "nm(1, 4)"),
)
"""What is tried of every matrix, beside dense and what users have registered or name."""
MOST_SLOTS = 8
"""Stored values for each non-zero beyond which a format is not made at all."""
TILES = (0, 4)
"""Vectors of columns that kernels of ``composed_spmm`` accumulate together, 0 for as many as the rule has."""

Candidates = Mapping[str, tuple[FormatSpec, ...]]
"""Formats by the words under which they are kept."""


def named(words: Iterable[str | Iterable[str]]) -> dict[str, tuple[FormatSpec, ...]]:
    """The candidates of these words, each of several formats, or of one with ``" + "`` between them. Errors quote what
    they cannot read.
    """
    split = [each.split(SEPARATOR.strip()) if isinstance(each, str) else each for each in words]
    return {key_of(specs): specs for specs in map(parse_formats, split)}


def registered() -> list[str]:
    """The candidates of formats that users have registered."""
    return [words for each in registered_formats() for words in each.candidates]


def counted(
    indptr: Tensor, indices: Tensor, shape: tuple[int, int], candidates: Candidates
) -> tuple[int, dict[str, list[PieceCount]]]:
    """(distinct coordinates, what each candidate stores), those left out that store too much, or the same as another.
    Nothing is packed for that.
    """
    fitting = {words: own for words, own in candidates.items() if _fits(own[0], shape)}
    count, stored = stored_values(indptr, indices, shape, list(fitting.values()), FILL)
    found: dict[tuple[Stored, ...], str] = {}
    for words, pieces in zip(fitting, stored):
        if pieces and sum(piece.slots for piece in pieces) <= MOST_SLOTS * max(count, 1):
            found.setdefault(pieces, words)
    return count, {words: [PieceCount(p.side, p.slots, p.alike) for p in pieces] for pieces, words in found.items()}


def _fits(spec: FormatSpec, shape: tuple[int, int]) -> bool:
    """Whether a matrix has room for a block. Formats without a rule are several pieces of single non-zeros."""
    return spec.format.rule is None or all(spec.block[0] <= max(extent, 1) for extent in shape)


def tiles(words: str, problem: Problem) -> list[int]:
    """Members of `TILES` with which the kernel of these formats differs from that of the others."""
    alone = words in (DENSE, "csr") and (words == DENSE or problem.features <= WHOLE_ROWS)
    if alone or problem.kind == LINEAR:
        return [0]
    different = {column_tile(problem.features, problem.dtype, tile): tile for tile in reversed(TILES)}
    return sorted(different.values())
