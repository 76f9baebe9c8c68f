"""Attention over the blocks of a mask as of `..forward`, with its products on tile registers.

Keys are taken as they lie for the scores, K Q^T, queries are transposed once for each block of them, and values once
for each block of keys, for V^T P. Weights are rounded to bfloat16; sums of them, and all else, are float32.
"""

from __future__ import annotations

from .....compiler.language.expr import as_expr, minimum, number
from .....compiler.language.program import Program
from ..items import Items
from ..modified import Modified
from ..random import Random
from ..softmax import OnlineSoftmax
from ..spec import MaskedSpec
from .products import TileProducts, Workspace, flat


def forward_parts(spec: MaskedSpec) -> dict[str, int]:
    """Numbers of bfloat16 in the parts of the workspace that each task has for itself."""
    line, width, value_width = spec.line, spec.padded(spec.width), spec.padded(spec.value_width)
    return {
        "key_rows": max(spec.block, line) * width,
        "value_rows": max(spec.block, line) * value_width,
        "pairs": max(spec.block, line) * max(value_width, line),
        "queries": line * width,
        "values": spec.block * value_width,
    }


def tile_forward(spec: MaskedSpec) -> Program:
    """The program. Parameters: those of `forward`, and that of `Workspace`."""
    w = Items("masked_tile_forward", spec)
    p, b, acc, L = w.p, w.blocks, spec.accumulator, spec.line
    D, E = spec.padded(spec.width), spec.padded(spec.value_width)
    Q, K, V = w.operand("Q"), w.operand("K"), w.operand("V")
    Scale = p.buffer("Scale", (b.axis(1),), acc)
    random = Random(w) if spec.dropout else None
    modified = None if spec.modifier is None else Modified(w, spec.modifier, "query", [spec.modifier.node])
    Out, Lse = w.result("Out", spec.dtype, spec.value_width), w.result("Lse", acc, 1)
    work = Workspace(w, forward_parts(spec))
    tiles = TileProducts(p, b)
    with w.items() as item:
        key_rows, value_rows, pairs, queries, values = work.parts(item)
        Acc, S = b.local("Acc", E * L), b.local("Scores", spec.block * L)
        softmax = OnlineSoftmax(w)
        tiles.pad(key_rows, spec.block, spec.width, D)
        tiles.pad(value_rows, spec.block, spec.value_width, E)
        with b.each("copy_query", L) as ii:
            at = w.at("Q", item, minimum(item.row + ii, item.rows - 1))
            b.row("copy_query_row", spec.width, lambda d: key_rows.__setitem__(ii * D + d, Q[at + d]))
        tiles.transpose(key_rows, queries, L, D // 2)
        softmax.begin()
        b.vectors("no_value", E * L, lambda c: Acc.__setitem__(c, 0.0))
        if random:
            random.of_lanes(item, keys=False)
        if modified is not None:
            modified.begin(item)
        with w.blocks_of(item) as block:
            w.copy("K", K, key_rows, spec.width, item, block, D)
            tiles.product(key_rows, queries, (spec.block, D, L), flat(S, L), False)
            low = number(float("-inf"), acc)
            if modified is None:
                partly = None if spec.padding else lambda: block.tile >= 0
                softmax.weigh_scaled(S, Scale[0], lambda: w.hide(S, low, item, block), partly)
            else:
                b.vectors("scale", spec.block * L, lambda c: S.__setitem__(c, S[c] * Scale[0]))
                modified.prepare(item, block)
                modified.change(S, item, block)
                w.hide(S, low, item, block)
                softmax.weigh(S, lambda _: (as_expr(0), as_expr(spec.block)))  # all keys of a block are multiplied
            if random:
                random.drop(S, item, block)
            w.copy("V", V, value_rows, spec.value_width, item, block, E)
            w.clean(value_rows, E, item, block)
            tiles.interleave(lambda j, d: value_rows[j * E + d], pairs, spec.block, E)
            tiles.transpose(pairs, values, spec.block // 2, E)
            tiles.interleave(lambda j, c: S[j * L + c], pairs, spec.block, L)
            with b.each("shrink", E) as d:
                b.vectors("shrink_row", L, lambda c: Acc.__setitem__(d * L + c, Acc[d * L + c] * softmax.shrink[c]))
            tiles.product(values, pairs, (E, spec.block, L), flat(Acc, L), True)
        softmax.finish()
        with b.each("divide", E) as d:
            b.vectors("divide_row", L, lambda c: Acc.__setitem__(d * L + c, Acc[d * L + c] * softmax.shrink[c]))
        tiles.interleave(lambda d, c: Acc[d * L + c], pairs, E, L)
        tiles.transpose(pairs, value_rows, E // 2, L)
        with w.rows_of(item, "out") as (ii, row):
            b.row("out_row", spec.value_width, lambda d: Out.__setitem__((row, d), value_rows[ii * E + d]))
            with b.each("lse", 1):
                Lse[row, 0] = softmax.logarithm(ii)
    return p.finish()
