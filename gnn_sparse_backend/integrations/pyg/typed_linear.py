"""``HeteroLinear`` of PyG, the typed linear layer of ``HEATConv`` and ``HGTConv``: rows times the matrix of their type.

PyG sorts the rows, multiplies type by type, and has a gradient of the size of all rows for each type.
``HeteroDictLinear`` stays PyG's: its rows come by type already, each a dense product.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Parameter

from ...ops.grouped.api import gather_mm
from ...runtime import devices
from ...structures.checks import FLOATING
from ...structures.segments import Segments
from ..core.counters import fallback, ours
from ..core.handles import Handles
from ..lazy import transformed
from .scripting import scriptable_method

_segments = Handles()  # the rows of each type, by the tensor that says which type a row has


def fused_forward(original: Callable) -> Callable:
    """``HeteroLinear.forward`` in one operator."""

    def forward(self, x: Tensor, type_vec: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return original(self, x, type_vec)
        segments = (
            transformed() or _why_not(self, x, type_vec) or _segments_of(type_vec, self.num_types, self.is_sorted)
        )
        if type(segments) is str:
            fallback("pyg", "gather_mm", segments)
            return original(self, x, type_vec)
        ours("pyg", "gather_mm")
        out = gather_mm(x, self.weight, segments).to(x.dtype)
        return out if self.bias is None else out + self.bias.to(x.dtype)[type_vec]

    return scriptable_method(forward, original)


def forget_all() -> None:
    """Drop what is kept for types of rows."""
    _segments.clear()


def _why_not(layer, x, types) -> str | None:
    for y in (x, layer.weight, layer.bias):
        if y is not None and (
            type(y) not in (Tensor, Parameter)
            or y.dtype not in FLOATING
            or y.device != x.device
            or y.layout is not torch.strided
        ):
            return "the features or weights are no dense numbers on one device"
    if not x.is_cpu and (reason := devices.why_not(x.device)) is not None:
        return reason
    if x.dtype is not layer.weight.dtype:
        return "operands of two types or devices"
    if x.dim() != 2 or x.shape[1] != layer.weight.shape[1]:
        return "the shapes do not fit"
    if (
        type(types) is not Tensor
        or types.dtype not in (torch.int32, torch.int64)
        or types.device != x.device
        or types.shape != x.shape[:1]
    ):
        return "the types are not one integer per row"
    return "no rows" if len(x) == 0 else None


def _segments_of(types: Tensor, count: int, promised: bool) -> Segments | str:
    """promised: the user says that types are sorted, and PyG takes that for granted."""
    try:
        found = _segments.once(types, count, lambda: Segments.from_index(types, count))
    except ValueError:
        return "a type is out of range"
    return "the types are not sorted, as promised" if promised and found.order is not None else found
