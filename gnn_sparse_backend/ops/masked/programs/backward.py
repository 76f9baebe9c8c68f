"""The gradients of attention over the blocks of a mask, in one pass over the queries of each block of keys.

    P = exp(S - lse),  dV = P^T dO,  dS = P (dO V^T - delta),  dK = dS^T Q,  dQ = dS K,  delta[i] = sum of dO[i] out[i]

The scores are computed again from what the forward pass kept of each query (FlashAttention-2, Dao, 2023). The lanes of
vectors are keys, as rows of the transposed mask are; only in dQ they are features. One task has all keys of a head, or
a part of them with a sum for dQ of its own, so that every number is added up in one order, whatever the threads are.
"""

from __future__ import annotations

from ....compiler.language.expr import cast, exp, minimum, number
from ....compiler.language.program import Program
from .gradients import Gradients
from .softmax import BRIEF
from .spec import MaskedSpec


def backward(spec: MaskedSpec) -> Program:
    """The program, with the parameters of `Gradients`."""
    own = Gradients("masked_backward", spec)
    w, modified, K, V, Scale = own.items, own.modified, own.K, own.V, own.Scale
    p, b, acc, L, D, E = w.p, w.blocks, spec.accumulator, spec.line, spec.width, spec.value_width
    wide = spec.padded(D)
    at_once = modified is not None and modified.short and not own.sloping
    weighed = modified is None or (at_once and spec.dtype != "bfloat16")
    nothing = number(0.0, acc)
    with w.items() as item:
        KT, VT, Kr = b.local("KT", D * L), b.local("VT", E * L), b.local("Kr", spec.block * wide)
        Kb = b.local("Kb", spec.block * wide)
        SumK, SumV, S = b.local("SumK", D * L), b.local("SumV", E * L), b.local("Scores", spec.block * L)
        Qc, Gc = b.local("Qc", spec.block * D), b.local("Gc", spec.block * E)
        b.vectors("zero_keys", spec.block * wide, lambda c: Kr.__setitem__(c, 0.0))
        with b.each("pack_key", L) as j:
            at = minimum(item.row + j, item.rows - 1)
            b.row("pack_k", D, lambda d: KT.__setitem__(d * L + j, cast(acc, K[w.at("K", item, at) + d]) * Scale[0]))
            b.row("pack_v", E, lambda d: VT.__setitem__(d * L + j, cast(acc, V[w.at("V", item, at) + d])))
        with b.each("pack_row", spec.block) as j:
            p.where(w.row_is_there(item, j))
            at = item.row + j
            b.row("pack_r", D, lambda d: Kr.__setitem__(j * wide + d, cast(acc, K[w.at("K", item, at) + d]) * Scale[0]))

        def own_keys(name):
            b.vectors(name, spec.block * wide, lambda c: Kb.__setitem__(c, Kr[c]))

        own_keys("own_keys")
        own.begin(item)
        b.vectors("no_dk", D * L, lambda c: SumK.__setitem__(c, 0.0))
        b.vectors("no_dv", E * L, lambda c: SumV.__setitem__(c, 0.0))
        with w.blocks_of(item) as block:
            reach = w.reach(block)
            w.copy("Q", own.Q, Qc, D, item, block)
            w.copy("G", own.G, Gc, E, item, block)
            w.clean(Qc, D, item, block)
            w.clean(Gc, E, item, block)

            def of_query(buffer, i, item=item, block=block):
                return own.of_query(buffer, item, block, i)

            if modified is not None:
                modified.prepare(item, block)

            def weight(i, c, score, item=item, block=block):
                if at_once:
                    score = modified.of(0, score, item, block, i, c)
                S[i * L + c] = exp(score - of_query(own.Lse, i)) if weighed else score

            b.product(
                "score",
                (spec.block, D, L),
                lambda i, d: Qc[i * D + d],
                lambda d, c: KT[d * L + c],
                weight,
                some_rows=reach,
            )
            if modified is not None and not at_once:
                own.change(S, item, block)
            if modified is not None and not weighed:

                def power(i, lane, of_query=of_query):
                    S[i * L + lane] = exp(S[i * L + lane] - of_query(own.Lse, i))

                modified.each(block, power, BRIEF if spec.dtype == "bfloat16" else "power")
            w.hide(S, nothing, item, block)

            dropped = own.drop(S, item, block)
            b.product(
                "dv",
                (E, spec.block, L),
                lambda d, i: Gc[i * E + d],
                lambda i, c, dropped=dropped: dropped[i * L + c],
                lambda d, c, value: SumV.__setitem__(d * L + c, value),
                lambda d, c: SumV[d * L + c],
                some_terms=reach,
            )

            def slope(i, c, value, item=item, block=block):
                S[i * L + c] = own.slope(S, value, item, block, i, c)

            b.product(
                "dp",
                (spec.block, E, L),
                lambda i, d: Gc[i * E + d],
                lambda d, c: VT[d * L + c],
                slope,
                some_rows=reach,
            )
            w.hide(S, nothing, item, block)
            b.product(
                "dk",
                (D, spec.block, L),
                lambda d, i: Qc[i * D + d],
                lambda i, c: S[i * L + c],
                lambda d, c, value: SumK.__setitem__(d * L + c, value),
                lambda d, c: SumK[d * L + c],
                some_terms=reach,
            )
            w.clean_by(w.SomeRow, Kb, wide, block)
            first = own.first(item, block)
            b.product(
                "dq",
                (spec.block, spec.block, wide),
                lambda i, j: S[i * L + j],
                lambda j, d: Kb[j * wide + d],
                lambda i, d, value: own.DQ.__setitem__((first + i, d), value),
                lambda i, d: own.DQ[first + i, d],
                some_rows=lambda _: w.reached(block),
            )
            with b.each("cleaned", 1):
                p.where(block.tile >= 0)
                own_keys("own_keys_again")
        with w.rows_of(item, "out") as (j, row):
            b.row("dk_row", D, lambda d: own.DK.__setitem__((row, d), cast(spec.dtype, SumK[d * L + j] * Scale[0])))
            b.row("dv_row", E, lambda d: own.DV.__setitem__((row, d), cast(spec.dtype, SumV[d * L + j])))
    return p.finish()
