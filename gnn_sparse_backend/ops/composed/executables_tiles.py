"""Products on tile registers as calls of kernels: all that does not change from one call to the next is made once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import constant_argument
from ...formats.composed.decomposition import Decomposition
from ...runtime.layout import compact
from ...runtime.memory import empty
from ...runtime.type_names import type_name
from ...structures.derived import fact
from ..core.ran import in_threads
from .arguments import formats_of, structure_of
from .launches import Named, first_tokens, padded_rows
from .programs.rules import name_of
from .programs.tiled import TOKENS, TiledSpec
from .schedules_cpu import takes_tiles, tiled_kernel


class TiledLinear:
    """``composed_linear`` of a decomposition in bfloat16, for so many tokens, by `programs.tiled`.

    takes: whether there is such a product; else it cannot be called.
    """

    __slots__ = ("_columns", "_given", "_launch", "_rows", "_shape", "_tokens", "_workspace", "takes")

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
        given = {name: constant_argument(each) if isinstance(each, Tensor) else each for name, each in given.items()}
        given |= {"stretches": first.numel(), "m": self._rows, "n": self._columns, "tokens": tokens}
        self._given = given
        self._launch = _launch(spec, parallel)

    def __call__(self, packed: Tensor, x: Tensor, bias: Tensor | None, rows: int) -> Tensor:
        """(num_slots,) and (tokens, n) to (tokens, rows)."""
        y = empty(x, self._tokens, self._rows)
        own = {
            "A": compact(packed).view(self._shape),
            "X": compact(padded_rows(x, self._columns, 1)),
            "W": empty(x, *self._workspace),
            "Y": y,
        }
        if bias is not None:
            own["B"] = compact(padded_rows(bias, self._rows, 0))
        self._launch.run(self._given, own)
        return y if rows == self._rows else y[:, :rows].contiguous()


@fact
def tiled_linear(parts: Decomposition, tokens: int, bias: bool, parallel: bool) -> TiledLinear:
    """What multiplies so many tokens."""
    return TiledLinear(parts, tokens, bias, parallel)


@kept
def _launch(spec: TiledSpec, parallel: bool) -> Named:
    return Named(*tiled_kernel(spec, parallel), f"{spec.piece}, AMX tiles, {in_threads(parallel)}, by rules")
