"""What kernels of composed matrices are called with: their tasks, and the index arrays and values of the pieces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...formats.base import SparseFormat
from ...formats.composed.decomposition import Decomposition, Piece
from ...formats.composed.spec import FormatSpec
from ...formats.counts import prefix_sums
from ...formats.dbsr import DbsrFormat
from ...formats.dia import DiaFormat
from ...formats.hyb import HybBucket
from ...formats.partitions.row_groups import balanced_row_groups
from ...formats.sr_bcrs import SrBcrsFormat
from ...structures.derived import fact
from .programs.rules import name_of

ROW_COST = 2.0
"""What a row costs beside its values."""


Some = tuple[int, ...] | None
"""Numbers of the pieces that a kernel has; None: of all."""


def unit_of(parts: Decomposition, some: Some = None) -> int:
    """Rows that tasks are cut between: whole blocks of all pieces."""
    return math.lcm(*(piece.spec.grid[0] for piece in _pieces(parts, some)))


BEGIN = FormatSpec("csr")
"""Format of a first pass over no non-zeros, which begins all rows."""


def begins_apart(parts: Decomposition, some: Some = None) -> bool:
    """Whether no row is begun by the first piece: then kernels of all pieces begin with a pass over none."""
    pieces = _pieces(parts, some)
    return not (pieces and pieces[0].spec.begins_rows)


def formats_of(parts: Decomposition, some: Some = None) -> tuple[FormatSpec, ...]:
    """The formats that kernels have, those of the pieces at last. The first one begins all rows, as the others go on
    from it, so that it visits rows of blocks without a block.
    """
    specs = [piece.spec for piece in _pieces(parts, some)]
    if begins_apart(parts, some):
        return BEGIN, *specs
    if specs[0].kind == "dbsr":
        specs[0] = FormatSpec("bsr", specs[0].numbers)
    return tuple(specs)


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
    form, rows = piece.format, parts.padded_shape[0]
    dtype = parts.indptr.dtype
    if spec.kind == "bsr":
        blocks = rows // form.block[0]
        if isinstance(form, DbsrFormat):
            lengths = form.indptr.new_zeros(blocks).index_copy(0, form.rows.long(), form.indptr.diff())
            indptr = prefix_sums(lengths)
        else:
            indptr = _extended(form.indptr, blocks + 1 - form.indptr.numel())
        return _blocks(parts, form, rows, dtype) | {"indptr": indptr.to(dtype)} | _ptr(cuts, form.block[0])
    if isinstance(form, DbsrFormat):
        given = _blocks(parts, form, rows, dtype) | {"stored": form.rows.numel(), "indptr": form.indptr.to(dtype)}
        if cuts is None:
            return given | {"Rows": form.rows.to(dtype)}
        firsts = cuts // form.block[0]
        starts = torch.searchsorted(form.rows.to(dtype), firsts).to(dtype)
        task = torch.searchsorted(
            starts[1:], torch.arange(form.rows.numel(), dtype=dtype, device=starts.device), right=True
        )
        return given | {"ptr": starts, "listed": (form.rows - firsts.index_select(0, task)).to(dtype)}
    if isinstance(form, SrBcrsFormat):
        columns = form.indices if masked else form.indices.clamp(min=0)
        indptr = _extended(form.indptr.to(dtype), rows // form.block[0] + 1 - form.indptr.numel())
        given = {"tiles": rows // form.block[0], "groups": form.num_groups, "indptr": indptr}
        return given | {"Columns": columns.to(dtype)} | _ptr(cuts, form.block[0])
    if isinstance(form, HybBucket):
        return _bucket(form, cuts, dtype)
    if isinstance(form, DiaFormat):
        given = {"diagonals": form.num_diagonals, "Offsets": form.offsets.to(dtype)}
        return given if cuts is None else given | {"Start": cuts[:-1].contiguous()}
    if piece.spec.kind == "ell":
        indices = form.indices.to(dtype)
        missing = rows - indices.shape[0]
        return {"indices": torch.cat([indices, indices.new_full((missing, indices.shape[1]), -1)]).reshape(-1)}
    return {
        "nnz": form.nnz,
        "indptr": _extended(form.indptr.to(dtype), rows + 1 - form.indptr.numel()),
        "indices": form.indices.to(dtype),
    }


def _bucket(form: HybBucket, cuts: Tensor, dtype: torch.dtype) -> dict[str, Any]:
    """Rows of a bucket, which ascend, by the tasks in which they are."""
    rows = form.row_indices.to(dtype)
    starts = torch.searchsorted(rows, cuts).to(dtype)
    task = torch.searchsorted(starts[1:], torch.arange(form.num_rows, dtype=dtype, device=starts.device), right=True)
    within = rows - cuts.index_select(0, task)
    return {"count": form.num_rows, "ptr": starts, "listed": within, "indices": form.indices.to(dtype).reshape(-1)}


def _blocks(parts: Decomposition, form: SparseFormat, rows: int, dtype: torch.dtype) -> dict[str, Any]:
    height, width = form.block
    return {
        "mb": rows // height,
        "nb": parts.padded_shape[1] // width,
        "nnzb": form.num_blocks,
        "indices": form.indices.to(dtype),
    }


def _ptr(cuts: Tensor | None, height: int) -> dict[str, Tensor]:
    return {} if cuts is None else {"ptr": cuts // height}


def _extended(indptr: Tensor, rows: int) -> Tensor:
    """Offsets with ``rows`` more rows, which are empty."""
    return torch.cat([indptr, indptr[-1:].expand(rows)]) if rows else indptr
