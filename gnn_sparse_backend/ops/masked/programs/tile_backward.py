"""The gradients of attention as of `backward`, with their products on tile registers.

Rows of queries and of the gradient of the result are left factors as they lie, and transposed ones of what is summed up
over queries. Keys and values are turned into pairs once for each block of keys. Weights and slopes are rounded to
bfloat16 where they are factors; sums are float32.
"""

from __future__ import annotations

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, ExprLike, cast, exp, minimum, number
from ....compiler.language.program import Program
from .items import Items
from .random import Random
from .softmax import BRIEF
from .spec import MaskedSpec
from .tile_forward import TileProducts, _Part


def backward_workspace(spec: MaskedSpec) -> int:
    """Numbers of bfloat16 that each task has for itself."""
    return sum(_parts(spec).values())


def _parts(spec: MaskedSpec) -> dict[str, int]:
    L, D, E, B = spec.line, spec.width, spec.value_width, spec.block
    return {
        "queries": B * D,
        "grads": B * E,
        "pairs": max(B, L) * max(D, E, L),
        "queries_t": D * B,
        "grads_t": E * B,
        "own": L * max(D, E),
        "keys_t": D * L,
        "values_t": E * L,
        "keys": L * D,
        "kept_keys": L * D,
        "slopes": B * L,
    }


class _From:
    """A buffer of one dimension from an element on."""

    def __init__(self, buffer: BufferHandle, first: Expr) -> None:
        self.buffer, self.first = buffer, first

    def __getitem__(self, at: ExprLike) -> Expr:
        return self.buffer[self.first + at]

    def __setitem__(self, at: ExprLike, value: ExprLike) -> None:
        self.buffer[self.first + at] = value


def tile_backward(spec: MaskedSpec) -> Program:
    """The program, on the transposed mask. Parameters: those of `backward`, where DQ has one dimension, and Work,
    (tasks, `backward_workspace`).
    """
    w = Items("masked_tile_backward", spec, lanes_padded=True)
    p, b, acc, L, D, E, B = w.p, w.blocks, spec.accumulator, spec.line, spec.width, spec.value_width, spec.block
    Q, K, V, G = (w.operand(name) for name in "QKVG")
    parts, planes, block_cols, sums, queries = p.sizes("parts", "planes", "block_cols", "num_sums", "num_queries")
    Scale = p.buffer("Scale", (b.axis(1),), acc)
    random = Random(w) if spec.dropout else None
    Lse, Delta = (p.buffer(name, (p.dense_fixed(f"{name}_axis", queries),), acc) for name in ("Lse", "Delta"))
    DQ = p.buffer("DQ", (p.dense_fixed("DQ_axis", sums),), acc)
    DK, DV = w.result("DK", spec.dtype, D), w.result("DV", spec.dtype, E)
    Work = p.buffer("Work", (w.T, b.axis(backward_workspace(spec))), spec.dtype)
    tiles, nothing, narrow = TileProducts(p), number(0.0, acc), number(0.0, "float32")
    with w.items() as item:
        part, first = {}, 0
        for name, length in _parts(spec).items():
            part[name] = _Part(Work, item.task, first)
            first += length
        pairs, own = part["pairs"], part["own"]
        SumK, SumV = b.local("SumK", D * L), b.local("SumV", E * L)
        S, T = b.local("Scores", B * L), b.local("Slopes", B * L)
        for name, source, width, to in (("V", V, E, "values_t"), ("K", K, D, "keys_t")):
            with b.each(f"own_{name}", L) as j:
                at = w.at(name, item, minimum(item.row + j, item.rows - 1))
                b.row(f"own_{name}_row", width, lambda d: own.__setitem__(j * width + d, source[at + d]))
            tiles.transpose(own, part[to], L, width // 2)
        b.vectors("zero_keys", L * D, lambda c: part["keys"].__setitem__(c, cast(spec.dtype, narrow)))
        with b.each("keep_key", L) as j:
            p.where(w.row_is_there(item, j))
            b.row("keep_key_row", D, lambda d: part["keys"].__setitem__(j * D + d, own[j * D + d]))
        w.lanes_allowed(item)
        if random:
            Kept, Dropped = b.local("Kept", B * L), b.local("Dropped", B * L)
            random.of_lanes(item, keys=True)
        b.vectors("no_dk", D * L, lambda c: SumK.__setitem__(c, 0.0))
        b.vectors("no_dv", E * L, lambda c: SumV.__setitem__(c, 0.0))
        with w.blocks_of(item) as block:
            for name, source, width, rows in (("Q", Q, D, "queries"), ("G", G, E, "grads")):
                w.copy(name, source, part[rows], width, item, block)
                w.clean(part[rows], width, item, block)
                tiles.interleave(lambda i, d: part[rows][i * width + d], pairs, B, width)
                tiles.transpose(pairs, part[f"{rows}_t"], B // 2, width)

            def of_query(buffer, i):
                return buffer[item.plane * w.size["cols"] + w.column(block, i)]

            tiles.product(part["queries"], part["keys_t"], (B, D, L), S, False, b.each)
            with b.each("weights", B) as i, b.each("weights_vector", L // spec.lanes) as v, b.lanes(BRIEF) as c:
                at = i * L + (v * spec.lanes + c)
                S[at] = exp(S[at] * Scale[0] - of_query(Lse, i))
            w.hide(S, nothing, item, block)
            if random:
                with b.each("drop", B) as i:

                    def drop(c, factor):
                        Kept[i * L + c] = factor
                        Dropped[i * L + c] = S[i * L + c] * factor

                    random.each("drop_lane", item, w.column(block, i), drop)
            tiles.interleave(lambda i, c: (Dropped if random else S)[i * L + c], pairs, B, L)
            tiles.product(part["grads_t"], pairs, (E, B, L), SumV, True, b.each)
            tiles.product(part["grads"], part["values_t"], (B, E, L), T, False, b.each)
            with b.each("slope", B) as i:

                def slope(c):
                    value = T[i * L + c] * Kept[i * L + c] if random else T[i * L + c]
                    S[i * L + c] = S[i * L + c] * (value - of_query(Delta, i)) * Scale[0]

                b.vectors("slope_row", L, slope)
            w.hide(S, nothing, item, block)
            tiles.interleave(lambda i, c: S[i * L + c], pairs, B, L)
            tiles.product(part["queries_t"], pairs, (D, B, L), SumK, True, b.each)
            b.vectors("round", B * L, lambda c: part["slopes"].__setitem__(c, cast(spec.dtype, S[c])))
            b.vectors("own_keys", L * D, lambda c: own.__setitem__(c, part["keys"][c]))
            w.clean_by(w.SomeRow, own, D, block)
            tiles.interleave(lambda j, d: own[j * D + d], part["kept_keys"], L, D)
            share = item.row // B * parts // w.size["block_rows"]
            row = (share * planes + item.plane) * block_cols * B + block.column
            tiles.product(part["slopes"], part["kept_keys"], (B, L, D), _From(DQ, row * D), True, b.each)
        with w.rows_of(item, "out") as (j, row):
            b.row("dk_row", D, lambda d: DK.__setitem__((row, d), cast(spec.dtype, SumK[d * L + j])))
            b.row("dv_row", E, lambda d: DV.__setitem__((row, d), cast(spec.dtype, SumV[d * L + j])))
    return p.finish()
