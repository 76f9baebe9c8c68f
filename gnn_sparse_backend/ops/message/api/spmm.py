"""``gsb.spmm``: the product of a sparse and a dense matrix, which is the aggregation of a graph neural network."""

from __future__ import annotations

from torch import Tensor

from ....compiler.language.reduction import REDUCTIONS
from ....runtime.devices import check_kernels
from ....structures.graph import Graph
from ...core.operands import (
    check_dense,
    check_features,
    check_graph,
    check_rows,
    check_traced,
    check_written_out,
    common_type,
    is_plain,
)
from ...core.partitioned import Partitioned, placed
from ...core.signatures import prepared_call
from ...core.traced import traced_graph
from ..checks import check_choice
from ..message_op import message_op
from ..operators import AGGREGATE, aggregate_like
from ..products import SPMM
from .aggregate import reduce_messages

_COPY, _WEIGHTED = ("x0", ("column",)), ("mul(x1, x0)", ("column", "edge"))


@placed(u="x", e="weight", sums=("sum", "mean"))
def spmm(graph: Graph | Partitioned, x: Tensor, weight: Tensor | None = None, reduce: str = "sum") -> Tensor:
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
    if isinstance(graph, Partitioned):
        return graph.call(spmm, locals())
    check_graph("spmm", graph)
    signature, prepared = prepared_call(graph, ("spmm", reduce), (x, weight))
    if prepared is not None:
        return AGGREGATE(graph, (x,) if weight is None else (x, weight), (prepared.of, prepared))
    check_choice("spmm", "reduce", reduce, tuple(REDUCTIONS))
    check_features("spmm", "x", x)
    if weight is not None:
        _check_weight(x, weight)
        x, weight = common_type("spmm", ("x", "weight"), x, weight)
    if signature is None and not is_plain(x, weight):
        return _traced(graph, x, weight, reduce)
    check_rows("spmm", "x", x, graph.shape[1], "source", graph)
    if weight is not None:
        check_rows("spmm", "weight", weight, graph.num_edges, "edge", graph)
        check_written_out("spmm", "weight", weight)
    check_written_out("spmm", "x", x)
    check_kernels("spmm", graph.device)
    ties = "even" if REDUCTIONS[reduce].chooses else None
    if weight is None:
        return aggregate_like(message_op(*_COPY, reduce, ties), graph, (x,), signature)
    if weight.dim() == 2 and x.dim() == 3 and weight.shape[1] != 1:
        weight, signature = weight.unsqueeze(2), None  # a number for each head, of all of its features
    return aggregate_like(message_op(*_WEIGHTED, reduce, ties), graph, (x, weight), signature)


def _check_weight(x: Tensor, weight: Tensor) -> None:
    """``weight`` is (E,) or (E, 1), or (E, H) beside x (n_src, H, D)."""
    check_dense("spmm", "weight", weight)
    if weight.dim() == 1 or (weight.dim() == 2 and (weight.shape[1] == 1 or weight.shape[1:] == x.shape[1:-1])):
        return
    allowed = f"(E,), (E, 1) or (E, {x.shape[1]})" if x.dim() == 3 else "(E,) or (E, 1)"
    raise ValueError(
        f"spmm: with x of shape {tuple(x.shape)} weight must have shape {allowed}, got {tuple(weight.shape)}"
    )


def _traced(graph: Graph, x: Tensor, weight: Tensor | None, reduce: str) -> Tensor:
    """`spmm` of operands that something traces or transforms."""
    if weight is not None and weight.dim() == 2 and weight.shape[1:] != x.shape[1:-1]:
        weight = weight.squeeze(1)
    if not REDUCTIONS[reduce].adds:
        if weight is None:
            return reduce_messages("spmm", graph, *_COPY, ("x",), (x,), reduce, "even")
        weight = weight.reshape(weight.shape + (1,) * (x.dim() - weight.dim()))
        return reduce_messages("spmm", graph, *_WEIGHTED, ("x", "weight"), (x, weight), reduce, "even")
    check_traced("spmm", ("x", "weight"), (x, weight), graph.device)
    heads = None
    if x.dim() == 3 and (weight is None or weight.dim() == 1):
        heads = x.shape[1:]
        x = x.flatten(1)
    out = SPMM(traced_graph(graph), (x, weight), (REDUCTIONS[reduce].divides, False))
    return out if heads is None else out.unflatten(1, heads)
