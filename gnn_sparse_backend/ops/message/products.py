"""SpMM and SDDMM as what they are: an aggregation of products, and an edge map of products summed over the width.

With A the weighted adjacency matrix, S its sampling pattern and D the diagonal of in-degrees::

    spmm(x, w)               y = D^-1 A_w x          (D only for means)
    spmm(x, w, transposed)   y = A_w^T D^-1 x
    sddmm(u, v)              o = D^-1 S . (u v^T)
"""

from __future__ import annotations

from torch import Tensor

from .calls import run_aggregate, run_edge_map
from .gradients import aggregate, edge_map
from .means import divided_first, inverse_degrees
from .message_op import MessageOp, message_op

_COPY = {mean: message_op("x0", ("column",), "mean" if mean else "sum") for mean in (False, True)}
_WEIGHTED = {mean: message_op("mul(x1, x0)", ("column", "edge"), "mean" if mean else "sum") for mean in (False, True)}
_SCALED = message_op("mul(x1, x0)", ("column", "column"), "sum")
_WEIGHTED_SCALED = message_op("mul(mul(x1, x0), x2)", ("column", "edge", "column"), "sum")
_DOT = message_op("mul(x0, x1)", ("row", "column"))
_SCALED_DOT = message_op("mul(mul(x0, x1), x2)", ("row", "column", "row"))
_LAST = {2: (True,), 3: (False, True)}


def spmm_forward(graph, x: Tensor, weight: Tensor | None, mean: bool, transposed: bool) -> Tensor:
    """The product without autograd, of operands that passed the checks.

    ``x`` is (n, F) with weight None or (E,), or (n, H, D) with weight (E, H).
    """
    return run_aggregate(*_product(graph, x, weight, mean, transposed))


def apply_spmm(graph, x: Tensor, weight: Tensor | None, mean: bool, transposed: bool) -> Tensor:
    """``spmm_forward``, recorded if a gradient may be asked for."""
    of, graph, operands = _product(graph, x, weight, mean, transposed)
    return aggregate(of, graph, *operands)


def sddmm_forward(graph, u: Tensor, v: Tensor, mean: bool) -> Tensor:
    """The sampled product without autograd, of operands that passed the checks: (E,), or (E, H) of (n, H, D)."""
    of, operands = _dot(graph, u, v, mean)
    return run_edge_map(of, graph, operands, _LAST[u.dim()]).squeeze(-1)


def apply_sddmm(graph, u: Tensor, v: Tensor, mean: bool) -> Tensor:
    """``sddmm_forward``, recorded if a gradient may be asked for."""
    of, operands = _dot(graph, u, v, mean)
    return edge_map(of, graph, _LAST[u.dim()], *operands).squeeze(-1)


def _product(graph, x: Tensor, weight: Tensor | None, mean: bool, transposed: bool) -> tuple[MessageOp, object, tuple]:
    if weight is not None and x.dim() == 3:
        weight = weight.unsqueeze(2)
    if mean and transposed and (divided := divided_first(graph, x)) is not None:
        x, mean = divided, False
    if not (mean and transposed):
        graph = graph.transpose() if transposed else graph
        return (_COPY[mean], graph, (x,)) if weight is None else (_WEIGHTED[mean], graph, (x, weight))
    scale = inverse_degrees(graph, x.dtype, x.dim())
    if weight is None:
        return _SCALED, graph.transpose(), (x, scale)
    return _WEIGHTED_SCALED, graph.transpose(), (x, weight, scale)


def _dot(graph, u: Tensor, v: Tensor, mean: bool) -> tuple[MessageOp, tuple]:
    return (_SCALED_DOT, (u, v, inverse_degrees(graph, u.dtype, u.dim()))) if mean else (_DOT, (u, v))
