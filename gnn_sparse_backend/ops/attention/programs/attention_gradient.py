"""What the gradients of attention need of every edge, and the gradients that belong to rows, in one pass over the
edges.

    P[e] = exp(S[e] - M[i]) * R[i]
    dS[e] = P[e] * (sum over a head of dC[i] * value[e] - sum over a head of dC[i] * C[i])

With P and dS the gradients of operands at the columns are sums over the transpose (``sums``). Those of operands of the
score at the rows are sums over the same edges that this pass visits, of operands that it has at hand.

Or the pass is over the columns, of which it has the values at hand, and gathers dC, which their gradients want anyway.
"""

from __future__ import annotations

from ....compiler.language.expr import Expr, cast, exp
from ....compiler.language.program import Program
from ...message.programs.operands import flat_position
from .attention import AttentionSpec, AttentionWriter
from .sums import Output, Totals

COTANGENT, WEIGHTS, GRADIENT = -1, -2, -3
"""Sources of a sum beside the operands: dS, P and dC."""


def attention_gradient(spec: AttentionSpec, outputs: tuple[Output, ...] = ()) -> Program:
    """The program.

    outputs: sums over the edges of each row to compute along the way.
    Parameters: (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], X0, ..., V0, ..., C, M, R, dC, P,
    dS, O0, ...); up to R as in ``attention``. P and dS (edges, heads) have the accumulation type.
    """
    w = AttentionWriter("attention_gradient", spec)
    p, edges, H, K, accumulator = w.p, w.edges, w.H, w.K, w.accumulator
    I, J = edges.I, edges.J
    C = p.buffer("C", (I, K), spec.dtype)
    M, R = (p.buffer(name, (I, H), accumulator) for name in ("M", "R"))
    dC = p.buffer("dC", (I, K), spec.dtype, strided=True)
    P, dS = (p.buffer(name, (*edges.axes("edge"), H), accumulator) for name in ("P", "dS"))
    totals = Totals(p, edges, outputs, accumulator)
    dims, heads = spec.value.dims, spec.heads
    in_head = tuple(extent > 1 and own == 1 for extent, own in zip(dims, heads))
    width = spec.features // spec.scores
    with p.iterate("rows", (I,), "S") as (i,):
        Delta = p.local("Delta", (H,), accumulator)
        totals.start()

        def cotangent(k: Expr) -> Expr:
            return cast(accumulator, dC[i, k])

        def of_row(h: Expr, t: Expr) -> Expr:
            k = flat_position(dims, in_head, h, t)
            return cotangent(k) * cast(accumulator, C[i, k])

        w.sum_heads("delta", Delta, width, of_row)
        with p.iterate("edges", (J,), "R") as (j,):
            S, D = (p.local(name, (H,), accumulator) for name in ("S", "D"))
            w.scores(S, i, j)

            def of_edge(h: Expr, t: Expr) -> Expr:
                k = flat_position(dims, in_head, h, t)
                return cotangent(k) * w.value(i, j, k)

            w.sum_heads("weight", D, width, of_edge)
            with p.iterate("out", (H,), "S", ("ho",)) as (h,):
                S[h] = exp(S[h] - M[i, h]) * R[i, h]
                D[h] = S[h] * (D[h] - Delta[h])
                P[(*edges.at("edge", i, j), h)] = S[h]
                dS[(*edges.at("edge", i, j), h)] = D[h]

            def load(source: int, feature: Expr) -> Expr:
                return D[feature] if source == COTANGENT else w.score_operand(source, i, j, feature)

            totals.add(load)
        totals.store(i)
    return edges.grouped()


def attention_gradient_of_columns(spec: AttentionSpec, outputs: tuple[Output, ...]) -> Program:
    """The program over the transpose: its rows are the columns of the attention.

    spec: operands at rows stand at columns here, and the reverse. outputs: sums over the edges of each row; among their
    sources are operands of the score and then of the value, P and dC.
    Parameters: (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], X0, ..., V0, ..., M, R, Delta, dC,
    dS, O0, ...): M, R and Delta, the sum over a head of dC * C, are (columns, heads), dC is (columns, features).
    """
    w = AttentionWriter("attention_gradient_of_columns", spec)
    p, edges, H, K, accumulator = w.p, w.edges, w.H, w.K, w.accumulator
    I, J, N = edges.I, edges.J, edges.N
    M, R, Delta = (p.buffer(name, (N, H), accumulator) for name in ("M", "R", "Delta"))
    dC = p.buffer("dC", (N, K), spec.dtype, strided=True)
    dS = p.buffer("dS", (*edges.axes("edge"), H), accumulator)
    totals = Totals(p, edges, outputs, accumulator)
    dims = spec.value.dims
    in_head = tuple(extent > 1 and own == 1 for extent, own in zip(dims, spec.heads))
    count = len(spec.score.operands)
    with p.iterate("rows", (I,), "S") as (i,):
        totals.start()
        with p.iterate("edges", (J,), "R") as (j,):
            S, D = (p.local(name, (H,), accumulator) for name in ("S", "D"))
            w.scores(S, i, j)

            def of_edge(h: Expr, t: Expr) -> Expr:
                k = flat_position(dims, in_head, h, t)
                return cast(accumulator, dC[j, k]) * w.value(i, j, k)

            w.sum_heads("weight", D, spec.features // spec.scores, of_edge)
            with p.iterate("out", (H,), "S", ("ho",)) as (h,):
                S[h] = exp(S[h] - M[j, h]) * R[j, h]
                D[h] = S[h] * (D[h] - Delta[j, h])
                dS[(*edges.at("edge", i, j), h)] = D[h]

            def load(source: int, feature: Expr) -> Expr:
                if source == GRADIENT:
                    return cast(accumulator, dC[j, feature])
                if source < 0:
                    return (D if source == COTANGENT else S)[feature]
                if source < count:
                    return w.score_operand(source, i, j, feature)
                return w.value_operand(source - count, i, j, feature)

            totals.add(load)
        totals.store(i)
    return edges.grouped()
