"""Softmax of edge features over the edges of each row, and its gradient.

    P[e] = exp(X[e] - max) / sum of exp(X - max)          over the edges e of a row, feature by feature
    dX[e] = P[e] * (dP[e] - sum of P * dP)

A long row may be cut into parts, each a row of a structure of parts: what a part has of the maximum and the sum is
stored (``parts``), becomes that of its row elsewhere (`softmax_merge`), and comes back (``apply``).
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, cast, either, equal, exp, number, select
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from ...message.programs.operands import Edges


@dataclass(frozen=True)
class EdgeSoftmaxSpec:
    """What is static in a softmax over edges.

    width: features of an edge. dtype: of the edge arrays. index_dtype: of indptr, indices and edge numbers.
    numbered: edge arrays are in the order that E gives.
    product: of the gradient: what is given beside P is P * dP, not dP.
    finite: an infinite maximum is taken for 0, and what sums to 0 stays 0: a row of -inf alone is 0, and of one with
        +inf all else is 0, as PyG's softmax of segments has it.
    stage: "whole": of rows; "parts": the maximum and sum of each part of a row, or of the gradient its sum alone;
        "apply": what follows, with those of its row given for each part.
    """

    width: int
    dtype: str = "float32"
    index_dtype: str = "int32"
    numbered: bool = False
    product: bool = False
    finite: bool = False
    stage: str = "whole"


def edge_softmax(spec: EdgeSoftmaxSpec) -> Program:
    """The softmax: parameters (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], X, P).

    A row with a NaN or +inf, or of -inf alone, is NaN (but ``spec.finite``). In parts: (..., X, M, S), the maximum of
    each part and the sum of exp(X - maximum), which is 0 where all are -inf; then (..., X, M, R, P), with the inverse R
    of the sum of the part's row.
    """
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("edge_softmax" if spec.stage == "whole" else f"edge_softmax_{spec.stage}")
    edges = Edges(p, spec.index_dtype, spec.numbered)
    I, J = edges.I, edges.J
    K = edges.features(spec.width, "K")
    X = p.buffer("X", (*edges.axes("edge"), K), spec.dtype)
    if spec.stage != "whole":
        M, S = (p.buffer(name, (I, K), accumulator) for name in ("M", "R" if spec.stage == "apply" else "S"))
    if spec.stage != "parts":
        P = p.buffer("P", (*edges.axes("edge"), K), spec.dtype)
    with p.iterate("rows", (I,), "S") as (i,):
        Max = p.local("Max", (K,), accumulator)
        Sum = p.local("Sum", (K,), accumulator)
        if spec.stage == "apply":
            with p.iterate("given", (K,), "S", ("ka",)) as (k,):
                Max[k] = M[i, k]
                Sum[k] = S[i, k]
        else:
            with p.iterate("max", (J, K), "RS", ("a", "ka")) as (j, k):
                with p.init():
                    Max[k] = float("-inf")
                    Sum[k] = 0.0
                x = cast(accumulator, X[(*edges.at("edge", i, j), k)])
                # a NaN is never taken here; the sum has it then
                Max[k] = select(x > Max[k], x, Max[k])
        Base = Max
        if spec.stage == "parts" or spec.finite:
            Base = p.local("Base", (K,), accumulator)
            with p.iterate("base", (K,), "S", ("kl",)) as (k,):
                if spec.stage == "parts":
                    M[i, k] = Max[k]
                Base[k] = select(_infinite(Max[k], spec.finite), number(0.0, accumulator), Max[k])  # inf - inf is NaN
        if spec.stage != "apply":
            with p.iterate("sum", (J, K), "RS", ("b", "kb")) as (j, k):
                x = cast(accumulator, X[(*edges.at("edge", i, j), k)])
                Sum[k] = Sum[k] + exp(x - Base[k])
            with p.iterate("inverse", (K,), "S", ("kd",)) as (k,):
                if spec.stage == "parts":
                    S[i, k] = Sum[k]
                else:
                    Sum[k] = 1.0 / Sum[k]
        if spec.finite and spec.stage != "parts":
            none, zero = number(float("inf"), accumulator), number(0.0, accumulator)
            with p.iterate("none", (K,), "S", ("kn",)) as (k,):
                Sum[k] = select(equal(Sum[k], none), zero, Sum[k])
        if spec.stage != "parts":
            with p.iterate("out", (J, K), "SS", ("c", "kc")) as (j, k):
                at = (*edges.at("edge", i, j), k)
                P[at] = cast(spec.dtype, exp(cast(accumulator, X[at]) - Base[k]) * Sum[k])
    return edges.grouped()


def _infinite(most: Expr, both: bool) -> Expr:
    """Whether a maximum is -inf, or infinite at all where ``both``."""
    low, high = (number(float(name), most.dtype) for name in ("-inf", "inf"))
    return either(equal(most, low), equal(most, high)) if both else equal(most, low)


def edge_softmax_gradient(spec: EdgeSoftmaxSpec) -> Program:
    """The gradient: parameters (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], P, dP, dX).

    In parts: (..., P, dP, S), the sum of each part; then (..., P, dP, S, dX), with the sum of the part's row.
    """
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("edge_softmax_gradient" if spec.stage == "whole" else f"edge_softmax_gradient_{spec.stage}")
    edges = Edges(p, spec.index_dtype, spec.numbered)
    I, J = edges.I, edges.J
    K = edges.features(spec.width, "K")
    P, dP = (p.buffer(name, (*edges.axes("edge"), K), spec.dtype) for name in ("P", "dP"))
    if spec.stage != "whole":
        S = p.buffer("S", (I, K), accumulator)
    if spec.stage != "parts":
        dX = p.buffer("dX", (*edges.axes("edge"), K), spec.dtype)
    with p.iterate("rows", (I,), "S") as (i,):
        Sum = p.local("Sum", (K,), accumulator)
        if spec.stage == "apply":
            with p.iterate("given", (K,), "S", ("ka",)) as (k,):
                Sum[k] = S[i, k]
        else:
            with p.iterate("sum", (J, K), "RS", ("a", "ka")) as (j, k):
                with p.init():
                    Sum[k] = 0.0
                at = (*edges.at("edge", i, j), k)
                term = cast(accumulator, dP[at])
                Sum[k] = Sum[k] + (term if spec.product else cast(accumulator, P[at]) * term)
        if spec.stage == "parts":
            with p.iterate("keep", (K,), "S", ("kk",)) as (k,):
                S[i, k] = Sum[k]
        else:
            with p.iterate("out", (J, K), "SS", ("b", "kb")) as (j, k):
                at = (*edges.at("edge", i, j), k)
                weight, term = cast(accumulator, P[at]), cast(accumulator, dP[at])
                dX[at] = cast(spec.dtype, term - weight * Sum[k] if spec.product else weight * (term - Sum[k]))
    return edges.grouped()
