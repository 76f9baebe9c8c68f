"""What layers derive from an edge index alone, at every call: self loops, and GCN's normalisation. Kept with the index.

Where edges have values these are computed each time, but the edge index that comes with them depends on the edges
alone: it is the tensor of the first call, and its graph is found without a look at its content.

Layers alone get these: what they derive they do not write to. Functions of the same name that a user calls stay PyG's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

from ...planner.cpu.listed import FEW
from ...runtime import devices
from ..core.graphs import GRAPHS
from ..core.refusal import Refusal, attempt, left
from ..few.listed import derived, is_list, seen_before
from ..scopes import transformed
from ..scopes.given import passing
from .few.normalised import gcn_norm_of_few
from .host import HOST
from .matmul import is_sparse
from .tracing import between_programs

FUNCTIONS = (gcn_norm, add_remaining_self_loops, add_self_loops, remove_self_loops)
"""Functions of an edge index, of edge values, and of plain values: (edge index, values).

The former depends on no value.
"""

LAYERS = "torch_geometric.nn."
"""Prefix of the modules whose globals are replaced."""

_PLAIN = (type(None), bool, int, float, str, torch.dtype)
_VALUES = object()  # stands for values of edges in a key


def kept(original: Callable) -> Callable:
    """The function, computed once for each content of the edge index and each choice of plain arguments. A result for
    given edge values is computed each time, but for its edge index."""

    def of_index(edge_index, *args, **kwargs):
        if (
            type(edge_index) is not Tensor
            or edge_index.dtype is not torch.int64
            or edge_index.dim() != 2
            or edge_index.shape[0] != 2
            or edge_index.layout is not torch.strided
            or edge_index.is_inference()
            or devices.why_not(edge_index.device)
            or transformed() is not None
        ):
            return original(edge_index, *args, **kwargs)
        given, edges = [*args, *kwargs.values()], edge_index.shape[1:]
        known = tuple(_VALUES if type(x) in (Tensor, Parameter) and x.shape[:1] == edges else x for x in given)
        if any(type(x) not in _PLAIN for x in known if x is not _VALUES):
            return original(edge_index, *args, **kwargs)
        key = (original, known, tuple(kwargs))
        few = edges[0] <= FEW.edges and is_list(edge_index, 2)
        derived_of = derived if few else GRAPHS.derived
        if few and passing() and not seen_before(edge_index, key):
            return original(edge_index, *args, **kwargs)  # tiny, and perhaps never seen again
        if _VALUES not in known:
            run = original
            if few and original is gcn_norm:
                run = _few_gcn_norm
            return derived_of(edge_index, key, lambda: run(edge_index, *args, **kwargs))
        result = original(edge_index, *args, **kwargs)
        if type(result) is not tuple or type(result[0]) is not Tensor or result[0].is_inference():
            return result
        return *derived_of(edge_index, key, lambda: result[:1]), *result[1:]

    return between_programs(of_index, original, lambda *args, **kwargs: _breaks(original, *args, **kwargs))


_attempt = attempt(gcn_norm_of_few)


def _few_gcn_norm(*args, **kwargs) -> tuple:
    found = _attempt(*args, **kwargs)
    if type(found) is Refusal:
        with left(HOST.name, "edge_map", found):
            return gcn_norm(*args, **kwargs)
    return gcn_norm(*args, **kwargs) if found is None else found


def _breaks(function: Callable, edge_index, *args, **kwargs) -> bool:
    """Whether it takes edges that are no self loops, of which nobody knows how many there are; or a sparse matrix."""
    if is_sparse(edge_index):
        return True
    if function is add_self_loops or not isinstance(edge_index, Tensor):
        return False
    return function is not gcn_norm or (args[3] if len(args) > 3 else kwargs.get("add_self_loops", True))
