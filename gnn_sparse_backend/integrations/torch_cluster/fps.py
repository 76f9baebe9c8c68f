"""``fps``: farthest point sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Union  # noqa: UP035  # TorchScript's words

import torch
from torch import Tensor

from ...deferred import later
from ...structures.points.clouds import Cloud, begins_of, checked_points
from ..core.substitutes.scripted import operator, public

if TYPE_CHECKING:
    from ...structures.points import search
else:
    search = later(__name__, "...structures.points.search")


@operator("torch_cluster")
def _fps(src: Tensor, ptr: Tensor, ratio: Tensor, random_start: bool) -> Tensor:
    return sampled(src, ptr, ratio, random_start)


def _scripted(
    src: Tensor,
    batch: Optional[Tensor] = None,  # noqa: UP045
    ratio: Optional[Union[Tensor, float]] = None,  # noqa: UP007, UP045
    random_start: bool = True,
    batch_size: Optional[int] = None,  # noqa: UP045
    ptr: Optional[Union[Tensor, List[int]]] = None,  # noqa: UP006, UP007, UP045
) -> Tensor:
    share = torch.tensor(0.5)
    if ratio is not None:
        if isinstance(ratio, float):
            share = torch.tensor(ratio)
        else:
            share = ratio
    if ptr is not None:
        if isinstance(ptr, Tensor):
            return torch.ops.gsb.torch_cluster_fps(src, ptr, share, random_start)
        return torch.ops.gsb.torch_cluster_fps(src, torch.tensor(ptr), share, random_start)
    if batch is None:
        return torch.ops.gsb.torch_cluster_fps(src, torch.tensor([0, src.size(0)]), share, random_start)
    count = batch_size if batch_size is not None else int(batch.max()) + 1
    begins = torch.searchsorted(batch, torch.arange(count + 1, device=batch.device))
    return torch.ops.gsb.torch_cluster_fps(src, begins, share, random_start)


@public("torch_cluster", _scripted)
def fps(
    src: Tensor,
    batch: Tensor | None = None,
    ratio: Tensor | float | None = None,
    random_start: bool = True,
    batch_size: int | None = None,
    ptr: Tensor | list[int] | None = None,
) -> Tensor:
    """Return int64 numbers of points of each batch that are far from each other: a first one, and then again and again
    the one that is furthest from all before it.

    Args:
        src: (N, ...) points.
        batch: (N,) integers that ascend; batch_size: how many batches there are, by default the largest plus one.
        ratio: how much of each batch is taken, rounded up: one number, or a tensor of one a batch; by default 0.5.
        random_start: begin with a point that is drawn from PyTorch's generator, else with the first.
        ptr: (batches + 1,) where each batch begins, in the place of ``batch``.

    Raises ValueError for points that are not finite, and for batches or pointers that do not ascend.
    """
    if ptr is None:
        count = 1 if batch is None else batch_size if batch_size is not None else int(batch.max()) + 1
        begins = begins_of("batch", batch, src.shape[0], count)
    else:
        begins = torch.as_tensor(ptr)
    ratio = torch.tensor(0.5 if ratio is None else ratio) if not isinstance(ratio, Tensor) else ratio
    return sampled(src, begins, ratio, random_start)


def sampled(src: Tensor, begins: Tensor, ratio: Tensor, random_start: bool) -> Tensor:
    """The numbers of the points. begins: (batches + 1,)."""
    begins = begins.detach().cpu().to(torch.int64)
    if (
        begins.dim() != 1
        or begins.numel() < 1
        or bool((begins.diff() < 0).any())
        or not (int(begins[0]) >= 0 and int(begins[-1]) <= src.shape[0])
    ):
        raise ValueError(f"fps: pointers must ascend from 0 to {src.shape[0]}, got {begins}")
    sizes = begins.diff()
    ratio = ratio.detach().cpu().float().view(-1)
    if not bool(((ratio >= 0) & (ratio <= 1)).all()):
        raise ValueError(f"fps: the ratio must be from 0 to 1, got {ratio}")
    counts = (sizes.float() * ratio).ceil().long()
    first = begins[:-1].clone()
    if random_start:
        first += torch.minimum(
            (torch.rand(sizes.shape[0], dtype=torch.float64) * sizes).long(), (sizes - 1).clamp(min=0)
        )
    cloud = Cloud(checked_points("src", src), begins)
    return search.farthest(cloud, first, counts).to(src.device)
