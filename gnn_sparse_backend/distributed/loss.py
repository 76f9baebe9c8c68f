"""A loss that is a mean over the rows of all processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


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
    counts = torch.tensor(count, dtype=torch.int64)
    if graph.group is not None:
        dist.all_reduce(counts, group=graph.group)
    return total * (graph.parts / max(int(counts), 1))
