"""Attention over the blocks of a mask, in one pass over the keys of each block of queries with an online softmax.

    out[i] = sum over keys j that i may attend of softmax(scale <q[i], k[j]>) v[j]

The lanes of vectors are queries. Scores of a block are K Q^T, with a row for each key, so that maxima and sums of a
query are taken lane by lane; weights times values are V^T P, with a row for each feature. Products of few queries are
others (`few_queries`). Nothing of the size of the pairs is stored but one block (FlashAttention, Dao et al., 2022).
"""

from __future__ import annotations

from ....compiler.language.expr import Expr, cast, minimum, number
from ....compiler.language.program import Program
from .few_queries import FewQueries, Parts
from .items import Items
from .modified import Modified
from .random import Random
from .softmax import OnlineSoftmax
from .spec import MaskedSpec


def forward(spec: MaskedSpec) -> Program:
    """The program. Parameters: those of `Items`, then Q, K, V, Scale, [those of `Random`, those of `Modified`,]
    [those of `Parts`,] Out, Lse.

    Out is (batch * heads * queries, value_width), Lse (batch * heads * queries, 1): the logarithm of the sum of
    exponentials of the scores, +inf where a query may attend no key; there Out is 0.
    """
    w = Items("masked_forward", spec)
    p, b, acc, L, D, E = w.p, w.blocks, spec.accumulator, spec.line, spec.width, spec.value_width
    Q, K, V = w.operand("Q"), w.operand("K"), w.operand("V")
    Scale = p.buffer("Scale", (b.axis(1),), acc)
    random = Random(w) if spec.dropout else None
    modified = None if spec.modifier is None else Modified(w, spec.modifier, "query", [spec.modifier.node])
    at_once = modified is not None and modified.short and not spec.in_features
    parts = Parts(w) if spec.shared_out else None
    results = w.result if parts is None else parts.result
    Out, Lse = results("Out", spec.dtype, E), results("Lse", acc, 1)
    with w.items() as item:
        S = b.local("Scores", spec.block * L)
        softmax = OnlineSoftmax(w)
        shrink = softmax.shrink
        few = FewQueries(w) if spec.in_features else None
        if few is not None:
            few.begin(Q, Scale, item)
        else:
            QT, Acc = b.local("QT", D * L), b.local("Acc", E * L)
            Kc, Vc = b.local("Kc", spec.block * D), b.local("Vc", spec.block * E)
            with b.each("pack_query", L) as ii:
                at = minimum(item.row + ii, item.rows - 1)
                b.row("pack", D, lambda d: QT.__setitem__(d * L + ii, cast(acc, Q[w.at("Q", item, at) + d]) * Scale[0]))
            b.vectors("no_value", E * L, lambda c: Acc.__setitem__(c, 0.0))
        softmax.begin()
        if random:
            random.of_lanes(item, keys=False)
        if modified is not None:
            modified.begin(item)
        with w.blocks_of(item) as block:
            reach = w.reach(block)
            if modified is not None:
                modified.prepare(item, block)

            def score(j, c, value, item=item, block=block):
                S[j * L + c] = modified.of(0, value, item, block, j, c) if at_once else value

            if few is not None:
                few.score(K, V, S, item, block)
            else:
                w.copy("K", K, Kc, D, item, block)
                w.copy("V", V, Vc, E, item, block)
                w.clean(Vc, E, item, block)
                b.product(
                    "score",
                    (spec.block, D, L),
                    lambda j, d: Kc[j * D + d],
                    lambda d, c: QT[d * L + c],
                    score,
                    some_rows=reach,
                )
            if modified is not None and not at_once:
                modified.change(S, item, block)
            w.hide(S, number(float("-inf"), acc), item, block)
            softmax.weigh(S, reach)
            if random:
                random.drop(S, item, block)
            if few is not None:
                few.weigh_values(V, K, S, shrink, item, block)
            else:
                b.product(
                    "value",
                    (E, spec.block, L),
                    lambda d, j: Vc[j * E + d],
                    lambda j, c: S[j * L + c],
                    lambda d, c, value: Acc.__setitem__(d * L + c, value),
                    lambda d, c: Acc[d * L + c] * shrink[c],
                    some_terms=reach,
                )

        def total(ii: Expr, d: Expr) -> Expr:
            return few.sums[ii * E + d] if few is not None else Acc[d * L + ii]

        if parts is not None:
            parts.store(item, softmax, total)
        else:
            softmax.finish()
            with w.rows_of(item, "out") as (ii, row):

                def scaled(d: Expr, ii: Expr = ii, row: Expr = row) -> None:
                    Out[row, d] = cast(spec.dtype, total(ii, d) * shrink[ii])

                b.row("out_row", E, scaled)
                with b.each("lse", 1):
                    Lse[row, 0] = softmax.logarithm(ii)
    if parts is not None:
        parts.put_together(Out, Lse)
    return p.finish()
