"""Attention over the blocks of a mask, in one pass over the keys of each block of queries with an online softmax.

    out[i] = sum over keys j that i may attend of softmax(scale <q[i], k[j]>) v[j]

The lanes of vectors are queries. Scores of a block are K Q^T, with a row for each key, so that maxima and sums of a
query are taken lane by lane; weights times values are V^T P, with a row for each feature. Nothing of the size of the
pairs is stored but one block (FlashAttention, Dao et al., 2022).
"""

from __future__ import annotations

from ....compiler.language.expr import cast, equal, exp, log, maximum, minimum, number, select
from ....compiler.language.program import Program
from .items import Items
from .random import Random
from .spec import MaskedSpec

LOWEST = -3.4e38
"""Stands for a maximum before there is any: minus infinity less itself would not be a number."""


def forward(spec: MaskedSpec) -> Program:
    """The program. Parameters: those of `Items`, then Q, K, V, Scale, [those of `Random`,] Out, Lse.

    Out is (batch * heads * queries, value_width), Lse (batch * heads * queries, 1): the logarithm of the sum of
    exponentials of the scores, +inf where a query may attend no key; there Out is 0.
    """
    w = Items("masked_forward", spec)
    p, b, acc, L, D, E = w.p, w.blocks, spec.accumulator, spec.line, spec.width, spec.value_width
    Q, K, V = w.operand("Q"), w.operand("K"), w.operand("V")
    Scale = p.buffer("Scale", (b.axis(1),), acc)
    random = Random(w) if spec.dropout else None
    Out, Lse = w.result("Out", spec.dtype, E), w.result("Lse", acc, 1)
    low = number(float("-inf"), acc)
    with w.items() as item:
        QT, Acc, S = b.local("QT", D * L), b.local("Acc", E * L), b.local("Scores", spec.block * L)
        Kc, Vc = b.local("Kc", spec.block * D), b.local("Vc", spec.block * E)
        Max, Sum, Shrink = (b.local(name, L) for name in ("Max", "Sum", "Shrink"))
        with b.each("pack_query", L) as ii:
            at = minimum(item.row + ii, item.rows - 1)
            b.row("pack", D, lambda d: QT.__setitem__(d * L + ii, cast(acc, Q[w.at("Q", item, at) + d]) * Scale[0]))
        b.vectors("no_sum", L, lambda c: (Max.__setitem__(c, LOWEST), Sum.__setitem__(c, 0.0)))
        b.vectors("no_value", E * L, lambda c: Acc.__setitem__(c, 0.0))
        if random:
            random.of_lanes(item, keys=False)
        with w.blocks_of(item) as block:
            w.copy("K", K, Kc, D, item, block)
            w.copy("V", V, Vc, E, item, block)
            w.clean(Vc, E, item, block)
            b.product(
                "score",
                (spec.block, D, L),
                lambda j, d: Kc[j * D + d],
                lambda d, c: QT[d * L + c],
                lambda j, c, value: S.__setitem__(j * L + c, value),
            )
            w.hide(S, low, item, block)
            with b.each("softmax", L // spec.lanes) as vector:
                New, Total = (p.local(name, (b.C,), acc) for name in ("New", "Total"))
                with b.lanes("old") as c:
                    New[c] = Max[vector * spec.lanes + c]
                with b.each("maximum", spec.block, "R") as j, b.lanes("most") as c:
                    New[c] = maximum(New[c], S[j * L + (vector * spec.lanes + c)])
                with b.lanes("shrink") as c:
                    lane = vector * spec.lanes + c
                    Shrink[lane] = exp(Max[lane] - New[c])
                    Max[lane] = New[c]
                    Total[c] = Sum[lane] * Shrink[lane]
                with b.each("weigh", spec.block, "R") as j, b.lanes("weight") as c:
                    at = j * L + (vector * spec.lanes + c)
                    S[at] = exp(S[at] - New[c])
                    Total[c] = Total[c] + S[at]
                with b.lanes("total") as c:
                    Sum[vector * spec.lanes + c] = Total[c]
            if random:
                with b.each("drop", spec.block) as j:

                    def drop(c, factor):
                        S[j * L + c] = S[j * L + c] * factor

                    random.each("drop_lane", item, block.column + j, drop)
            b.product(
                "value",
                (E, spec.block, L),
                lambda d, j: Vc[j * E + d],
                lambda j, c: S[j * L + c],
                lambda d, c, value: Acc.__setitem__(d * L + c, value),
                lambda d, c: Acc[d * L + c] * Shrink[c],
            )

        def finish(c):
            Shrink[c] = select(equal(Sum[c], number(0.0, acc)), number(0.0, acc), 1.0 / Sum[c])

        b.vectors("inverse", L, finish)
        with w.rows_of(item, "out") as (ii, row):
            b.row("out_row", E, lambda d: Out.__setitem__((row, d), cast(spec.dtype, Acc[d * L + ii] * Shrink[ii])))
            with b.each("lse", 1):
                Lse[row, 0] = select(
                    equal(Sum[ii], number(0.0, acc)), number(float("inf"), acc), Max[ii] + log(Sum[ii])
                )
    return p.finish()
