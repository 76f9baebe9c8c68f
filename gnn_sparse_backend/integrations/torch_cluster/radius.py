"""``radius`` and ``radius_graph``."""

from __future__ import annotations

from torch import Tensor

from ..core.substitutes.scripted import public
from .batches import directed, edges_within

_public = public("torch_cluster")


@_public
def radius(
    x: Tensor,
    y: Tensor,
    r: float,
    batch_x: Tensor | None = None,
    batch_y: Tensor | None = None,
    max_num_neighbors: int = 32,
    num_workers: int = 1,
    batch_size: int | None = None,
    ignore_same_index: bool = False,
    nearest_first: bool = False,
) -> Tensor:
    """Find the points of ``x`` (N, D) whose distance to each of ``y`` (M, D) is less than ``r``, within its batch.

    Where there are more than ``max_num_neighbors``, that number of them is drawn, each as likely as another: the seed
    comes from PyTorch's generator, ``torch.manual_seed`` repeats it, and threads change nothing. (torch-cluster takes
    those that its tree comes to first on a CPU, and those of the lowest numbers on a GPU.)

    Args:
        batch_x, batch_y, num_workers, batch_size: as in `knn`.
        ignore_same_index: leave out the point that has the number of the query.
        nearest_first: take the nearest ones instead, in ascending distance.

    Returns (2, E) int64 with numbers of ``y`` in ascending order and of ``x``. Raises ValueError for points that are
    not finite.
    """
    return edges_within(x, y, r, batch_x, batch_y, max_num_neighbors, batch_size, ignore_same_index, nearest_first)


@_public
def radius_graph(
    x: Tensor,
    r: float,
    batch: Tensor | None = None,
    loop: bool = False,
    max_num_neighbors: int = 32,
    flow: str = "source_to_target",
    num_workers: int = 1,
    batch_size: int | None = None,
    nearest_first: bool = False,
) -> Tensor:
    """Return edges (2, E) to each point from those that are nearer than ``r``, with ``loop`` from itself, too; in the
    other direction with ``flow="target_to_source"``. The rest is as in `radius`.
    """
    edges = edges_within(x, x, r, batch, batch, max_num_neighbors, batch_size, not loop, nearest_first)
    return directed(edges, flow)
