"""Pooling layers of spconv, over windows and over whole batches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from spconv.core import ConvAlgo

from ...ops.grouped.segment_reduce import segment_reduce
from ...ops.message.api.aggregate import aggregate
from ...structures.kernel_map import GraphOf
from ..core.refusal import Refusal
from .convolution import count_voxels
from .maps import place, sites_of
from .operands import HOST, refuse


def make_max(original: Callable) -> Callable:
    """``SparseMaxPool.forward`` on our kernels."""
    return HOST.admit(original, "SparseMaxPool", lambda layer, input: _pool(layer, input, "SparseMaxPool", "max"))


def make_mean(original: Callable) -> Callable:
    """``SparseAvgPool.forward`` on our kernels: the mean of the sites in a window."""
    return HOST.admit(original, "SparseAvgPool", lambda layer, input: _pool(layer, input, "SparseAvgPool", "mean"))


def make_global_max(original: Callable) -> Callable:
    """``SparseGlobalMaxPool.forward`` on our kernels."""
    name = "SparseGlobalMaxPool"
    return HOST.admit(original, name, lambda layer, input: _pool_batches(input, name, "max"))


def make_global_mean(original: Callable) -> Callable:
    """``SparseGlobalAvgPool.forward`` on our kernels, every channel; spconv's own is the mean of the first alone."""
    name = "SparseGlobalAvgPool"
    return HOST.admit(original, name, lambda layer, input: _pool_batches(input, name, "mean"))


def _pool(layer, x, name: str, reduce: str):
    if layer.subm:
        return Refusal("a pooling layer is submanifold")
    there = refuse(x) or place(layer, x)
    if type(there) is Refusal:
        return there
    features = aggregate(there.kernel_map.derived(GraphOf()), "x0", [("u", x.features)], reduce)
    if reduce == "max" and layer.algo == ConvAlgo.Native:
        features = torch.relu(features)  # as that algorithm, which begins with zeros; the others do not
    count_voxels(layer, there.indices)
    return there.tensor(x, features), name


def _pool_batches(x, name: str, reduce: str):
    sites = refuse(x) or sites_of(x)
    if type(sites) is Refusal:
        return sites
    return segment_reduce(x.features, sites.of_batches, reduce), name
