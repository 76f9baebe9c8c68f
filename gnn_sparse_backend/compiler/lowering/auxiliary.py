"""Pass 1: the auxiliary buffers that the axes stand on, with the domain of their values (SparseTIR, section 3.3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from ..language.axes import Axis, Size
from ..language.program import Program


@dataclass(frozen=True)
class Auxiliary:
    """An index array. Its values lie in [low, high), for indptr in [0, nnz]; negative ones mark padding."""

    name: str
    axis: Axis
    role: str  # "indptr" or "indices"
    dtype: str
    low: int
    high: int | Size


def auxiliary_buffers(program: Program) -> tuple[Auxiliary, ...]:
    """The index arrays of the program, axes in order, indptr before indices."""
    found = []
    for axis in program.axes:
        if axis.indptr is not None:
            found.append(Auxiliary(axis.indptr, axis, "indptr", axis.index_dtype, 0, axis.stored))
        if axis.indices is not None:
            low = -1 if axis.padded else 0
            found.append(Auxiliary(axis.indices, axis, "indices", axis.index_dtype, low, axis.length))
    return tuple(found)
