"""SpMM and SDDMM as what they are: an aggregation of products, and an edge map of products summed over the width.

With A the weighted adjacency matrix, S its sampling pattern and D the diagonal of in-degrees::

    gsb::spmm(x, w)               y = D^-1 A_w x          (D only for means)
    gsb::spmm(x, w, transposed)   y = A_w^T D^-1 x
    gsb::sddmm(u, v)              o = D^-1 S . (u v^T)

Their gradients are those of the aggregation and the edge map.
"""

from __future__ import annotations

from torch import Tensor

from ...runtime.devices import check_kernels
from ..core.operands import check_dense, check_features, check_rows
from ..core.operator import Operator
from ..core.traced import GRAPH, GRAPH_OF_BOTH_ENDS
from .calls import run_aggregate, run_edge_map
from .checks import check_message_rows
from .message_op import MessageOp, message_op
from .operators import AGGREGATE, EDGE_MAP
from .reductions.means import divided_first, inverse_degrees

_COPY = {mean: message_op("x0", ("column",), "mean" if mean else "sum") for mean in (False, True)}
_WEIGHTED = {mean: message_op("mul(x1, x0)", ("column", "edge"), "mean" if mean else "sum") for mean in (False, True)}
_SCALED = message_op("mul(x1, x0)", ("column", "column"), "sum")
_WEIGHTED_SCALED = message_op("mul(mul(x1, x0), x2)", ("column", "edge", "column"), "sum")
_DOT = message_op("mul(x0, x1)", ("row", "column"))
_SCALED_DOT = message_op("mul(mul(x0, x1), x2)", ("row", "column", "row"))
_LAST = {2: (True,), 3: (False, True)}


def sddmm_of(graph, u: Tensor, v: Tensor) -> Tensor:
    """The sampled product of operands that passed the checks: (E,), or (E, H) of (n, H, D)."""
    return EDGE_MAP(graph, (u, v), (_DOT, _LAST[u.dim()])).squeeze(-1)


def _product(graph, x: Tensor, weight: Tensor | None, mean: bool) -> tuple[MessageOp, tuple]:
    if weight is not None and x.dim() == 3:
        weight = weight.unsqueeze(2)
    return (_COPY[mean], (x,)) if weight is None else (_WEIGHTED[mean], (x, weight))


def _product_of_transpose(graph, x: Tensor, weight: Tensor | None) -> tuple[MessageOp, tuple]:
    """The product of a mean on the transpose of ``graph``: rows are divided by their in-degrees in ``graph``."""
    if (divided := divided_first(graph, x)) is not None:
        return _product(graph, divided, weight, False)
    scale = inverse_degrees(graph, x.dtype, x.dim())
    _, operands = _product(graph, x, weight, False)
    return (_SCALED if weight is None else _WEIGHTED_SCALED), (*operands, scale)


def _dot(graph, u: Tensor, v: Tensor, mean: bool) -> tuple[MessageOp, tuple]:
    return (_SCALED_DOT, (u, v, inverse_degrees(graph, u.dtype, u.dim()))) if mean else (_DOT, (u, v))


def dot_of(structure, operands, attributes) -> tuple[tuple, tuple]:
    """(operands, attributes) of the edge map that sampled products are, before its last dimension goes."""
    of, given = _dot(structure, *operands, *attributes)
    return given, (of, _LAST[given[0].dim()])


def product_of(structure, operands, attributes) -> tuple[MessageOp, tuple]:
    """The aggregation that a product is, on ``structure``, which may be the transpose of what a mean is of."""
    mean, transposed = attributes
    if mean and transposed:
        return _product_of_transpose(structure.transpose(), *operands)
    return _product(structure, *operands, mean)


def _run_spmm(graph, operands, attributes) -> Tensor:
    of, operands = product_of(graph, operands, attributes)
    return run_aggregate(of, graph, operands)


