"""Products of linear layers as calls of kernels: all that does not change from one call to the next is made once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.own_schedules import in_force
from ...formats.composed.decomposition import Decomposition
from ...runtime.layout import compact
from ...runtime.memory import empty
from ...runtime.threads import planned_threads
from ...runtime.type_names import accumulator_of, type_name
from ...structures.derived import fact
from .arguments import formats_of, slots_of, structure_of
from .executables import PARALLEL, is_masked, launch_of, result_type, run_spmm, sliced_sizes
from .executables_tiles import tiled_linear
from .launches import padded_rows
from .programs.rules import ComposedSpec
from .programs.sliced import STRETCH
from .schedules_cpu import (
    in_short_blocks,
    scheduled_linear,
    scheduled_sliced,
    slice_tokens,
    takes_blocks,
    task_tokens,
    turns,
)


def run_linear(parts: Decomposition, packed: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """(num_slots,) and (tokens, n) to (tokens, m). bias: (m,), which is added to every token."""
    threads, masked = planned_threads(), is_masked(parts, x)
    if x.dtype is torch.bfloat16 and not masked:
        tiled = tiled_linear(parts, x.shape[0], bias is not None, threads > 1, in_force.generation)
        if tiled.takes:
            return tiled(packed, x, bias, parts.shape[0])
    rows = row_linear(parts, x.shape[0], x.dtype, bias is not None, threads, masked, in_force.generation)
    if rows.takes:
        return rows(packed, x, bias, parts.shape[0])
    y = run_spmm(parts, packed, x.t()).t().contiguous()
    return y if bias is None else y.add_(bias)


class RowLinear:
    """``composed_linear`` of a decomposition for ``tokens`` tokens of one type, by blocks (`programs.linear`) or by
    slices of tokens (`programs.sliced`).

    takes: whether there is such a product; else it cannot be called.
    """

    __slots__ = ("_columns", "_launch", "_result", "_rows", "_slots", "_tokens", "_wide", "_workspaces", "takes")

    def __init__(
        self, parts: Decomposition, tokens: int, dtype: torch.dtype, bias: bool, threads: int, masked: bool
    ) -> None:
        self._tokens, (self._rows, self._columns) = tokens, parts.padded_shape
        formats, name, index = formats_of(parts), type_name(dtype), parts.indptr.dtype
        self._wide, self._result = accumulator_of(dtype), result_type(parts, dtype)
        spec = ComposedSpec(formats, name, type_name(self._result), type_name(index), 1, masked, bias=bias)
        parallel = parts.num_slots * tokens >= PARALLEL and threads > 1
        threads = threads if parallel else 1
        by_blocks = takes_blocks(spec) and tokens > 0 and not masked
        sliced = replace(spec, tile=slice_tokens(name, tokens, threads), result=name, turned=turns(name))
        self.takes, self._workspaces = True, ()
        given: Mapping[str, Any]
        if (not by_blocks or in_short_blocks(spec)) and _in_slices(sliced, tokens, min(parts.padded_shape)):
            tasks = min(threads, -(-tokens // sliced.tile))
            self._result = dtype
            self._workspaces = tuple((tasks, length, sliced.tile) for length in (self._columns, self._rows))
            given = sliced_sizes(parts, tokens, sliced.tile, tasks)
            launch = launch_of(scheduled_sliced, sliced, tasks > 1)
        elif by_blocks:
            each = task_tokens(parts.num_slots * dtype.itemsize)
            given = {
                "num_tasks": -(-tokens // each),
                "m": self._rows,
                "n": self._columns,
                "tokens": tokens,
                "token_ptr": _token_tasks(tokens, each, index),
            }
            launch = launch_of(scheduled_linear, spec, parallel)
        else:
            self.takes = False
            return
        self._slots = slots_of(parts)
        own = ("X", "Y", *(("P", "R") if self._workspaces else ()), *(f"A_{name}" for name, *_ in self._slots))
        self._launch = launch.bind({**given, **structure_of(parts, 0, masked)}, (*own, *(("B",) if bias else ())))

    def __call__(self, packed: Tensor, x: Tensor, bias: Tensor | None, rows: int) -> Tensor:
        """(num_slots,) and (tokens, n) to (tokens, rows)."""
        y = empty(x, self._tokens, self._rows, dtype=self._result)
        own = [compact(padded_rows(x, self._columns, 1)), y]
        own += [empty(x, *shape, dtype=self._wide) for shape in self._workspaces]
        packed = compact(packed)
        whole = tuple(packed.shape)
        own += [packed if stored == whole else packed[first:end].view(stored) for _, first, end, stored in self._slots]
        if bias is not None:
            own.append(compact(padded_rows(bias, self._rows, 0)))
        self._launch(*own)
        y = y.to(x.dtype)
        return y if rows == self._rows else y[:, :rows].contiguous()


@fact
def row_linear(
    parts: Decomposition, tokens: int, dtype: torch.dtype, bias: bool, threads: int, masked: bool, generation: int
) -> RowLinear:
    """What multiplies ``tokens`` tokens. masked: padding is skipped. generation: of what chose its kernel."""
    return RowLinear(parts, tokens, dtype, bias, threads, masked)


def _in_slices(spec: ComposedSpec, tokens: int, shortest: int) -> bool:
    """Whether there is a whole slice, rows are as long as what is transposed together, and none go by list, which is by
    tasks of rows. Threads are not asked for: other kernels add up in another order.
    """
    return (
        tokens >= slice_tokens(spec.dtype)
        and shortest >= STRETCH
        and not any(piece.lists_rows for piece in spec.pieces[1:])
    )


@kept
def _token_tasks(tokens: int, each: int, dtype: torch.dtype) -> Tensor:
    """The first token of each task of ``each`` tokens, of which the last may have fewer, and the end."""
    return (torch.arange(-(-tokens // each) + 1) * each).clamp(max=tokens).to(dtype)
