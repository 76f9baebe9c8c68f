"""Attention over the edges of each row, in one pass over them with an online softmax.

    S[e] = sum over d of a message, p = softmax of S over the edges e of a row, C[i] = sum of p[e] * another message

Nothing of the size of the edges is stored. The maximum and the sums that are relative to it grow along the edges
(online softmax: Milakov and Gimelshein, 2018; with weighted values: Dao et al., FlashAttention, 2022). Sums are
rescaled only where a score exceeds the maximum by a margin (as in FlashAttention-4), so that the branch is hardly
ever taken after a row's first edge; the result is the same, since sums and weights stand in one proportion whatever
they are relative to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod

from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast, equal, exp, number, select
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from ...message.programs.message import Message, lower
from ...message.programs.operands import Edges, Operand, feature_index, flat_position

# exp(8) times a sum over any row stays far from overflow
MARGIN = 8.0


@dataclass(frozen=True)
class Attribute:
    """A message of an edge: over ``operands`` whose dims refer to ``dims``, its feature shape."""

    message: Message
    operands: tuple[Operand, ...]
    dims: tuple[int, ...]


@dataclass(frozen=True)
class AttentionSpec:
    """What is static in attention.

    score: before the sum. summed: for each of its feature dimensions whether the score is summed over it; the other
        dimensions, flat, are the heads.
    value: its dims are those of the result. heads: the shape of a score among them, extents or 1.
    dtype: of operands and result. index_dtype, numbered: as in an aggregation.
    parts: rows are parts of rows, whose results are merged elsewhere (`softmax_merge`); of the forward program.
    """

    score: Attribute
    summed: tuple[bool, ...]
    value: Attribute
    heads: tuple[int, ...]
    dtype: str = "float32"
    index_dtype: str = "int32"
    numbered: bool = False
    parts: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Operands of the score, then those of the value."""
        return self.score.operands + self.value.operands

    @functools.cached_property
    def scores(self) -> int:
        """Scores of an edge."""
        return prod(self.heads)

    @property
    def terms(self) -> int:
        """Terms of one score."""
        return prod(e for e, gone in zip(self.score.dims, self.summed) if gone)

    @functools.cached_property
    def features(self) -> int:
        """Features of the result."""
        return prod(self.value.dims)


class AttentionWriter:
    """What the forward program and its gradient share: operands, and the scores of an edge.

    Where every feature has a score of its own, H is K, so that both are cut alike. Hs is H for what cannot be cut.
    """

    def __init__(self, name: str, spec: AttentionSpec) -> None:
        self.spec, self.accumulator = spec, ACCUMULATOR[spec.dtype]
        self.p = p = ProgramBuilder(name)
        self.edges = Edges(p, spec.index_dtype, spec.numbered)
        self.K = p.dense_fixed("K", spec.features)
        self.H = self.K if spec.scores == spec.features else p.dense_fixed("H", spec.scores)
        self.Hs = p.dense_fixed("Hs", spec.scores)
        self.X = [self.edges.buffer(f"X{n}", o) for n, o in enumerate(spec.score.operands)]
        self.V = [self.edges.buffer(f"V{n}", o) for n, o in enumerate(spec.value.operands)]

    def head(self, k: Expr) -> Expr:
        """The head of feature k of the result."""
        return feature_index(k, self.spec.value.dims, self.spec.heads)

    def value(self, i: Expr, j: Expr, k: Expr) -> Expr:
        """Feature k of the value of an edge."""
        return self._message(self.spec.value, self.V, i, j, k)

    def score_operand(self, which: int, i: Expr, j: Expr, feature: Expr) -> Expr:
        """A feature of an operand of the score, in the type to compute in."""
        return self.edges.load(self.X[which], self.spec.score.operands[which], i, j, feature, self.accumulator)

    def value_operand(self, which: int, i: Expr, j: Expr, feature: Expr) -> Expr:
        """A feature of an operand of the value, in the type to compute in."""
        return self.edges.load(self.V[which], self.spec.value.operands[which], i, j, feature, self.accumulator)

    def scores(self, S: BufferHandle, i: Expr, j: Expr) -> None:
        """Store the scores of an edge."""
        spec = self.spec

        def term(h: Expr, t: Expr) -> Expr:
            flat = flat_position(spec.score.dims, spec.summed, h, t)
            return self._message(spec.score, self.X, i, j, flat)

        self.sum_heads("dot", S, spec.terms, term)

    def sum_heads(self, name: str, target: BufferHandle, terms: int, term: Callable[[Expr, Expr], Expr]) -> None:
        """target[h] = sum of term(h, t) over t < terms, an iteration called ``name``."""
        p = self.p
        if terms == 1:
            with p.iterate(f"{name}_heads", (self.H,), "S", (f"{name}_h",)) as (h,):
                target[h] = term(h, as_expr(0))
            return
        T = p.dense_fixed(f"T_{name}", terms)
        with p.iterate(f"{name}_heads", (self.Hs,), "S", (f"{name}_h",)) as (h,):
            Sum = p.local(f"Sum_{name}", (), self.accumulator)
            with p.iterate(name, (T,), "R", (f"{name}_t",)) as (t,):
                with p.init():
                    Sum[()] = 0.0
                Sum[()] = Sum[()] + term(h, t)
            target[h] = Sum[()]

    def _message(self, what: Attribute, buffers: Sequence[BufferHandle | None], i: Expr, j: Expr, flat: Expr) -> Expr:
        return lower(
            what.message,
            [
                self.edges.load(buffer, o, i, j, feature_index(flat, what.dims, o.dims), self.accumulator)
                for buffer, o in zip(buffers, what.operands)
            ],
            self.spec.dtype,
            self.accumulator,
        )


