"""``gsb.spmm``: the product of a sparse and a dense matrix, which is the aggregation of a graph neural network."""

from __future__ import annotations

from torch import Tensor

from ....compiler.language.reduction import REDUCTIONS
from ....structures.graph import Graph
from ...core.operands import (
    check_dense,
    check_features,
    check_graph,
    check_kernels_for,
    check_rows,
    check_traced,
    check_written_out,
    common_type,
    is_plain,
)
from ...core.traced import traced_graph
from ..checks import check_choice
from ..products import SPMM, spmm_of
from .aggregate import reduce_messages


def spmm(graph: Graph, x: Tensor, weight: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Sum, mean, maximum or minimum, into every destination, of its sources' features, weighted by the edges.

    For sums ``out[i] = sum over edges e into i of weight[e] * x[src(e)]``.

    Args:
        graph: structure of shape (n_dst, n_src).
        x: (n_src, F) or (n_src, H, D) features in float32, float64, bfloat16 or float16, of any strides.
        weight: None for ones, or one number per edge in the user's edge order: (E,) or (E, 1); or with
            x (n_src, H, D) one per edge and head: (E, H). Same type as ``x``.
        reduce: ``"sum"``, ``"mean"`` to divide by the number of edges into the destination, ``"prod"``, ``"max"`` or
            ``"min"``: where several edges attain it they share the gradient, and NaN wins (``gspmm`` knows another
            rule).

    Returns:
        (n_dst, F) or (n_dst, H, D), contiguous, in the type of ``x``. Destinations without edges are zero, of
        products one. Half types are accumulated in float32. Gradients of any order flow to ``x`` and ``weight``.

    Like PyTorch's scatter operators it keeps its type under autocast, where operands of two types are promoted to the
    wider; elsewhere two types are refused. Works under ``torch.compile`` without a graph break.

    Raises:
        TypeError: an operand is not a dense floating tensor, or types differ.
        ValueError: a shape or device does not fit the graph, or ``reduce`` is unknown.
    """
    check_graph("spmm", graph)
    check_choice("spmm", "reduce", reduce, tuple(REDUCTIONS))
    check_features("spmm", "x", x)
    if weight is not None:
        weight = _fit_weight(x, weight)
        x, weight = common_type("spmm", ("x", "weight"), x, weight)
    if not REDUCTIONS[reduce].adds:
        if weight is None:
            return reduce_messages("spmm", graph, "x0", ("column",), ("x",), (x,), reduce, "even")
        weight = weight.reshape(weight.shape + (1,) * (x.dim() - weight.dim()))
        return reduce_messages(
            "spmm", graph, "mul(x1, x0)", ("column", "edge"), ("x", "weight"), (x, weight), reduce, "even"
        )
    mean = REDUCTIONS[reduce].divides
    plain = is_plain(x, weight)
    if plain:
        check_rows("spmm", "x", x, graph.shape[1], "source", graph)
        if weight is not None:
            check_rows("spmm", "weight", weight, graph.num_edges, "edge", graph)
            check_written_out("spmm", "weight", weight)
        check_written_out("spmm", "x", x)
        check_kernels_for("spmm", graph)
    else:
        check_traced("spmm", ("x", "weight"), (x, weight), graph.device)
    heads = None
    if x.dim() == 3 and (weight is None or weight.dim() == 1):
        heads = x.shape[1:]
        x = x.flatten(1)
    out = spmm_of(graph, x, weight, mean) if plain else SPMM(traced_graph(graph), (x, weight), (mean, False))
    return out if heads is None else out.unflatten(1, heads)


def _fit_weight(x: Tensor, weight: Tensor) -> Tensor:
    """``weight`` as (E,) for one number per edge, or (E, H) beside x (n_src, H, D)."""
    check_dense("spmm", "weight", weight)
    dim = weight.dim()
    if dim == 1:
        return weight
    if dim == 2:
        width = weight.shape[1]
        if x.dim() == 3 and x.shape[1] == width:
            return weight
        if width == 1:
            return weight.squeeze(1)
    allowed = f"(E,), (E, 1) or (E, {x.shape[1]})" if x.dim() == 3 else "(E,) or (E, 1)"
    raise ValueError(
        f"spmm: with x of shape {tuple(x.shape)} weight must have shape {allowed}, got {tuple(weight.shape)}"
    )
