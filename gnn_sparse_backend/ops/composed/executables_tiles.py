"""Products on tile registers as calls of kernels: all that does not change from one call to the next is made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.language.program import Program
from ...compiler.schedules.sequence import Schedule
from ...formats.composed.decomposition import Decomposition
from ...runtime.layout import compact
from ...runtime.memory import empty
from ...runtime.type_names import type_name
from ...structures.derived import fact
from ..core.executable import Launch, compiled, in_threads
from .arguments import formats_of, structure_of
from .launches import first_tokens, padded_rows
from .programs.rules import name_of
from .programs.tiled import NARROW, TOKENS, TiledSpec
from .schedules_cpu import PACKED_ALONE, scheduled_tiled, scheduled_tiled_sddmm, takes_tiles


class TiledLinear:
    """``composed_linear`` of a decomposition in bfloat16, for ``tokens`` tokens, by `programs.tiled`.

    takes: whether there is such a product; else it cannot be called.
    """

    __slots__ = ("_columns", "_launch", "_rows", "_shape", "_tokens", "_workspace", "takes")

    def __init__(self, parts: Decomposition, tokens: int, bias: bool, parallel: bool) -> None:
        formats = formats_of(parts)
        self.takes = takes_tiles(formats, tokens)
        if not self.takes:
            return
        index = parts.indptr.dtype
        spec = TiledSpec(formats[0], type_name(index), bias)
        structure, suffix = structure_of(parts, 0, False), f"_{name_of(0)}"
        given: dict[str, Any] = {name.removesuffix(suffix): each for name, each in structure.items()}
        (height, depth), blocks = spec.piece.block, given["nnzb"]
        self._rows, self._columns = parts.padded_shape
        self._tokens, self._shape = tokens, (blocks, depth, height)
        self._workspace = blocks, height // spec.width, depth // 2, 2 * spec.width
        given["First"] = first = first_tokens(tokens, TOKENS, index)
        given |= {"stretches": first.numel(), "m": self._rows, "n": self._columns, "tokens": tokens}
        few = blocks * depth * height * 2 <= PACKED_ALONE  # two bytes each
        launch = _launch(scheduled_tiled, spec, parallel, few)
        self._launch = launch.bind(given, ("A", "X", "W", "Y", *(("B",) if bias else ())))

    def __call__(self, packed: Tensor, x: Tensor, bias: Tensor | None, rows: int) -> Tensor:
        """(num_slots,) and (tokens, n) to (tokens, rows)."""
        y = empty(x, self._tokens, self._rows)
        x, workspace = compact(padded_rows(x, self._columns, 1)), empty(x, *self._workspace)
        biases = () if bias is None else (compact(padded_rows(bias, self._rows, 0)),)
        self._launch(compact(packed).view(self._shape), x, workspace, y, *biases)
        return y if rows == self._rows else y[:, :rows].contiguous()


class TiledSddmm:
    """The gradient of the weights of such a layer, for ``tokens`` tokens, by `programs.tiled_sddmm`.

    takes: whether there is such a product; else it cannot be called.
    """

    __slots__ = ("_columns", "_launch", "_rows", "_stored", "_tokens", "takes")

    def __init__(self, parts: Decomposition, tokens: int, parallel: bool) -> None:
        formats = formats_of(parts)
        self.takes = takes_tiles(formats, tokens)
        if not self.takes:
            return
        structure, suffix = structure_of(parts, 0, False), f"_{name_of(0)}"
        given: dict[str, Any] = {name.removesuffix(suffix): each for name, each in structure.items()}
        (height, depth), stretches = formats[0].block, -(-tokens // TOKENS)
        self._rows, self._columns = m, n = parts.padded_shape
        self._tokens, self._stored = stretches * TOKENS, (given["nnzb"], depth, height)
        given |= {"stretches": stretches, "tokens": self._tokens, "half": self._tokens // 2, "m": m, "n": n}
        given |= {"over_m": m // NARROW, "over_n": n // NARROW, "wide_m": 2 * m, "wide_n": 2 * n}
        spec = TiledSpec(formats[0], type_name(parts.indptr.dtype))
        self._launch = _launch(scheduled_tiled_sddmm, spec, parallel).bind(given, ("U", "V", "W", "Q", "Z", "O"))

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        """(tokens, m) and (tokens, n) to (num_slots,), with whatever products there are at padding."""
        found, half = empty(u, *self._stored), self._tokens // 2
        self._launch(
            compact(padded_rows(padded_rows(u, self._rows, 1), self._tokens, 0)),
            compact(padded_rows(padded_rows(v, self._columns, 1), self._tokens, 0)),
            empty(u, half, 2 * self._rows),
            empty(u, half, 2 * self._columns),
            empty(u, self._columns, self._tokens),
            found,
        )
        return found.view(-1)


@fact
def tiled_sddmm(parts: Decomposition, tokens: int, parallel: bool, generation: int) -> TiledSddmm:
    """What multiplies at the blocks, summed over ``tokens`` tokens. generation: of what chose its kernel."""
    return TiledSddmm(parts, tokens, parallel)


@fact
def tiled_linear(parts: Decomposition, tokens: int, bias: bool, parallel: bool, generation: int) -> TiledLinear:
    """What multiplies ``tokens`` tokens. generation: of what chose its kernel."""
    return TiledLinear(parts, tokens, bias, parallel)


@kept
def _launch(scheduled: Callable[..., tuple[Program, Schedule]], spec: TiledSpec, parallel: bool, *more: bool) -> Launch:
    return compiled(*scheduled(spec, parallel, *more), f"{spec.piece}, AMX tiles, {in_threads(parallel)}, by rules")