def attention(spec: AttentionSpec) -> Program:
    """The program.

    Parameters: (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], X0, ..., V0, ..., C, M, R); X are
    the operands of the score, V those of the value. The weight of edge e of row i is exp(S[e] - M[i]) * R[i]: two
    numbers, because the one logarithm of a sum that could stand for both loses digits where the maximum is large.
    A row without edges is 0. A row with a score that is NaN or +inf, or of -inf alone, is NaN.
    With parts of rows, the results are (..., C, M, Total), all in the accumulation type: C is the sum of exp(S - M)
    value, Total that of exp(S - M), both 0 where all scores are -inf.
    """
    w = AttentionWriter("attention_parts" if spec.parts else "attention", spec)
    p, edges, H, K, accumulator = w.p, w.edges, w.H, w.K, w.accumulator
    I, J = edges.I, edges.J
    C = p.buffer("C", (I, K), accumulator if spec.parts else spec.dtype)
    M, R = (p.buffer(name, (I, H), accumulator) for name in ("M", "Total" if spec.parts else "R"))
    One = p.dense_fixed("One", 1)
    low = number(float("-inf"), accumulator)
    with p.iterate("rows", (I,), "S") as (i,):
        Max, Sum = (p.local(name, (H,), accumulator) for name in ("Max", "Sum"))
        if not spec.parts:
            Inverse = p.local("Inverse", (H,), accumulator)
        Acc = p.local("Acc", (K,), accumulator)
        Seen = p.local("Seen", (), accumulator)
        Seen[()] = 0.0
        with p.iterate("no_sum", (H,), "S", ("h0",)) as (h,):
            Max[h] = low
            Sum[h] = 0.0
        with p.iterate("no_value", (K,), "S", ("k0",)) as (k,):
            Acc[k] = 0.0
        with p.iterate("edges", (J,), "R") as (j,):
            S, P, Scale = (p.local(name, (H,), accumulator) for name in ("S", "P", "Scale"))
            Above = p.local("Above", (), accumulator)
            Seen[()] = 1.0
            w.scores(S, i, j)
            # a comparison with NaN never holds
            with p.iterate("above", (w.Hs,), "R", ("ha",)) as (h,):
                with p.init():
                    Above[()] = 0.0
                Above[()] = Above[()] + select(S[h] > Max[h] + MARGIN, number(1.0, accumulator), 0.0)
            with p.iterate("rescale", (One,), "S"):
                p.where(Above[()] > 0.0)
                with p.iterate("scale", (H,), "S", ("hr",)) as (h,):
                    above = S[h] > Max[h] + MARGIN
                    Scale[h] = exp(Max[h] - S[h])
                    Scale[h] = select(above, Scale[h], 1.0)
                    Sum[h] = Sum[h] * Scale[h]
                    Max[h] = select(above, S[h], Max[h])
                with p.iterate("scale_value", (K,), "S", ("kr",)) as (k,):
                    Acc[k] = Acc[k] * Scale[w.head(k)]
            with p.iterate("weight", (H,), "S", ("hw",)) as (h,):
                P[h] = exp(S[h] - Max[h])
                # -inf - -inf is NaN
                P[h] = select(equal(S[h], low), number(0.0, accumulator), P[h])
                Sum[h] = Sum[h] + P[h]
            with p.iterate("add", (K,), "S", ("ka",)) as (k,):
                Acc[k] = Acc[k] + P[w.head(k)] * w.value(i, j, k)
        with p.iterate("inverse", (H,), "S", ("hi",)) as (h,):
            if not spec.parts:
                Inverse[h] = select(Seen[()] > 0.0, 1.0 / Sum[h], number(0.0, accumulator))
            M[i, h] = Max[h]
            R[i, h] = Sum[h] if spec.parts else Inverse[h]
        with p.iterate("out", (K,), "S", ("ko",)) as (k,):
            C[i, k] = Acc[k] if spec.parts else cast(spec.dtype, Acc[k] * Inverse[w.head(k)])
    return edges.grouped()
