"""Maxima and sums of the parts of a row made those of the row, with weighted sums of values if there are any.

    M = max of M[p],  s = sum of exp(M[p] - M) S[p],  C = (sum of exp(M[p] - M) A[p]) / s          over the parts p of a
    row

(Online softmax, over parts: Milakov and Gimelshein, 2018; of attention: Dao et al., Flash-Decoding, 2023.)
"""

from __future__ import annotations

from math import prod

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, cast, equal, exp, number, select
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from ...message.programs.operands import Edges, feature_index


@dataclass(frozen=True)
class MergeSpec:
    """What is static. dims: of the values, () where there are none. heads: of the maxima among them, extents or 1, or
    just their number. dtype: of the result, whose accumulation type everything else has. index_dtype: of all index
    arrays.
    """

    dims: tuple[int, ...]
    heads: tuple[int, ...]
    dtype: str = "float32"
    index_dtype: str = "int32"

    @property
    def scores(self) -> int:
        """Maxima of a row."""
        return prod(self.heads)

    @property
    def features(self) -> int:
        """Features of a value, 0 where there are none."""
        return prod(self.dims) if self.dims else 0


def softmax_merge(spec: MergeSpec) -> Program:
    """The program, over a structure whose columns are the parts of its rows.

    Parameters: (num_groups, m, n, nnz, group_ptr, indptr, indices, PartM, PartS, [PartA], [C], M, R): maxima and sums
    (parts, heads), sums of values (parts, features), the result (m, features), the maxima and the inverse sums of rows
    (m, heads). A part whose maximum is -inf adds nothing but a NaN that its sums hold; a row of none but such parts is
    NaN, and a row without parts 0.
    """
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("softmax_merge")
    edges = Edges(p, spec.index_dtype, False)
    I, J = edges.I, edges.J
    H = p.dense_fixed("K" if spec.features in (0, spec.scores) else "H", spec.scores)
    K = H if spec.features == spec.scores else p.dense_fixed("K", spec.features) if spec.features else None
    PartM, PartS = (p.buffer(name, (*edges.axes("column"), H), accumulator) for name in ("PartM", "PartS"))
    if K is not None:
        PartA = p.buffer("PartA", (*edges.axes("column"), K), accumulator)
        C = p.buffer("C", (I, K), spec.dtype)
    M, R = (p.buffer(name, (I, H), accumulator) for name in ("M", "R"))
    low, zero, one = (number(value, accumulator) for value in (float("-inf"), 0.0, 1.0))

    def head(k: Expr) -> Expr:
        return feature_index(k, spec.dims, spec.heads)

    with p.iterate("rows", (I,), "S") as (i,):
        Max, Sum, Inverse = (p.local(name, (H,), accumulator) for name in ("Max", "Sum", "Inverse"))
        Seen = p.local("Seen", (), accumulator)
        Seen[()] = zero
        with p.iterate("no_sum", (H,), "S", ("h0",)) as (h,):
            Max[h] = low
            Sum[h] = zero
        with p.iterate("most", (J,), "R", ("jm",)) as (j,), p.iterate("max", (H,), "S", ("hm",)) as (h,):
            part = PartM[(*edges.at("column", i, j), h)]
            Max[h] = select(part > Max[h], part, Max[h])
        if K is not None:
            Acc = p.local("Acc", (K,), accumulator)
            with p.iterate("no_value", (K,), "S", ("k0",)) as (k,):
                Acc[k] = zero
        with p.iterate("parts", (J,), "R", ("j",)) as (j,):
            W = p.local("W", (H,), accumulator)
            at = edges.at("column", i, j)
            Seen[()] = number(1.0, accumulator)
            with p.iterate("weight", (H,), "S", ("hw",)) as (h,):
                W[h] = exp(PartM[(*at, h)] - Max[h])
                W[h] = select(equal(PartM[(*at, h)], Max[h]), one, W[h])  # inf - inf is NaN
                Sum[h] = Sum[h] + W[h] * PartS[(*at, h)]
            if K is not None:
                with p.iterate("add", (K,), "S", ("ka",)) as (k,):
                    Acc[k] = Acc[k] + W[head(k)] * PartA[(*at, k)]
        with p.iterate("inverse", (H,), "S", ("hi",)) as (h,):
            Inverse[h] = select(Seen[()] > zero, 1.0 / Sum[h], zero)
            M[i, h] = Max[h]
            R[i, h] = Inverse[h]
        if K is not None:
            with p.iterate("out", (K,), "S", ("ko",)) as (k,):
                C[i, k] = cast(spec.dtype, Acc[k] * Inverse[head(k)])
    return edges.grouped()
