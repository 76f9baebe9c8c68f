"""``TypedLinear`` of DGL with block-diagonal matrices, of which DGL copies one for every row.

Each block of a row is a row of its own, whose type is that of the row and the block. Without blocks the layer's
products are those of ``segments.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...ops.grouped.api import gather_mm
from ...structures.checks import check_range
from ...structures.segments import Segments
from ..core.handles import Handles
from ..core.refusal import PASS, Refusal
from ..scopes import transformed
from .lazy_edges import computed
from .operands import is_index, refuse

KEPT = Handles()
"""The blocks of each type, by the tensor that says which type a row has."""


def forward(layer, x, x_type, sorted_by_type=False):
    """``TypedLinear.forward`` whose blocks are multiplied in one operator."""
    if layer.regularizer != "bdd" or torch.compiler.is_compiling():
        return PASS
    return transformed() or _blocks(layer, computed(x, "gather_mm"), x_type)


def _blocks(layer, x, x_type) -> tuple[Tensor, str] | Refusal:
    weight = layer.get_weight()
    if (refusal := refuse(x, weight)) is not None:
        return refusal
    if x.dim() != 2 or x.shape[1] != layer.in_size or not len(x):
        return Refusal("the shapes do not fit")
    if not is_index(x_type) or x_type.shape != x.shape[:1] or x_type.device != x.device:
        return Refusal("the index is not one integer per row")
    blocks, types = layer.num_bases, layer.num_types

    def make() -> Segments:
        check_range("x_type", x_type, types, "types")
        block = (x_type.long() * blocks).unsqueeze(1) + torch.arange(blocks, device=x_type.device)
        return Segments.from_index(block.flatten(), types * blocks)

    try:
        segments = KEPT.once(x_type, (types, blocks), make)
    except ValueError:
        return Refusal("an index is out of range")
    weight = weight.reshape(-1, layer.submat_in, layer.submat_out)
    return gather_mm(x.reshape(-1, layer.submat_in), weight, segments).view(-1, layer.out_size), "gather_mm"
