"""The gradients of attention over the blocks of a mask, in one pass over the queries of each block of keys.

    P = exp(S - lse),  dV = P^T dO,  dS = P (dO V^T - delta),  dK = dS^T Q,  dQ = dS K,  delta[i] = sum of dO[i] out[i]

The scores are computed again from what the forward pass kept of each query (FlashAttention-2, Dao, 2023). The lanes of
vectors are keys, as rows of the transposed mask are; only in dQ they are features. One task has all keys of a head, or
a part of them with a sum for dQ of its own, so that every number is added up in one order, whatever the threads are.
"""

from __future__ import annotations

from ....compiler.language.expr import cast, exp, minimum, number
from ....compiler.language.program import Program
from .items import Items
from .modified import Modified
from .modifier import const
from .modifier import slope as slope_by_score
from .random import Random
from .softmax import BRIEF
from .spec import MaskedSpec


def backward(spec: MaskedSpec) -> Program:
    """The program, on the transposed mask. Parameters: those of `Items`, then Q, K, V, G, Scale, [those of `Random`,
    those of `Modified`,] Lse, Delta, DQ, DK, DV.

    Lse and Delta are (batch * heads, queries); G is the gradient of the result. DQ is (parts, batch * heads, block_cols
    * block, width filled up to vectors), which is added to, DK and DV as K and V.
    """
    w = Items("masked_backward", spec, lanes_padded=True)
    p, b, acc, L, D, E = w.p, w.blocks, spec.accumulator, spec.line, spec.width, spec.value_width
    wide = spec.padded(D)
    Q, K, V, G = (w.operand(name) for name in "QKVG")
    parts, planes, block_cols, sums, queries = p.sizes("parts", "planes", "block_cols", "num_sums", "num_queries")
    Scale = p.buffer("Scale", (b.axis(1),), acc)
    random = Random(w) if spec.dropout else None
    modified, slope_of = None, None
    if spec.modifier is not None:
        slope_of = slope_by_score(spec.modifier.node)
        modified = Modified(w, spec.modifier, "key", [spec.modifier.node, slope_of or const(0.0)])
    sloping = slope_of not in (None, const(1.0))
    at_once = modified is not None and modified.short and not sloping
    weighed = modified is None or (at_once and spec.dtype != "bfloat16")
    Lse, Delta = (p.buffer(name, (p.dense_fixed(f"{name}_axis", queries),), acc) for name in ("Lse", "Delta"))
    DQ = p.buffer("DQ", (p.dense_fixed("DQ_axis", sums), b.axis(wide)), acc)
    DK, DV = w.result("DK", spec.dtype, D), w.result("DV", spec.dtype, E)
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
        w.lanes_allowed(item)
        if modified is not None:
            modified.begin(item)
        if sloping:
            Slopes = b.local("Slopes", spec.block * L)
        if random:
            Kept, Dropped = b.local("Kept", spec.block * L), b.local("Dropped", spec.block * L)
            random.of_lanes(item, keys=True)
        b.vectors("no_dk", D * L, lambda c: SumK.__setitem__(c, 0.0))
        b.vectors("no_dv", E * L, lambda c: SumV.__setitem__(c, 0.0))
        with w.blocks_of(item) as block:
            reach = w.reach(block)
            w.copy("Q", Q, Qc, D, item, block)
            w.copy("G", G, Gc, E, item, block)
            w.clean(Qc, D, item, block)
            w.clean(Gc, E, item, block)

            def of_query(buffer, i):
                return buffer[item.plane * w.size["cols"] + w.column(block, i)]

            if modified is not None:
                modified.prepare(item, block)

            def weight(i, c, score, item=item, block=block):
                if at_once:
                    score = modified.of(0, score, item, block, i, c)
                S[i * L + c] = exp(score - of_query(Lse, i)) if weighed else score

            b.product(
                "score",
                (spec.block, D, L),
                lambda i, d: Qc[i * D + d],
                lambda d, c: KT[d * L + c],
                weight,
                some_rows=reach,
            )
            if modified is not None and not at_once:

                def change(i, lane, item=item, block=block):
                    at, pair = i * L + lane, (item, block, i, lane)
                    if sloping:
                        Slopes[at] = modified.of(1, S[at], *pair)
                    S[at] = modified.of(0, S[at], *pair)

                modified.each(block, change)
            if modified is not None and not weighed:

                def power(i, lane, of_query=of_query):
                    S[i * L + lane] = exp(S[i * L + lane] - of_query(Lse, i))

                modified.each(block, power, BRIEF if spec.dtype == "bfloat16" else "power")
            w.hide(S, nothing, item, block)

            if random:
                with b.each("drop", spec.block) as i:

                    def drop(c, factor):
                        Kept[i * L + c] = factor
                        Dropped[i * L + c] = S[i * L + c] * factor

                    random.each("drop_lane", item, w.column(block, i), drop)
            b.product(
                "dv",
                (E, spec.block, L),
                lambda d, i: Gc[i * E + d],
                lambda i, c: (Dropped if random else S)[i * L + c],
                lambda d, c, value: SumV.__setitem__(d * L + c, value),
                lambda d, c: SumV[d * L + c],
                some_terms=reach,
            )

            def slope(i, c, value):
                if random:
                    value = value * Kept[i * L + c]
                found = S[i * L + c] * (value - of_query(Delta, i))
                if sloping:
                    found = found * Slopes[i * L + c]
                S[i * L + c] = found if modified is None or slope_of is not None else nothing

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
            part = item.row // spec.block * parts // w.size["block_rows"]
            first = (part * planes + item.plane) * block_cols * spec.block + block.column
            b.product(
                "dq",
                (spec.block, spec.block, wide),
                lambda i, j: S[i * L + j],
                lambda j, d: Kb[j * wide + d],
                lambda i, d, value: DQ.__setitem__((first + i, d), value),
                lambda i, d: DQ[first + i, d],
                some_rows=lambda _: w.reached(block),
            )
            with b.each("cleaned", 1):
                p.where(block.tile >= 0)
                own_keys("own_keys_again")
        with w.rows_of(item, "out") as (j, row):
            b.row("dk_row", D, lambda d: DK.__setitem__((row, d), cast(spec.dtype, SumK[d * L + j] * Scale[0])))
            b.row("dv_row", E, lambda d: DV.__setitem__((row, d), cast(spec.dtype, SumV[d * L + j])))
    return p.finish()
