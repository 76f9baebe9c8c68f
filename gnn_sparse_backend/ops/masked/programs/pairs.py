"""Products on the blocks of a mask by themselves: numbers of the pairs from rows, and rows from numbers of the pairs.

    masked_dots   values[i, j] = <a[i], b[j]> for the pairs (i, j) of the mask
    masked_sums   out[i] = sum over the pairs (i, j) of values[i, j] b[j], or the same of the transposed mask

Values are block by block. Those of pairs that a block has, but the mask has not, are 0 and never read.
"""

from __future__ import annotations

from ....compiler.language.expr import as_expr, cast, minimum, number
from ....compiler.language.program import Program
from .items import Item, Items
from .spec import MaskedSpec


def masked_dots(spec: MaskedSpec) -> Program:
    """The program, on the transposed mask. Parameters: those of `Items`, then K, Q, value_rows, Order, Values.

    Rows are those of K, columns those of Q. Order has the block of the mask that each block of its transpose is.
    Values are (groups * num_blocks, block * block).
    """
    w = Items("masked_dots", spec)
    b, acc, L, D = w.blocks, spec.accumulator, spec.line, spec.width
    K, Q = w.operand("K"), w.operand("Q")
    Order, Values = _values(w)
    with w.items() as item:
        KT, Qc, S = b.local("KT", D * L), b.local("Qc", spec.block * D), b.local("Scores", spec.block * L)
        with b.each("pack_key", L) as j:
            at = minimum(item.row + j, item.rows - 1)
            b.row("pack_k", D, lambda d: KT.__setitem__(d * L + j, cast(acc, K[w.at("K", item, at) + d])))
        with w.blocks_of(item) as block:
            w.copy("Q", Q, Qc, D, item, block)
            b.product(
                "dots",
                (spec.block, D, L),
                lambda i, d: Qc[i * D + d],
                lambda d, c: KT[d * L + c],
                lambda i, c, value: S.__setitem__(i * L + c, value),
                some_rows=w.reach(block),
            )
            w.hide(S, number(0.0, acc), item, block)
            to = _place(w, item, Order[block.number])

            def store(i):
                def at(j):
                    Values[to, i * spec.block + j] = cast(spec.dtype, S[i * L + j])

                return at

            with b.each("store", spec.block) as i:
                b.row("store_row", spec.block, store(i))
    return w.p.finish()


def masked_sums(spec: MaskedSpec, transposed: bool) -> Program:
    """The program, on the mask or its transpose. Parameters: those of `Items`, then B, Order, Values, Out (batch *
    heads * rows, value_width).
    """
    w = Items("masked_sums_transposed" if transposed else "masked_sums", spec)
    b, acc, L, E = w.blocks, spec.accumulator, spec.line, spec.value_width
    wide = spec.padded(E)
    B = w.operand("B")
    Order, Values = _values(w)
    Out = w.result("Out", spec.dtype, E)
    with w.items() as item:
        A, Bc, Acc = b.local("A", spec.block * L), b.local("Bc", spec.block * wide), b.local("Acc", spec.block * wide)
        b.vectors("clear_a", spec.block * L, lambda c: A.__setitem__(c, 0.0))
        b.vectors("clear_b", spec.block * wide, lambda c: Bc.__setitem__(c, 0.0))
        b.vectors("clear", spec.block * wide, lambda c: Acc.__setitem__(c, 0.0))
        with w.blocks_of(item) as block:
            w.copy("B", B, Bc, E, item, block, wide)
            w.clean(Bc, wide, item, block)
            at = _place(w, item, Order[block.number])
            with b.each("values", spec.block) as first:

                def load(second):
                    i, j = (second, first) if transposed else (first, second)
                    A[j * L + i] = cast(acc, Values[at, first * spec.block + second])

                b.row("values_row", spec.block, load)
            w.hide(A, number(0.0, acc), item, block)
            b.product(
                "sums",
                (spec.block, spec.block, wide),
                lambda i, j: A[j * L + i],
                lambda j, d: Bc[j * wide + d],
                lambda i, d, value: Acc.__setitem__(i * wide + d, value),
                lambda i, d: Acc[i * wide + d],
                some_terms=lambda _: w.reached(block),
            )
        with w.rows_of(item, "out") as (i, row):
            b.row("out_row", E, lambda d: Out.__setitem__((row, d), cast(spec.dtype, Acc[i * wide + d])))
    return w.p.finish()


def _values(w: Items):
    """Order and Values, parameters."""
    p, b, spec = w.p, w.blocks, w.spec
    rows = p.size("value_rows")
    Order = p.buffer("Order", (w.Z,), "int32")
    return Order, p.buffer("Values", (p.dense_fixed("V_axis", rows), b.axis(spec.block**2)), spec.dtype)


def _place(w: Items, item: Item, block):
    """Which row of Values a block of the mask has for the item."""
    return item.plane // as_expr(w.size["mask_heads"]) * as_expr(w.size["num_blocks"]) + block
