"""The gradients of attention over the blocks of a mask as of `..backward`, with its products on tile registers.

Queries, keys, values and gradients are taken as they lie where they stand on the left; keys and values are transposed
once for each block of keys, for the scores and for dO V^T. Weights and gradients of scores are rounded to bfloat16, in
rows of queries for dQ and in rows of keys for dV and dK; sums of them, and all else, are float32.
"""

from __future__ import annotations

from .....compiler.language.expr import Expr, cast, exp, minimum, number
from .....compiler.language.program import Program
from ..gradients import Gradients
from ..softmax import BRIEF
from ..spec import MaskedSpec
from .products import InPairs, TileProducts, Workspace, flat


def backward_parts(spec: MaskedSpec) -> dict[str, int]:
    """Numbers of bfloat16 in the parts of the workspace that each task has for itself."""
    block, line, width, value_width = spec.block, spec.line, spec.padded(spec.width), spec.padded(spec.value_width)
    return {
        "keys": line * width,
        "key_lanes": line * width,
        "key_pairs": line * width,
        "value_lanes": line * value_width,
        "queries": block * width,
        "grads": block * value_width,
        "rows": max(block * line, line * value_width),
        "pairs": block * max(line, width, value_width),
    }


def tile_backward(spec: MaskedSpec) -> Program:
    """The program. Parameters: those of `Gradients`, and that of `Workspace`."""
    own = Gradients("masked_tile_backward", spec)
    w, modified, Scale = own.items, own.modified, own.Scale
    p, b, acc, L = w.p, w.blocks, spec.accumulator, spec.line
    D, E = spec.padded(spec.width), spec.padded(spec.value_width)
    work = Workspace(w, backward_parts(spec))
    tiles = TileProducts(p, b)
    nothing = number(0.0, acc)
    with w.items() as item:
        keys, key_lanes, key_pairs, value_lanes, queries, grads, rows, pairs = work.parts(item)
        S, DS = b.local("Scores", spec.block * L), b.local("DScores", spec.block * L)
        SumK, SumV = b.local("SumK", L * D), b.local("SumV", L * E)
        for part, length, width, wide in (
            (keys, L, spec.width, D),
            (queries, spec.block, spec.width, D),
            (rows, L, spec.value_width, E),
            (grads, spec.block, spec.value_width, E),
        ):
            tiles.pad(part, length, width, wide)
        with b.each("copy_key", L) as j:
            at = minimum(item.row + j, item.rows - 1)
            b.row("copy_k", spec.width, lambda d: keys.__setitem__(j * D + d, own.K[w.at("K", item, at) + d]))
            b.row("copy_v", spec.value_width, lambda d: rows.__setitem__(j * E + d, own.V[w.at("V", item, at) + d]))
        tiles.transpose(keys, key_lanes, L, D // 2)
        tiles.transpose(rows, value_lanes, L, E // 2)
        w.clear_missing(keys, D, item)

        def own_keys():
            tiles.interleave(lambda j, d: keys[j * D + d], key_pairs, L, D)

        own_keys()
        own.begin(item)
        b.vectors("no_dk", L * D, lambda c: SumK.__setitem__(c, 0.0))
        b.vectors("no_dv", L * E, lambda c: SumV.__setitem__(c, 0.0))
        with w.blocks_of(item) as block:
            w.copy("Q", own.Q, queries, spec.width, item, block, D)
            w.copy("G", own.G, grads, spec.value_width, item, block, E)
            w.clean(queries, D, item, block)
            w.clean(grads, E, item, block)

            def each(name, write):
                with b.each("query", spec.block) as i, b.each("vector", L // spec.lanes) as v, b.lanes(name) as c:
                    write(i, v * spec.lanes + c)

            def by_keys(values, right, width, sums):
                """Add the product of transposed numbers of pairs, and of rows of queries."""
                tiles.interleave(lambda i, c: values[i * L + c], pairs, spec.block, L)
                tiles.transpose(pairs, rows, spec.block // 2, L)
                tiles.interleave(lambda i, d: right[i * width + d], pairs, spec.block, width)
                tiles.product(rows, pairs, (L, spec.block, width), flat(sums, width), True)

            tiles.product(queries, key_lanes, (spec.block, D, L), flat(S, L), False)
            if modified is not None:
                modified.prepare(item, block)
                own.change(S, item, block, Scale[0])

            def weigh(i: Expr, c: Expr, item=item, block=block) -> None:
                score = S[i * L + c] * Scale[0] if modified is None else S[i * L + c]
                S[i * L + c] = exp(score - own.of_query(own.Lse, item, block, i))

            each(BRIEF, weigh)
            w.hide(S, nothing, item, block)
            by_keys(own.drop(S, item, block), grads, E, SumV)
            tiles.product(grads, value_lanes, (spec.block, E, L), flat(DS, L), False)

            def slope(i: Expr, c: Expr, item=item, block=block) -> None:
                DS[i * L + c] = own.slope(S, DS[i * L + c], item, block, i, c, Scale[0])

            each("slope", slope)
            w.hide(DS, nothing, item, block)
            by_keys(DS, queries, D, SumK)
            w.clean_by(w.SomeRow, InPairs(key_pairs, D), D, block)
            tiles.round(DS, rows, spec.block, L)
            first = own.first(item, block)
            tiles.product(rows, key_pairs, (spec.block, L, D), (own.DQ, lambda i, d: (first + i, d)), True)
            with b.each("cleaned", 1):
                p.where(block.tile >= 0)
                own_keys()
        with w.rows_of(item, "out") as (j, row):
            b.row("dk_row", spec.width, lambda d: own.DK.__setitem__((row, d), cast(spec.dtype, SumK[j * D + d])))
            b.row("dv_row", spec.value_width, lambda d: own.DV.__setitem__((row, d), cast(spec.dtype, SumV[j * E + d])))
    return p.finish()
