"""``HeteroLinear`` of PyG, the typed linear layer of ``HEATConv`` and ``HGTConv``: rows times the matrix of their type.

PyG sorts the rows, multiplies type by type, and has a gradient of the size of all rows for each type.
``HeteroDictLinear`` stays PyG's: its rows come by type already, each a dense product.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from ...ops.grouped.api import gather_mm
from ...runtime import devices
from ...structures.checks import FLOATING
from ...structures.segments import Segments
from ..core.handles import Handles
from ..core.refusal import PASS, Refusal, refusal_of
from ..scopes import transformed

KEPT = Handles()
"""The rows of each type, by the tensor that says which type a row has."""


def forward(layer, x: Tensor, type_vec: Tensor):
    """``HeteroLinear.forward`` in one operator."""
    if torch.compiler.is_compiling():
        return PASS
    segments = transformed() or _refuse(layer, x, type_vec)
    if segments is None:
        segments = _segments_of(type_vec, layer.num_types, layer.is_sorted)
    if type(segments) is Refusal:
        return segments
    out = gather_mm(x, layer.weight, segments).to(x.dtype)
    return out if layer.bias is None else out + layer.bias.to(x.dtype)[type_vec], "gather_mm"


def _refuse(layer, x, types) -> Refusal | None:
    for y in (x, layer.weight) if layer.bias is None else (x, layer.weight, layer.bias):
        if (
            type(y) not in (Tensor, Parameter)
            or y.dtype not in FLOATING
            or y.device != x.device
            or y.layout is not torch.strided
        ):
            return Refusal("the features or weights are no dense numbers on one device")
    if not x.is_cpu and (refusal := refusal_of(devices.why_not(x.device))) is not None:
        return refusal
    if x.dtype is not layer.weight.dtype:
        return Refusal("operands of two types or devices")
    if x.dim() != 2 or x.shape[1] != layer.weight.shape[1]:
        return Refusal("the shapes do not fit")
    if (
        type(types) is not Tensor
        or types.dtype not in (torch.int32, torch.int64)
        or types.device != x.device
        or types.shape != x.shape[:1]
    ):
        return Refusal("the types are not one integer per row")
    return Refusal("no rows") if len(x) == 0 else None


def _segments_of(types: Tensor, count: int, promised: bool) -> Segments | Refusal:
    """promised: the user says that types are sorted, and PyG takes that for granted."""
    try:
        found = KEPT.once(types, count, lambda: Segments.from_index(types, count))
    except ValueError:
        return Refusal("a type is out of range")
    return Refusal("the types are not sorted, as promised") if promised and found.order is not None else found
