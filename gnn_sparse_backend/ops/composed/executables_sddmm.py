"""Products of dense operands at the non-zeros of composed matrices as calls of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...compiler.codegen import host_target
from ...compiler.own_schedules import in_force
from ...formats.composed.decomposition import Decomposition, Piece
from ...formats.composed.spec import FormatSpec
from ...runtime.layout import compact
from ...runtime.memory import empty
from ...runtime.threads import planned_threads
from ...runtime.type_names import accumulator_of, type_name
from .arguments import named_pieces, of_one_piece, structure_of, values_of
from .executables import PARALLEL, first, launch_of, sliced_arguments, tasks_of
from .executables_tiles import tiled_sddmm
from .launches import padded_rows
from .programs.rules import ComposedSpec, name_of
from .programs.sddmm import by_terms
from .programs.sliced import STRETCH
from .schedules_cpu import scheduled_sddmm, scheduled_sliced_sddmm, terms_of_slice, turns

SHARES = 4
"""Shares of the slices of tokens, each with sums of its own: as many whatever the number of threads, so that results
are the same bits."""


def run_sddmm(parts: Decomposition, u: Tensor, v: Tensor, tokens: bool) -> Tensor:
    """(batch, m, terms) and (batch, n, terms), or without batch, to (batch, num_slots), 0 at padding.

    tokens: operands are (terms, m) and (terms, n), without batch.
    """
    batched, operands = u.dim() == 3, Operands(u, v, *parts.padded_shape, tokens)
    batch, terms = operands.shape
    if tokens and u.dtype is torch.bfloat16:
        tiled = tiled_sddmm(parts, terms, planned_threads() > 1, in_force.generation)
        if tiled.takes:
            return _cleared(parts, tiled(u, v))
    packed = empty(u, batch, parts.num_slots)
    if parts.num_slots and batch:
        rows = parts.padded_shape[0]
        types = type_name(u.dtype), type_name(u.dtype), type_name(parts.indptr.dtype)
        tasks, parallel = tasks_of(parts.num_slots * terms * batch, rows)
        outputs, structure = values_of(parts, packed, "O"), None
        for number, (name, piece, own) in enumerate(named_pieces(parts)):
            if tokens and in_slices(own, terms, parts.padded_shape):
                _sliced_piece(parts, number, u, v, outputs[f"O_{name}"])
                continue
            structure = structure_of(parts, tasks, False) if structure is None else structure
            _one_piece(piece, name, operands, types, (tasks, parallel), structure, outputs)
        _cleared(parts, packed)
    return packed if batched else first(packed)


def _cleared(parts: Decomposition, packed: Tensor) -> Tensor:
    """Set padding to 0."""
    return packed.masked_fill_(~parts.mask, 0) if parts.padding else packed


def in_slices(piece: Piece, tokens: int, shape: tuple[int, int]) -> bool:
    """Whether a piece of single non-zeros is visited slice by slice of the tokens: of two slices at least, in rows as
    long as what is transposed together, without rows by list, which are by tasks of rows.
    """
    return (
        not piece.spec.lists_rows
        and not piece.spec.beside
        and min(shape) >= STRETCH
        and tokens >= 2 * terms_of_slice("float32")
        and piece.num_slots * tokens >= PARALLEL
    )


def _sliced_piece(parts: Decomposition, number: int, u: Tensor, v: Tensor, into: Tensor) -> None:
    """(tokens, m) and (tokens, n) to the values of a piece, by `programs.sliced_sddmm`."""
    (rows, columns), index, dtype = parts.padded_shape, parts.indptr.dtype, type_name(u.dtype)
    ((name, piece, own),) = named_pieces(parts, (number,))
    width, wide = terms_of_slice(dtype), accumulator_of(u.dtype)
    slices = -(-u.shape[0] // width)
    shared, tokens = min(SHARES, slices), slices * width
    u, v = (compact(padded_rows(padded_rows(x, length, 1), tokens, 0)) for x, length in ((u, rows), (v, columns)))
    sums = torch.zeros(shared, own.num_slots, dtype=wide)
    given = sliced_arguments(parts, u, width, shared) | {"U": u, "V": v}
    spec = ComposedSpec((piece,), dtype, type_name(wide), type_name(index), width, turned=turns(dtype))
    structure = of_one_piece(structure_of(parts, 0, False, (number,)), name)
    output = {f"O_{name_of(0)}": sums.view(shared, *own.stored)}
    launch_of(scheduled_sliced_sddmm, spec, planned_threads() > 1).run(given, structure, output)
    into.copy_(sums.sum(0).view(into.shape))


class Operands:
    """Both operands of a product at the non-zeros, row by row or term by term, each made where it is first needed.

    u, v: as of `run_sddmm`, with or without batch. shape: (batch, terms).
    """

    def __init__(self, u: Tensor, v: Tensor, rows: int, columns: int, tokens: bool) -> None:
        if u.dim() == 2:
            u, v = u[None], v[None]
        if tokens:
            u, v = u.transpose(1, 2), v.transpose(1, 2)
        self.shape = u.shape[0], u.shape[2]
        self.given = tuple(padded_rows(x, length, 1) for x, length in ((u, rows), (v, columns)))
        self.made: dict[bool, tuple[Tensor, ...]] = {}

    def __call__(self, terms_first: bool) -> tuple[Tensor, ...]:
        if terms_first not in self.made:
            found = (x.transpose(1, 2) if terms_first else x for x in self.given)
            self.made[terms_first] = tuple(compact(x) for x in found)
        return self.made[terms_first]


def _one_piece(
    piece: FormatSpec,
    name: str,
    operands: Operands,
    types: tuple[str, str, str],
    shared: tuple[int, bool],
    structure: Mapping[str, Any],
    outputs: Mapping[str, Tensor],
) -> None:
    spec = ComposedSpec((piece,), *types, host_target().lanes(types[0]))
    u, v = operands(by_terms(spec))
    batch, terms = operands.shape
    given = {
        "num_tasks": shared[0],
        "m": operands.given[0].shape[1],
        "n": operands.given[1].shape[1],
        "batch": batch,
        "terms": terms,
        "lane_terms": terms // spec.tile,
        "rest": terms % spec.tile,
        "row_ptr": structure["row_ptr"],
        "U": u,
        "V": v,
    }
    values = outputs[f"O_{name}"]
    into = values if values.is_contiguous() else torch.empty_like(values, memory_format=torch.contiguous_format)
    launch_of(scheduled_sddmm, spec, shared[1]).run(given, of_one_piece(structure, name), {f"O_{name_of(0)}": into})
    if into is not values:
        values.copy_(into)
