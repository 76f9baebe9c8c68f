"""What a kernel has to know of its operands: formats, types, and which of them have one structure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..storage.stored import Stored
from ..storage.structure import Structure
from .notation import Access, Statement, accesses
from .terms import Operand


def specs_of(
    statement: Statement, operands: Mapping[str, Stored], patterns: frozenset[str], compare: bool = True
) -> dict[str, Operand]:
    """Each operand of a statement.

    Args:
        patterns: those whose elements count as ones.
        compare: find out which structures are the same; otherwise none is.
    """
    found: dict[str, Operand] = {}
    known: list[Structure] = []
    for name in dict.fromkeys(access.name for access in accesses(statement.expression)):
        stored = operands[name]
        structure = stored.structure
        if stored.format.is_dense:
            found[name] = Operand(stored.format, stored.dtype)
            continue
        number = next((n for n, other in enumerate(known) if compare and same_structure(structure, other)), len(known))
        known += [structure] if number == len(known) else []
        widths = tuple(level.width for level in structure.levels if level.kind == "slots")
        found[name] = Operand(stored.format, stored.dtype, stored.index_dtype, number, name in patterns, widths)
    return found


def same_structure(a: Structure, b: Structure) -> bool:
    """Whether elements are at the same coordinates, in the same positions."""
    if a.levels is b.levels and a.format == b.format:
        return True
    if a.format != b.format or a.shape != b.shape or a.positions != b.positions or a.index_dtype != b.index_dtype:
        return False
    arrays = [((x.offsets, y.offsets), (x.indices, y.indices)) for x, y in zip(a.levels, b.levels)]
    pairs = [*(pair for level in arrays for pair in level), (a.mask, b.mask)]
    return all(x is y or (x is not None and y is not None and np.array_equal(x, y)) for x, y in pairs)


def extents_of(statement: Statement, operands: Mapping[str, Stored]) -> dict[str, int]:
    """The extent of each index. Raises NotationError, which shows where the operands disagree."""
    found: dict[str, tuple[int, Access]] = {}
    for access in accesses(statement.expression):
        if access.name not in operands:
            statement.refuse(f"{access.name} is not given; there are {_listed(operands)}", access.at, len(access.name))
        shape = operands[access.name].shape
        if len(shape) != len(access.indices):
            statement.refuse(
                f"{access.name} has {len(shape)} modes, shape {shape}, and {len(access.indices)} indices",
                access.at,
                len(str(access)),
            )
        for index, extent in zip(access.indices, shape):
            before, where = found.setdefault(index, (extent, access))
            if before != extent:
                statement.refuse(
                    f"index {index!r} has {extent} values in {access}, and {before} in {where}",
                    access.at,
                    len(str(access)),
                )
    result = statement.result
    for index in result.indices:
        if index not in found:
            statement.refuse(f"index {index!r} of the result is in no operand", result.at, len(str(result)))
    return {index: extent for index, (extent, _) in found.items()}


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "none"
