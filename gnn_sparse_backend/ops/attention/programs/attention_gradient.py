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
from ....frozen import dataclass
from ...message.programs.operands import Operand, flat_position
from .attention import AttentionSpec, AttentionWriter
from .sums import Output, Totals

COTANGENT, WEIGHTS, GRADIENT = -1, -2, -3
"""Sources of a sum beside the operands, which are those of the score and then of the value: dS, P and dC."""


@dataclass(frozen=True)
class GradientSpec:
    """What is static in such a pass.

    outputs: sums over the edges of each row to compute along the way. by_columns: the pass is over the transpose, so
    that its rows are the columns of the attention; operands at rows stand at columns in ``attention``, and the reverse.
    """

    attention: AttentionSpec
    outputs: tuple[Output, ...] = ()
    by_columns: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Operands of the attention, its result where the pass is over rows, what is kept of the softmax, the sum over
        each head of dC * C where it is over columns, and the cotangent dC.
        """
        spec = self.attention
        at, wide, heads = "column" if self.by_columns else "row", (spec.features,), (spec.scores,)
        own = (heads, heads, heads, wide) if self.by_columns else (wide, heads, heads, wide)
        return (*spec.operands, *(Operand(at, dims, spec.dtype) for dims in own))

    @property
    def numbered(self) -> bool:
        return self.attention.numbered

    @property
    def index_dtype(self) -> str:
        return self.attention.index_dtype


def attention_gradient(gradient: GradientSpec) -> Program:
    """The program.

    Parameters: (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], X0, ..., V0, ..., C, M, R, dC, P,
    dS, O0, ...); up to R as in ``attention``. P and dS (edges, heads) have the accumulation type.
    By columns (..., V0, ..., M, R, Delta, dC, dS, O0, ...): M, R and Delta, the sum over a head of dC * C, are
    (columns, heads), dC is (columns, features).
    """
    spec, by_columns = gradient.attention, gradient.by_columns
    w = AttentionWriter("attention_gradient_of_columns" if by_columns else "attention_gradient", spec)
    p, edges, H, K, accumulator = w.p, w.edges, w.H, w.K, w.accumulator
    I, J = edges.I, edges.J
    of_softmax = edges.N if by_columns else I
    C = None if by_columns else p.buffer("C", (I, K), spec.dtype)
    M, R = (p.buffer(name, (of_softmax, H), accumulator) for name in ("M", "R"))
    if by_columns:
        Delta = p.buffer("Delta", (of_softmax, H), accumulator)
    dC = p.buffer("dC", (of_softmax, K), spec.dtype, strided=True)
    P = None if by_columns else p.buffer("P", (*edges.axes("edge"), H), accumulator)
    dS = p.buffer("dS", (*edges.axes("edge"), H), accumulator)
    totals = Totals(p, edges, gradient.outputs, accumulator)
    dims, heads, count = spec.value.dims, spec.heads, len(spec.score.operands)
    in_head = tuple(extent > 1 and own == 1 for extent, own in zip(dims, heads))
    width = spec.features // spec.scores
    with p.iterate("rows", (I,), "S") as (i,):
        if C is not None:
            Delta = p.local("Delta", (H,), accumulator)
        totals.start()
        if C is not None:

            def of_row(h: Expr, t: Expr) -> Expr:
                k = flat_position(dims, in_head, h, t)
                return cast(accumulator, dC[i, k]) * cast(accumulator, C[i, k])

            w.sum_heads("delta", Delta, width, of_row)
        with p.iterate("edges", (J,), "R") as (j,):
            at = j if by_columns else i
            S, D = (p.local(name, (H,), accumulator) for name in ("S", "D"))
            w.scores(S, i, j)

            def of_edge(h: Expr, t: Expr) -> Expr:
                k = flat_position(dims, in_head, h, t)
                return cast(accumulator, dC[at, k]) * w.value(i, j, k)

            w.sum_heads("weight", D, width, of_edge)
            with p.iterate("out", (H,), "S", ("ho",)) as (h,):
                S[h] = exp(S[h] - M[at, h]) * R[at, h]
                D[h] = S[h] * (D[h] - (Delta[at, h] if by_columns else Delta[h]))
                if P is not None:
                    P[(*edges.at("edge", i, j), h)] = S[h]
                dS[(*edges.at("edge", i, j), h)] = D[h]

            def load(source: int, feature: Expr) -> Expr:
                if source == GRADIENT:
                    return cast(accumulator, dC[at, feature])
                if source < 0:
                    return (D if source == COTANGENT else S)[feature]
                if source < count:
                    return w.score_operand(source, i, j, feature)
                return w.value_operand(source - count, i, j, feature)

            totals.add(load)
        totals.store(i)
    return edges.grouped()
