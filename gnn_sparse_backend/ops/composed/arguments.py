"""What kernels of composed matrices are called with: their tasks, and the index arrays and values of the pieces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...compiler.transforms.place_rule import base_name
from ...formats.composed.decomposition import Decomposition, Piece
from ...formats.composed.indices import NonZeros
from ...formats.composed.layout import fitted
from ...formats.composed.shares import inferred
from ...formats.composed.spec import FormatSpec, parse_format
from ...formats.partitions.row_groups import balanced_row_groups
from ...structures.derived import fact
from .programs.rules import name_of

ROW_COST = 2.0
"""What a row costs beside its values."""


Some = tuple[int, ...] | None
"""Numbers of the pieces that a kernel has; None: of all."""


def unit_of(parts: Decomposition, some: Some = None) -> int:
    """Rows that tasks are cut between: whole blocks of all pieces."""
    return math.lcm(*(piece.spec.grid[0] for piece in _pieces(parts, some)))


BEGIN = parse_format("csr")
"""Format of a first pass over no non-zeros, which begins all rows."""


def begins_apart(parts: Decomposition, some: Some = None) -> bool:
    """Whether no row is begun by the first piece: then kernels of all pieces begin with a pass over none."""
    pieces = _pieces(parts, some)
    return not pieces or pieces[0].spec.as_first is None


def formats_of(parts: Decomposition, some: Some = None) -> tuple[FormatSpec, ...]:
    """The formats that kernels have, those of the pieces at last. The first one begins all rows, as the others go on
    from it, so that it visits rows of blocks without a block.
    """
    specs = [piece.spec for piece in _pieces(parts, some)]
    if begins_apart(parts, some):
        return BEGIN, *specs
    first = specs[0].as_first
    assert first is not None
    return (first, *specs[1:])


def named_pieces(parts: Decomposition, some: Some = None) -> list[tuple[str, FormatSpec, Piece]]:
    """The name of each piece in a kernel, its format there, and itself."""
    specs, first = formats_of(parts, some), int(begins_apart(parts, some))
    return [(name_of(first + at), specs[first + at], piece) for at, piece in enumerate(_pieces(parts, some))]


def _pieces(parts: Decomposition, some: Some) -> list[Piece]:
    return list(parts.pieces) if some is None else [parts.pieces[number] for number in some]


@fact
def row_tasks(parts: Decomposition, tasks: int, some: Some = None) -> Tensor:
    """(tasks + 1,) the first row of each task, of tasks of about equally many values, or one for each
    unit, if there are to be as many.
    """
    rows, unit = parts.padded_shape[0], unit_of(parts, some)
    if tasks == rows // unit:
        return torch.arange(0, rows + 1, unit, dtype=parts.indptr.dtype, device=parts.device)
    ends = torch.arange(0, rows + 1, unit, device=parts.device).clamp(max=parts.shape[0])
    cuts = balanced_row_groups(parts.indptr.index_select(0, ends), tasks, ROW_COST * unit, 1.0)
    return (cuts * unit).to(parts.indptr.dtype)


@fact
def structure_of(parts: Decomposition, tasks: int, masked: bool, some: Some = None) -> dict[str, Any]:
    """Sizes and index arrays of the pieces by the names of the parameters, for ``tasks`` tasks; 0: for a program
    without tasks of rows.
    """
    cuts = row_tasks(parts, tasks, some) if tasks else None
    given: dict[str, Any] = {} if cuts is None else {"row_ptr": cuts}
    if begins_apart(parts, some):
        rows, none = parts.padded_shape[0], parts.indptr[:0]
        begin = {"nnz": 0, "indptr": parts.indptr.new_zeros(rows + 1), "indices": none}
        given |= {f"{name}_{name_of(0)}": value for name, value in begin.items()}
    for piece_name, spec, piece in named_pieces(parts, some):
        own = _of_piece(parts, piece, spec, cuts, masked)
        if masked and not piece.spec.names_columns:
            own["mask"] = _mask(parts, piece)
        given |= {f"{name}_{piece_name}": value for name, value in own.items()}
    return given


def of_one_piece(structure: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The arguments of the piece of this name for a program that has it alone, and calls it the first."""
    suffix = f"_{name}"
    return {
        f"{key.removesuffix(suffix)}_{name_of(0)}": value for key, value in structure.items() if key.endswith(suffix)
    }


def _mask(parts: Decomposition, piece: Piece) -> Tensor:
    mask = parts.mask[piece.start : piece.start + piece.num_slots].view(torch.uint8)
    return mask.reshape(piece.stored)


def values_of(parts: Decomposition, packed: Tensor, what: str, some: Some = None) -> dict[str, Tensor]:
    """The values of the pieces, (batch, num_slots) or (num_slots,), by the names of the parameters."""
    return {
        f"{what}_{name}": packed[..., first:end].unflatten(-1, stored)
        for name, first, end, stored in slots_of(parts, some)
    }


def slots_of(parts: Decomposition, some: Some = None) -> list[tuple[str, int, int, tuple[int, ...]]]:
    """(name in a kernel, first slot, the one after the last, shape) of the values of each piece."""
    found = [(name_of(0), 0, 0, (0,))] if begins_apart(parts, some) else []
    return found + [
        (name, piece.start, piece.start + piece.num_slots, piece.stored) for name, _, piece in named_pieces(parts, some)
    ]


def _of_piece(
    parts: Decomposition, piece: Piece, spec: FormatSpec, cuts: Tensor | None, masked: bool
) -> dict[str, Any]:
    """Sizes and arrays of a piece. spec: its format there, that of its values with all rows where it is the first."""
    given = dict(piece.arrays if spec == piece.spec else _with_all_rows(parts, piece, spec))
    shape, rule = spec.shape, spec.rule
    if shape.named and rule.masked and not masked:
        named = base_name(rule, shape.named)
        given[named] = given[named].clamp(min=0)  # padding meets the first column
    if cuts is None:
        return given
    firsts = cuts // shape.height
    if shape.listed:
        return given | _by_task(given.pop(base_name(rule, shape.listed)), firsts, parts.padded_shape[0] // shape.height)
    return given | {"ptr": firsts, "Start": firsts[:-1].contiguous()}


def _with_all_rows(parts: Decomposition, piece: Piece, spec: FormatSpec) -> Mapping[str, Any]:
    """The arrays of the format in which the same values have all rows."""
    rows, order = parts.rows().index_select(0, piece.positions), piece.positions
    matrix = NonZeros(rows, parts.indices.long().index_select(0, order), parts.shape, dtype=parts.indptr.dtype)
    ((_, found, _),), _ = inferred(spec, matrix)
    return fitted(spec, found.arrays, found.slots, parts.shape, parts.padded_shape[0], parts.indptr.dtype)[0]


def _by_task(rows: Tensor, firsts: Tensor, count: int) -> dict[str, Any]:
    """Listed rows, or rows of blocks, which ascend, by the tasks in which they are. count: of all."""
    dtype = firsts.dtype
    starts = torch.searchsorted(rows, firsts).to(dtype)
    task = torch.searchsorted(starts[1:], torch.arange(rows.numel(), dtype=dtype, device=starts.device), right=True)
    return {"mb": count, "ptr": starts, "listed": rows - firsts.index_select(0, task)}
