"""A loss that is a mean over the rows of all processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from ..ops.core.partitioned import check_part


def mean_loss(graph, total: Tensor, count: int) -> Tensor:
    """The part of this process in the mean over all: add them up for the loss, average their gradients as DDP does.

    Args:
        graph: a ``gsb.distributed.DistGraph``.
        total: the sum of the losses of this process's rows; zero of none, ``(out[mask] ** 2).sum()`` for example.
        count: how many rows that are.

    Returns:
        ``total * processes / rows of all processes``: its gradients, averaged over processes by
        ``DistributedDataParallel``, are those of the mean over all rows. The loss is its average over processes.
    """
    check_part("mean_loss", graph)
    if not isinstance(total, Tensor) or total.dim() != 0 or not total.is_floating_point():
        told = f"{total.dtype} of shape {tuple(total.shape)}" if isinstance(total, Tensor) else type(total).__name__
        raise TypeError(f"mean_loss: total must be a floating tensor without dimensions, the sum of losses, got {told}")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 1 << 62:
        raise ValueError(f"mean_loss: count must be a number of rows, got {count!r:.80}")
    counts = torch.tensor(count, dtype=torch.int64)
    if graph.group is not None:
        dist.all_reduce(counts, group=graph.group)
    return total * (graph.parts / max(int(counts), 1))
