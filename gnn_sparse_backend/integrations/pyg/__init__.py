"""Our kernels under PyTorch Geometric (2.4 and later).

Counted as ``copy.*``, ``mul.*`` and ``message.*`` (the reduction of a message that is a copy, a product of two,
anything else), ``attention``, ``rgms`` (sums by relation), ``gather_mm`` (products by type), ``gather`` (of one
operand, for an operation that is the framework's), ``edge_map`` (a message or scores for such an operation),
``softmax``, ``rows`` (arithmetic on node features around the messages), ``scatter.*``, ``segment.*``, ``spmm.*``,
``matmul.*``, and samples as ``sample_neighbors``. A message that the framework computes itself is counted once under
``propagate``, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn
import torch_geometric.utils
from torch_geometric.nn import HeteroLinear
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.nn.conv import FastRGCNConv, HeteroConv, MessagePassing, RGCNConv

from ..core.counters import fallback
from ..core.graphs import GRAPHS
from ..core.patch import Patches, globals_among, put_back
from ..few.listed import SEEN
from ..pyg_lib import served
from ..traced import install, uninstall
from . import hetero_conv, inplace, layers, matmul, relational, sampling, scatter, typed_linear  # noqa: F401  (``inplace``: lazy tensors)
from .derived import FUNCTIONS, LAYERS, kept
from .few import direct
from .gather import errors_of_gathers, lazy_gather, lazy_lift
from .host import HOST
from .releases import LIFTS, EdgeIndex, generator_of_steps
from .scripting import SCRIPTED, compiled_operators, overloads_of_originals, scriptable, scriptable_method
from .tracing import always, between_programs

_patches: Patches | None = None
_replaced: dict[Callable, Callable] = {}  # PyG's by ours


def activate() -> None:
    """Put our kernels under PyG. Nothing if they are there already."""
    global _patches
    if _patches is not None:
        return
    _patches = patches = Patches()
    if LIFTS:
        patches.set(MessagePassing, "_lift", lazy_lift(MessagePassing._lift))
    else:
        patches.set(MessagePassing, "_index_select_safe", lazy_gather(MessagePassing._index_select_safe))
    patches.set(Aggregation, "__call__", errors_of_gathers(Aggregation.__call__))
    patches.set(MessagePassing, "__call__", layers.watched_call)
    if (generator := generator_of_steps()) is not None:
        patches.set(MessagePassing, generator, direct.generated(patches, MessagePassing, generator))
    for layer in direct.made():
        direct.put_before(patches, layer)
    if hasattr(EdgeIndex, "matmul"):
        patches.set(EdgeIndex, "matmul", _ours(EdgeIndex.matmul, "matmul.{reduce}", matmul.matmul, always))
    patches.set(HeteroConv, "forward", _ours(HeteroConv.forward, "rgms", hetero_conv.forward))
    for layer, operator, run, breaks in (
        (HeteroLinear, "gather_mm", typed_linear.forward, None),
        (RGCNConv, "rgms", relational.forward_of(RGCNConv), always),
        (FastRGCNConv, "rgms", relational.forward_of(FastRGCNConv), None),
    ):
        ours = _ours(layer.forward, operator, run, breaks)
        patches.set(layer, "forward", scriptable_method(ours, layer.forward))
    sampling.install(patches)
    served.install(patches)
    compiler = torch.jit._script
    if hasattr(compiler, "_get_overloads"):
        patches.set(compiler, "_get_overloads", overloads_of_originals(compiler._get_overloads, _left_to_torchscript))
    utils = torch_geometric.utils
    of_layers = {original: scriptable(kept(original), original, between=True) for original in FUNCTIONS}
    compiled = compiled_operators()
    of_all = {
        original: scriptable(
            _ours(original, operator, run, breaks, scatter.passes),
            compiled.get(original, original),
            between=breaks is not None,
        )
        for original, operator, run, breaks in (
            (utils.spmm, "spmm.{reduce}", matmul.pyg_spmm, matmul.is_untraceable),
            (matmul.of_torch_sparse(), "spmm.{reduce}", matmul.sparse_matmul, None),
            (utils.scatter, "scatter.{reduce}", scatter.scatter_beside(utils.scatter), None),
            (utils.segment, "segment.{reduce}", scatter.segment, None),
            (utils.softmax, "softmax", scatter.softmax_beside(utils.softmax), None),
        )
    }
    ours = of_layers | of_all
    _replaced.update((function, original) for original, function in ours.items())
    for module, name, original in globals_among(ours):
        if original in of_all or module.__name__.startswith(LAYERS):
            patches.set(module, name, ours[original])
    install(HOST.name)


def _left_to_torchscript(original: Callable) -> None:
    """Count a function of PyG's own that TorchScript compiles, where it stands in the place of one of ours."""
    if _replaced.get(getattr(torch_geometric.utils, original.__name__, None)) is original:
        fallback(HOST.name, original.__name__, SCRIPTED.reason)


def _ours(
    original: Callable,
    operator: str,
    run: Callable,
    breaks: Callable[..., bool] | None = None,
    passes: Callable[..., bool] | None = None,
) -> Callable:
    """``original``, but ``run`` where that is ours; between two programs where a traced one ``breaks`` at it."""
    ours = HOST.admit(original, operator, run, passes=passes)
    return ours if breaks is None else between_programs(ours, original, breaks)


def deactivate() -> None:
    """Restore every attribute of PyG and forget all graphs. Nothing if our kernels are not there."""
    global _patches
    if _patches is not None:
        _patches.undo()
    put_back(_replaced)
    _patches = None
    _replaced.clear()
    uninstall(HOST.name)
    forget()


def forget() -> None:
    """Forget all graphs. Needed only after writes to an edge index that PyTorch cannot see (see ``graphs``)."""
    GRAPHS.clear()
    SEEN.clear()
    hetero_conv.KEPT.clear()
    typed_linear.KEPT.clear()
