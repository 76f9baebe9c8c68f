"""Convolution in plain PyTorch, on the maps of ours: gather, multiply, add up, offset by offset."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from torch import Tensor

from gnn_sparse_backend import KernelMap
from gnn_sparse_backend.nn.voxels import convolution
from gnn_sparse_backend.structures.derived import Derived


class Bounds(Derived[list]):
    """Where the pairs of each offset begin, on the host."""

    def compute(self, kernel_map: KernelMap) -> list:
        return kernel_map.indptr.tolist()


def gather_scatter_conv(
    features: Tensor, weight: Tensor, kernel_map: KernelMap, bias: Tensor | None = None, groups: int = 1
) -> Tensor:
    """What ``gsb.sparse_conv`` computes, by ``index_select``, a matrix product and ``index_add_`` for each offset."""
    if groups != 1:
        raise ValueError(f"gather_scatter_conv: one group only, got {groups}")
    out = features.new_zeros((kernel_map.shape[0], weight.shape[2]))
    bounds = kernel_map.derived(Bounds())
    for offset, (first, last) in enumerate(itertools.pairwise(bounds)):
        if first < last:
            rows = features.index_select(0, kernel_map.inputs[first:last])
            out = out.index_add_(0, kernel_map.outputs[first:last], rows @ weight[offset])
    return out if bias is None else out + bias


@contextmanager
def convolutions(function: Callable[..., Tensor]) -> Iterator[None]:
    """Inside the block layers of ``gnn_sparse_backend.nn`` call ``function`` where they call ``gsb.sparse_conv``."""
    with mock.patch.object(convolution, "sparse_conv", function):
        yield
