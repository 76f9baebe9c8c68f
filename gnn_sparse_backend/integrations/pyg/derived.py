"""What layers derive from an edge index alone, at every call: self loops, and GCN's normalisation. Kept with the index.

Layers alone get these: what they derive they do not write to. Functions of the same name that a user calls stay PyG's.
"""
from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

from ..lazy import transformed
from .host import GRAPHS

FUNCTIONS = (gcn_norm, add_remaining_self_loops, add_self_loops, remove_self_loops)
"""Functions of an edge index, of edge values that are kept only where there are none, and of plain values."""

LAYERS = "torch_geometric.nn."
"""Prefix of the modules whose globals are replaced."""

_PLAIN = (type(None), bool, int, float, str, torch.dtype)


def kept(original: Callable) -> Callable:
    """The function, computed once for each content of the edge index and each choice of the other arguments."""

    @functools.wraps(original)
    def derived(edge_index, *args, **kwargs):
        if (type(edge_index) is not Tensor or edge_index.dtype is not torch.int64 or edge_index.dim() != 2
                or edge_index.shape[0] != 2 or not edge_index.is_cpu or edge_index.layout is not torch.strided
                or edge_index.is_inference() or torch.compiler.is_compiling() or transformed() is not None):
            return original(edge_index, *args, **kwargs)
        for value in (*args, *kwargs.values()):
            if type(value) not in _PLAIN:
                return original(edge_index, *args, **kwargs)
        key = (original, args, tuple(kwargs.items()))
        return GRAPHS.derived(edge_index, key, lambda: original(edge_index, *args, **kwargs))

    return derived
