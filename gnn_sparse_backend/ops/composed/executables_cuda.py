"""Products of composed matrices as launches on a GPU. A call on a decomposition that was used before waits for nothing.

Whatever pads is masked, as looking for an infinite operand would wait for the GPU. The pieces that blocks of warps take
are a launch each, which adds to what the others have left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...compiler.cache.bounded import kept
from ...compiler.language.program import Program
from ...compiler.schedules.sequence import Schedule
from ...formats.composed.decomposition import Decomposition
from ...planner.cuda.plan import WARP
from ...runtime.layout import compact
from ...runtime.precision import on_tensor_cores
from ...runtime.type_names import type_name
from ..core import cuda_build
from ..core.executable import Launch
from .arguments import formats_of, named_pieces, of_one_piece, structure_of, unit_of, values_of
from .executables import by_rows, in_rows, plain, result_type
from .executables_sddmm import Operands
from .launches import padded_rows
from .programs.rules import ComposedSpec, name_of
from .programs.sddmm import by_terms
from .schedules_cuda import (
    blocks_spec,
    column_tile,
    multiplies,
    scheduled_blocks,
    scheduled_sddmm,
    scheduled_spmm,
)

MOST = (1 << 16) - 1
"""Elements of the second dimension of a grid."""


@kept
def _launch(scheduled: Callable[[Any], tuple[Program, Schedule]], spec: Hashable, arch: str) -> Launch:
    program, schedule = scheduled(spec)
    return Launch(cuda_build.build(program, schedule, arch), f"{spec} on {arch}, by rules", program.parameter_names)


def run_spmm(parts: Decomposition, packed: Tensor, x: Tensor, arch: str, tokens: bool = False) -> Tensor:
    """(batch, num_slots) and (batch, n, features), or without batch, to (batch, m, features).

    tokens: (num_slots,) and (features, n) to (features, m).
    """
    if by_rows(parts, 1 if x.dim() == 2 else x.shape[0]) and x.numel():
        y = in_rows(parts, packed.reshape(-1), x.t() if tokens else x.reshape(x.shape[-2:]))
        return y.t().contiguous() if tokens else y.reshape(*x.shape[:-2], *y.shape)
    batched = x.dim() == 3
    values, x = (packed, x) if batched else (packed[None], x[None])
    (rows, columns), (batch, features) = parts.padded_shape, (x.shape[0], x.shape[1 if tokens else 2])
    full = not on_tensor_cores(x.dtype)
    dtype = type_name(x.dtype)
    taken = [
        n for n, piece in enumerate(parts.pieces) if not piece.padding and multiplies(piece.spec, dtype, arch, full)
    ]
    rest = tuple(n for n in range(len(parts.pieces)) if n not in taken)
    by_tokens = tokens and not rest
    if tokens and rest:
        x = x.transpose(1, 2)
    x = padded_rows(x, columns, 2 if by_tokens else 1)
    result = result_type(parts, x.dtype)
    shape = (batch, features, rows) if by_tokens else (batch, rows, features)
    if not batch * rows * features:
        y = x.new_empty(shape)
    elif rest:
        y = _by_teams(parts, rest, values, x, result, arch)
    else:
        y = x.new_empty(shape, dtype=result) if taken else x.new_zeros(shape, dtype=result)
    if y.numel():
        for number in taken:
            onto = bool(rest) or number != taken[0]
            _by_warps(parts, number, values, compact(x), y, (by_tokens, onto, full), arch)
    if by_tokens or tokens:
        y = (y if by_tokens else y.transpose(1, 2))[..., : parts.shape[0]].to(x.dtype).contiguous()
        return y[0]
    return plain(y, parts.shape[0], batched, x.dtype)


def _by_teams(
    parts: Decomposition, some: tuple[int, ...], values: Tensor, x: Tensor, result: torch.dtype, arch: str
) -> Tensor:
    (batch, _, features), (rows, columns) = x.shape, parts.padded_shape
    tile, tiles = column_tile(features)
    wide = tile * tiles
    x = compact(pad(x, (0, wide - features)) if wide != features else x)
    y = x.new_empty(batch, rows, wide, dtype=result)
    masked = any(parts.pieces[n].padding and not parts.pieces[n].spec.names_columns for n in some)
    types = type_name(x.dtype), type_name(result), type_name(parts.indptr.dtype)
    spec = ComposedSpec(formats_of(parts, some), *types, tile, masked, True)
    tasks = rows // unit_of(parts, some)
    given = {
        "num_tasks": tasks,
        "m": rows,
        "n": columns,
        "features": wide,
        "column_tiles": tiles,
    }
    structure = structure_of(parts, tasks, masked, some)
    launch = _launch(scheduled_spmm, spec, arch)
    for first, count in _stretches(batch, tiles):
        own = slice(first, first + count)
        of_batch = {"batch": count, "grid": count * tiles, "X": x[own], "Y": y[own]}
        launch.run(given, of_batch, structure, _values(parts, values[own], some))
    return y[..., :features].contiguous() if wide != features else y


def _by_warps(
    parts: Decomposition,
    number: int,
    values: Tensor,
    x: Tensor,
    y: Tensor,
    how: tuple[bool, bool, bool],
    arch: str,
) -> None:
    (tokens, onto, full), (rows, columns) = how, parts.padded_shape
    batch, features = x.shape[0], x.shape[1 if tokens else 2]
    types = type_name(x.dtype), type_name(y.dtype), type_name(parts.indptr.dtype)
    # the only piece, so that rows of blocks without a block are there
    (piece,) = formats_of(parts, (number,))
    spec = blocks_spec(piece, types, features, tokens, onto, full)
    stretches = -(-features // spec.rows)
    structure = structure_of(parts, 0, False, (number,))
    given = {name.removesuffix(f"_{name_of(0)}"): array for name, array in structure.items()}
    given |= {"rows": rows, "cols": columns, "features": features, "stretches": stretches}
    launch = _launch(scheduled_blocks, spec, arch)
    for first, count in _stretches(batch, stretches):
        own = slice(first, first + count)
        a = _values(parts, values[own], (number,))[f"A_{name_of(0)}"]
        launch.run(given, {"batch": count, "grid": count * stretches, "A": a, "X": x[own], "Y": y[own]})


def _stretches(batch: int, each: int) -> list[tuple[int, int]]:
    """(first, how many) of the batch for every launch, as a grid has room for."""
    if each > MOST:
        raise ValueError(f"composed_spmm: a grid has room for {MOST:,} tiles of columns, got {each:,}; give fewer")
    most = max(1, MOST // each)
    return [(first, min(most, batch - first)) for first in range(0, batch, most)]


def run_sddmm(parts: Decomposition, u: Tensor, v: Tensor, tokens: bool, arch: str) -> Tensor:
    """Compute `executables_sddmm.run_sddmm` on a GPU, piece by piece."""
    batched, operands = u.dim() == 3, Operands(u, v, *parts.padded_shape, tokens)
    batch, terms = operands.shape
    packed = u.new_empty(batch, parts.num_slots)
    if packed.numel():
        for number in range(len(parts.pieces)):
            _dots(parts, number, operands, packed, terms, arch)
        if parts.padding:
            packed.masked_fill_(~parts.mask, 0)
    return packed if batched else packed[0]


def _dots(parts: Decomposition, number: int, operands: Operands, packed: Tensor, terms: int, arch: str) -> None:
    some, dtype = (number,), type_name(packed.dtype)
    types = dtype, dtype, type_name(parts.indptr.dtype)
    ((name, piece, _),) = named_pieces(parts, some)
    spec = ComposedSpec((piece,), *types, WARP, False, True)
    u, v = operands(by_terms(spec))
    rows, columns = parts.padded_shape
    tasks = rows // unit_of(parts, some)
    structure = structure_of(parts, tasks, False, some)
    own = of_one_piece(structure, name)
    given = {"num_tasks": tasks, "m": rows, "n": columns, "terms": terms, "lane_terms": -(-terms // WARP)}
    given |= {"row_ptr": structure["row_ptr"]}
    launch = _launch(scheduled_sddmm, spec, arch)
    for first, count in _stretches(packed.shape[0], 1):
        some_of_batch = slice(first, first + count)
        values = values_of(parts, packed[some_of_batch], "O", some)[f"O_{name}"]
        into = torch.empty_like(values, memory_format=torch.contiguous_format)
        launch.run(given, own, {"batch": count, "U": u[some_of_batch], "V": v[some_of_batch], f"O_{name_of(0)}": into})
        values.copy_(into)


def _values(parts: Decomposition, packed: Tensor, some: tuple[int, ...]) -> dict[str, Tensor]:
    return {name: compact(x) for name, x in values_of(parts, packed, "A", some).items()}
