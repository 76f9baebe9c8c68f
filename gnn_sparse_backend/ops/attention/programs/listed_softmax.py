"""Softmax of edge features over the edges of each row, as they are listed, and its gradient.

`edge_softmax` has both over rows. What a row has so far lies in memory here: a loop over all edges finds its maximum,
and another one its sum.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, cast, exp, number, select
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ...message.programs.listed import ListedEdges
from .edge_softmax import EdgeSoftmaxSpec


def listed_softmax(spec: EdgeSoftmaxSpec) -> Program:
    """The softmax over the edges of each row: parameters (m, n, num_edges, Row, Col, X, Most, Sum, P, Wrong).

    Most and Sum, (m, width), are for the maximum and the sum of each row, in the type of sums.
    """
    width, dtype, accumulator = spec.width, spec.dtype, ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("listed_softmax")
    edges = ListedEdges(p, spec.index_dtype)
    J, M, K = edges.J, edges.M, edges.features(width, "K")
    X = p.buffer("X", (J, K), dtype)
    Most, Sum = (p.buffer(name, (M, K), accumulator) for name in ("Most", "Sum"))
    P = p.buffer("P", (J, K), dtype)
    exact = accumulator == dtype  # then P keeps the exponentials
    edges.check()

    def row(j: Expr) -> tuple[Expr, ...]:
        return edges.at("row", j, None)

    with p.iterate("clear", (M,), "S", ("m0",)) as (i,), p.iterate("cleared", (K,), "S", ("k0",)) as (k,):
        Most[i, k] = number(float("-inf"), accumulator)
        Sum[i, k] = number(0.0, accumulator)
    with p.iterate("max", (J,), "R", ("j0",)) as (j,), p.iterate("most", (K,), "S", ("k1",)) as (k,):
        x, at = cast(accumulator, X[j, k]), (*row(j), k)
        Most[at] = select(x > Most[at], x, Most[at])  # a NaN is never taken here; the sum has it then
    with p.iterate("sum", (J,), "R", ("j1",)) as (j,), p.iterate("added", (K,), "S", ("k2",)) as (k,):
        at = *row(j), k
        term = exp(cast(accumulator, X[j, k]) - Most[at])
        if exact:
            P[j, k] = term
            term = P[j, k]
        Sum[at] = Sum[at] + term
    with p.iterate("inverse", (M,), "S", ("m1",)) as (i,), p.iterate("inverted", (K,), "S", ("k3",)) as (k,):
        Sum[i, k] = 1.0 / Sum[i, k]
    with p.iterate("out", (J,), "S", ("j2",)) as (j,), p.iterate("shares", (K,), "S", ("k4",)) as (k,):
        at = *row(j), k
        term = P[j, k] if exact else exp(cast(accumulator, X[j, k]) - Most[at])
        P[j, k] = cast(dtype, term * Sum[at])
    return p.finish()


def listed_softmax_gradient(spec: EdgeSoftmaxSpec) -> Program:
    """The program of the gradient. Parameters: (m, n, num_edges, Row, Col, P, dP, Sum, dX, Wrong)."""
    width, dtype, accumulator = spec.width, spec.dtype, ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("listed_softmax_gradient")
    edges = ListedEdges(p, spec.index_dtype)
    J, M, K = edges.J, edges.M, edges.features(width, "K")
    P, dP = (p.buffer(name, (J, K), dtype) for name in ("P", "dP"))
    Sum = p.buffer("Sum", (M, K), accumulator)
    dX = p.buffer("dX", (J, K), dtype)
    edges.check()
    with p.iterate("clear", (M,), "S", ("m0",)) as (i,), p.iterate("cleared", (K,), "S", ("k0",)) as (k,):
        Sum[i, k] = number(0.0, accumulator)
    with p.iterate("sum", (J,), "R", ("j0",)) as (j,), p.iterate("added", (K,), "S", ("k1",)) as (k,):
        at = *edges.at("row", j, None), k
        term = cast(accumulator, dP[j, k])
        Sum[at] = Sum[at] + (term if spec.product else cast(accumulator, P[j, k]) * term)
    with p.iterate("out", (J,), "S", ("j1",)) as (j,), p.iterate("shares", (K,), "S", ("k2",)) as (k,):
        weight, term = cast(accumulator, P[j, k]), cast(accumulator, dP[j, k])
        total = Sum[(*edges.at("row", j, None), k)]
        dX[j, k] = cast(dtype, term - weight * total if spec.product else weight * (term - total))
    return p.finish()
