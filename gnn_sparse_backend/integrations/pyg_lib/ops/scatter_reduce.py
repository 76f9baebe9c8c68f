"""``pyg_lib.ops.scatter_reduce``: several reductions by one index."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.substitutes.scripted import counted
from ...torch_scatter import reductions

_REDUCTIONS = "sum", "mean", "min", "max"


@counted("pyg_lib")
def fused_scatter_reduce(inputs: Tensor, index: Tensor, dim_size: int, reduce_list: list[str]) -> Tensor:
    """Return (dim_size, F * reductions): rows (N, F) of one number in ``index`` (N,), reduced by each of
    ``reduce_list``, side by side. Raises ValueError for another reduction than sum, mean, min or max.
    """
    wrong = [each for each in reduce_list if each not in _REDUCTIONS]
    if wrong or not reduce_list:
        raise ValueError(f"reduce_list must have some of {', '.join(_REDUCTIONS)}, got {reduce_list}")
    return torch.cat([reductions.reduced(each, inputs, index, 0, None, dim_size) for each in reduce_list], 1)


__all__ = ["fused_scatter_reduce"]
