"""Softmax of edge features over the edges of each row, and its gradient.

    P[e] = exp(X[e] - max) / sum of exp(X - max)          over the edges e of a row, feature by feature
    dX[e] = P[e] * (dP[e] - sum of P * dP)
"""

from __future__ import annotations

from dataclasses import dataclass

from ..coordinate.builder import ProgramBuilder
from ..coordinate.expr import cast, exp, select
from ..coordinate.program import Program
from .operands import ACCUMULATOR, Edges


@dataclass(frozen=True)
class EdgeSoftmaxSpec:
    """What is static in a softmax over edges.

    width: features of an edge. dtype: of the edge arrays. index_dtype: of indptr, indices and edge numbers.
    numbered: edge arrays are in the order that E gives.
    product: of the gradient: what is given beside P is P * dP, not dP.
    """

    width: int
    dtype: str = "float32"
    index_dtype: str = "int32"
    numbered: bool = False
    product: bool = False


def edge_softmax(spec: EdgeSoftmaxSpec) -> Program:
    """The softmax: parameters (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], X, P).

    A row with a NaN or +inf, or of -inf alone, is NaN.
    """
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("edge_softmax")
    edges = Edges(p, spec.index_dtype, spec.numbered)
    G, I, J = edges.G, edges.I, edges.J
    K = edges.features(spec.width, "K")
    X = p.buffer("X", (*edges.axes("edge"), K), spec.dtype)
    P = p.buffer("P", (*edges.axes("edge"), K), spec.dtype)
    with p.iterate("rows", (G, I), "SS") as (g, i):
        Max = p.local("Max", (K,), accumulator)
        Sum = p.local("Sum", (K,), accumulator)
        with p.iterate("max", (J, K), "RS", ("a", "ka")) as (j, k):
            with p.init():
                Max[k] = float("-inf")
                Sum[k] = 0.0
            x = cast(accumulator, X[(*edges.at("edge", g, i, j), k)])
            # a NaN is never taken here; the sum has it then
            Max[k] = select(x > Max[k], x, Max[k])
        with p.iterate("sum", (J, K), "RS", ("b", "kb")) as (j, k):
            x = cast(accumulator, X[(*edges.at("edge", g, i, j), k)])
            Sum[k] = Sum[k] + exp(x - Max[k])
        with p.iterate("inverse", (K,), "S", ("kd",)) as (k,):
            Sum[k] = 1.0 / Sum[k]
        with p.iterate("out", (J, K), "SS", ("c", "kc")) as (j, k):
            at = (*edges.at("edge", g, i, j), k)
            P[at] = cast(spec.dtype, exp(cast(accumulator, X[at]) - Max[k]) * Sum[k])
    return p.finish()


def edge_softmax_gradient(spec: EdgeSoftmaxSpec) -> Program:
    """The gradient: parameters (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], P, dP, dX)."""
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("edge_softmax_gradient")
    edges = Edges(p, spec.index_dtype, spec.numbered)
    G, I, J = edges.G, edges.I, edges.J
    K = edges.features(spec.width, "K")
    P, dP, dX = (p.buffer(name, (*edges.axes("edge"), K), spec.dtype) for name in ("P", "dP", "dX"))
    with p.iterate("rows", (G, I), "SS") as (g, i):
        Sum = p.local("Sum", (K,), accumulator)
        with p.iterate("sum", (J, K), "RS", ("a", "ka")) as (j, k):
            with p.init():
                Sum[k] = 0.0
            at = (*edges.at("edge", g, i, j), k)
            term = cast(accumulator, dP[at])
            Sum[k] = Sum[k] + (term if spec.product else cast(accumulator, P[at]) * term)
        with p.iterate("out", (J, K), "SS", ("b", "kb")) as (j, k):
            at = (*edges.at("edge", g, i, j), k)
            weight, term = cast(accumulator, P[at]), cast(accumulator, dP[at])
            dX[at] = cast(spec.dtype, term - weight * Sum[k] if spec.product else weight * (term - Sum[k]))
    return p.finish()


__all__ = ["EdgeSoftmaxSpec", "edge_softmax", "edge_softmax_gradient"]