def _run_sddmm(graph, operands, attributes) -> Tensor:
    operands, (of, reduced) = dot_of(graph, operands, attributes)
    return run_edge_map(of, graph, operands, reduced).squeeze(-1)


def _gradients_of_spmm(structure, attributes, saved, memo, needed, grad: Tensor) -> list[Tensor | None]:
    of, operands = product_of(structure, saved, attributes)
    found = _as_recorded(AGGREGATE, structure, operands, (of,), (*needed, False)[: len(operands)], grad)
    return [found[0], _like(found[1], saved[1]) if saved[1] is not None else None]


def _gradients_of_sddmm(structure, attributes, saved, memo, needed, grad: Tensor) -> list[Tensor | None]:
    operands, of_edges = dot_of(structure, saved, attributes)
    return _as_recorded(EDGE_MAP, structure, operands, of_edges, (*needed, False), grad.unsqueeze(-1))[:2]


def _as_recorded(operator: Operator, structure, operands, attributes, needed, grad: Tensor) -> list[Tensor | None]:
    """The gradients of a call of another operator, which has no results that it would read."""
    results = (None, None) if operator is AGGREGATE else None
    saved, memo = operator.saved(attributes, operands, results)
    return list(operator.gradients(structure, attributes, saved, memo, needed, grad))


def _like(gradient: Tensor | None, x: Tensor) -> Tensor | None:
    """Drop the dimension that heads have for their features from a gradient of ``x``, if ``x`` has none."""
    return gradient if gradient is None or gradient.dim() == x.dim() else gradient.squeeze(-1)


def _check_spmm(graph, operands, attributes):
    x, weight = operands
    check_features("spmm", "x", x)
    check_rows("spmm", "x", x, graph.shape[1], "destination" if attributes[1] else "source", graph)
    if weight is not None:
        check_dense("spmm", "weight", weight)
        check_rows("spmm", "weight", weight, graph.num_edges, "edge", graph)
        if weight.shape[1:] != x.shape[1:-1] or weight.dtype != x.dtype:
            raise ValueError(
                f"spmm: weight {tuple(weight.shape)} of {weight.dtype} does not go with x {tuple(x.shape)} of {x.dtype}"
            )
    check_kernels("spmm", graph.device)
    return operands


def _check_sddmm(graph, operands, attributes):
    u, v = operands
    check_features("sddmm", "u", u)
    check_features("sddmm", "v", v)
    check_message_rows("sddmm", graph, ("u", "v"), ("row", "column"), operands)
    if u.shape[1:] != v.shape[1:] or u.dtype != v.dtype:
        raise ValueError(f"sddmm: u {tuple(u.shape)} of {u.dtype} does not go with v {tuple(v.shape)} of {v.dtype}")
    return operands


def _fake_spmm(arguments, operands, attributes, transposed: bool):
    x = operands[0]
    return x.new_empty((arguments[3] if transposed else arguments[0].shape[0] - 1, *x.shape[1:]))


SPMM = Operator(
    "spmm",
    _run_spmm,
    _gradients_of_spmm,
    structure=GRAPH,
    operands="Tensor x, Tensor? weight",
    attributes="bool mean, bool transposed",
    encode=lambda attributes, transposed: (attributes[0], transposed),
    decode=lambda mean, transposed: ((mean, transposed), transposed),
    like=_fake_spmm,
    check=_check_spmm,
)
"""Attributes: (whether it is a mean, whether the structure is the transpose of what a mean is of)."""

SDDMM = Operator(
    "sddmm",
    _run_sddmm,
    _gradients_of_sddmm,
    structure=GRAPH_OF_BOTH_ENDS,
    operands="Tensor u, Tensor v",
    attributes="bool mean",
    like=lambda arguments, operands, attributes, transposed: operands[0].new_empty(
        (arguments[1].shape[0], *operands[0].shape[1:-1])
    ),
    check=_check_sddmm,
)
"""Attributes: (whether each result is divided by the in-degree of its destination,)."""
