"""GCN's normalisation of a few edges without values, in fewer steps than PyG's: the same numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from ....compiler.cache.bounded import kept
from ....ops.core.executable import OutOfRange
from ....ops.message.flat import FLOATS, FlatMap
from ....ops.message.message_op import message_op
from ....structures.csr import EdgeList


def gcn_norm_of_few(
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    num_nodes: int | None = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor] | None:
    """``gcn_norm``; None where that is PyG's: edges have values, sizes are to be found, or an index is out of range."""
    kind = dtype or torch.get_default_dtype()
    if edge_weight is not None or type(num_nodes) is not int or kind not in FLOATS:
        return None
    row, col = edge_index.unbind(0)
    if add_self_loops:
        others = row != col
        loops = torch.arange(num_nodes).expand(2, num_nodes)
        edge_index = torch.cat((edge_index if others.all() else edge_index[:, others], loops), 1)
        row, col = edge_index.unbind(0)
    try:
        degree = torch.bincount(col if flow == "source_to_target" else row, minlength=num_nodes)
        if degree.shape[0] != num_nodes:
            return None
        scale = degree.to(kind).pow_(-0.5)
        if not add_self_loops:
            scale.masked_fill_(degree == 0, 0)
        return edge_index, _product(kind)(EdgeList(row, col, (num_nodes, num_nodes)), (scale, scale))
    except (OutOfRange, RuntimeError):
        return None


@kept
def _product(dtype: torch.dtype) -> FlatMap:
    one = torch.empty(1, dtype=dtype)
    return FlatMap.made(message_op("mul(x0, x1)", ("row", "column")), (one, one))
