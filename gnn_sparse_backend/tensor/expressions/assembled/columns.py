"""Columns of a wide result numbered among those that occur, so that a workspace has no more than there are of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...storage.stored import Stored
from ...storage.structure import Structure
from ..terms import Operand, Term, along

MANY, SPARE = 1 << 26, 4
"""Columns, and columns for each element that stores one, above which they are numbered. That takes time and saves
memory: with 300,000 elements a product of 40 million columns takes 34 ms in a workspace of them all, and 169 if those
that occur are sorted first (Zen 4); of more, the pages that a workspace touches are gigabytes.
"""


def apart(terms: Sequence[Term], specs: Mapping[str, Operand]) -> dict[str, Operand]:
    """What is known of operands, with structures of their own for those of one structure that are read by different
    indices, so that columns can be numbered in one of them alone."""
    read: dict[str, dict[tuple[str, ...], None]] = {}
    for access in (access for term in terms for access in term.accesses):
        read.setdefault(access.name, {})[access.indices] = None
    known: dict[tuple[int, tuple[tuple[str, ...], ...]], int] = {}
    found = dict(specs)
    for name, indices in read.items():
        if specs[name].is_sparse:
            number = known.setdefault((specs[name].structure, tuple(indices)), len(known))
            found[name] = replace(specs[name], structure=number)
    return found


def numbered(
    terms: tuple[Term, ...], specs: Mapping[str, Operand], operands: Mapping[str, Stored], column: str, extent: int
) -> tuple[Mapping[str, Stored], np.ndarray] | None:
    """(the operands with numbers in the place of the columns that they store, the column of each number). None where
    there is nothing to gain, or a column has another use: in a dense operand, or as another index."""
    if extent <= MANY:
        return None
    levels: dict[str, int] = {}
    found = [access for term in terms for access in term.accesses]
    for access in found:
        format = specs[access.name].format
        indices = () if format.masked else along(access, format)
        if column not in access.indices and access.name not in levels:
            continue
        if indices.count(column) != 1 or format.levels[at := indices.index(column)] != "compressed":
            return None
        if levels.setdefault(access.name, at) != at:
            return None
    if any(access.name in levels and column not in access.indices for access in found):
        return None
    stored = {name: operands[name].structure.levels[at].indices for name, at in levels.items()}
    arrays = [each for each in stored.values() if each is not None]
    if extent <= SPARE * sum(map(len, arrays)):
        return None
    known = np.unique(np.concatenate(arrays))
    return {
        name: _renumbered(each, levels[name], known) if name in levels else each for name, each in operands.items()
    }, known


def _renumbered(stored: Stored, at: int, known: np.ndarray) -> Stored:
    structure = stored.structure
    level = structure.levels[at]
    assert level.indices is not None
    indices = np.searchsorted(known, level.indices).astype(level.indices.dtype)
    levels = (*structure.levels[:at], replace(level, extent=len(known), indices=indices), *structure.levels[at + 1 :])
    mode = structure.format.modes_in_order[at]
    shape = tuple(len(known) if n == mode else extent for n, extent in enumerate(structure.shape))
    return Stored(Structure(structure.format, shape, levels), stored.values)
