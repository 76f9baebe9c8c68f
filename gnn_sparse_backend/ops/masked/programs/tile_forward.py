"""Attention over the blocks of a mask as of `forward`, with its products on tile registers.

The left factor of a product lies in rows, the right one in pairs of rows. So keys are taken as they lie for the scores,
K Q^T, queries are transposed once for each block of them, and values once for each block of keys, for V^T P. Weights
are rounded to bfloat16; sums of them, and all else, are float32.
"""

from __future__ import annotations

from collections.abc import Callable

from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, ExprLike, as_expr, cast, minimum, number
from ....compiler.language.program import Program
from .items import Items
from .modified import Modified
from .random import Random
from .softmax import OnlineSoftmax
from .spec import SIDE, MaskedSpec

TILES = "Tile"
"""What the names of buffers in tile registers begin with."""
INTERLEAVED, TRANSPOSED = "interleave", "transpose"
"""What the names of iterations begin with that put rows in pairs, and that transpose pairs."""


def workspace(spec: MaskedSpec) -> int:
    """Numbers of bfloat16 that each task has for itself."""
    return sum(_parts(spec).values())


def _parts(spec: MaskedSpec) -> dict[str, int]:
    line, width, value_width = spec.line, spec.width, spec.value_width
    return {
        "rows": max(spec.block, line) * max(width, value_width),
        "pairs": max(spec.block, line) * max(value_width, line),
        "queries": line * width,
        "values": spec.block * value_width,
    }


class _Part:
    """A part of the workspace of a task, as a buffer of one dimension."""

    def __init__(self, buffer: BufferHandle, task: Expr, first: int) -> None:
        self.buffer, self.task, self.first = buffer, task, first
        self.value = buffer.value

    def __getitem__(self, at: ExprLike) -> Expr:
        return self.buffer[self.task, at + self.first]

    def __setitem__(self, at: ExprLike, value: ExprLike) -> None:
        self.buffer[self.task, at + self.first] = value


class TileProducts:
    """Writes products on tile registers, and what brings operands in order for them."""

    def __init__(self, p: ProgramBuilder) -> None:
        self.p, self.count = p, 0

    def _axes(self, *lengths: int) -> list:
        self.count += 1
        return [self.p.dense_fixed(f"X{self.count}_{n}", length) for n, length in enumerate(lengths)]

    def _names(self, count: int) -> list[str]:
        return [f"x{self.count}_{n}" for n in range(count)]

    def interleave(self, source: Callable[[Expr, Expr], Expr], target: _Part, rows: int, width: int) -> None:
        """target[row / 2, 2 column + row % 2] = source(row, column), rounded."""
        axes = self._axes(rows // 2, width)
        with self.p.iterate(f"{INTERLEAVED}{self.count}", axes, "SS", self._names(2)) as (h, v):
            for q in (0, 1):
                target[h * (2 * width) + (2 * v + q)] = cast("bfloat16", source(2 * h + q, v))

    def transpose(self, source: _Part, target: _Part, rows: int, pairs: int) -> None:
        """target[pair, row] = source[row, pair]: pairs of numbers change rows and columns."""
        axes = self._axes(rows, pairs, 2)
        with self.p.iterate(f"{TRANSPOSED}{self.count}", axes, "SSS", self._names(3)) as (i, j, q):
            target[j * (2 * rows) + (2 * i + q)] = source[i * (2 * pairs) + (2 * j + q)]

    def product(
        self,
        left: _Part,
        right: _Part,
        shape: tuple[int, int, int],
        to: BufferHandle,
        onto: bool,
        each: Callable[[str, int], object],
    ) -> None:
        """to[row, lane] = sum over terms of left[row, term] right[term / 2, 2 lane + term % 2], added where ``onto``.

        each(name, length): what writes a loop.
        """
        rows, terms, lanes = shape
        with each("tile_down", rows // SIDE) as down, each("tile_across", lanes // SIDE) as across:
            self.count += 1
            own = self.count
            row, lane = [self.p.dense_fixed(f"Y{own}_{n}", SIDE) for n in (0, 1)]
            term = self.p.dense_fixed(f"Y{own}_2", terms)
            tile = self.p.local(f"{TILES}{own}", (row, lane), "float32")

            def at(m: Expr, n: Expr) -> Expr:
                return (down * SIDE + m) * lanes + (across * SIDE + n)

            def names(which: str) -> list[str]:
                return [f"{which}{own}_{n}" for n in range(3)]

            with self.p.iterate(f"tile_start{own}", (row, lane), "SS", names("s")[:2]) as (m, n):
                tile[m, n] = to[at(m, n)] if onto else 0.0
            with self.p.iterate(f"tile_terms{own}", (row, lane, term), "SSR", names("t")) as (m, n, k):
                a = left[(down * SIDE + m) * terms + k]
                b = right[k // 2 * (2 * lanes) + (across * SIDE * 2 + (2 * n + k % 2))]
                tile[m, n] = tile[m, n] + cast("float32", a) * cast("float32", b)
            with self.p.iterate(f"tile_end{own}", (row, lane), "SS", names("e")[:2]) as (m, n):
                to[at(m, n)] = tile[m, n]


def tile_forward(spec: MaskedSpec) -> Program:
    """The program. Parameters: those of `forward`, and Work, (tasks, `workspace`)."""
    w = Items("masked_tile_forward", spec)
    p, b, acc, L, D, E = w.p, w.blocks, spec.accumulator, spec.line, spec.width, spec.value_width
    Q, K, V = w.operand("Q"), w.operand("K"), w.operand("V")
    Scale = p.buffer("Scale", (b.axis(1),), acc)
    random = Random(w) if spec.dropout else None
    modified = None if spec.modifier is None else Modified(w, spec.modifier, "query", [spec.modifier.node])
    Out, Lse = w.result("Out", spec.dtype, E), w.result("Lse", acc, 1)
    Work = p.buffer("Work", (w.T, b.axis(workspace(spec))), spec.dtype)
    tiles = TileProducts(p)
    with w.items() as item:
        parts, first = {}, 0
        for name, length in _parts(spec).items():
            parts[name] = _Part(Work, item.task, first)
            first += length
        rows, pairs, queries, values = parts.values()
        Acc, S = b.local("Acc", E * L), b.local("Scores", spec.block * L)
        softmax = OnlineSoftmax(w)
        with b.each("copy_query", L) as ii:
            at = w.at("Q", item, minimum(item.row + ii, item.rows - 1))
            b.row("copy_query_row", D, lambda d: rows.__setitem__(ii * D + d, Q[at + d]))
        tiles.transpose(rows, queries, L, D // 2)
        softmax.begin()
        b.vectors("no_value", E * L, lambda c: Acc.__setitem__(c, 0.0))
        if random:
            random.of_lanes(item, keys=False)
        if modified is not None:
            modified.begin(item)
        with w.blocks_of(item) as block:
            w.copy("K", K, rows, D, item, block)
            tiles.product(rows, queries, (spec.block, D, L), S, False, b.each)
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
            w.copy("V", V, rows, E, item, block)
            w.clean(rows, E, item, block)
            tiles.interleave(lambda j, d: rows[j * E + d], pairs, spec.block, E)
            tiles.transpose(pairs, values, spec.block // 2, E)
            tiles.interleave(lambda j, c: S[j * L + c], pairs, spec.block, L)
            with b.each("shrink", E) as d:
                b.vectors("shrink_row", L, lambda c: Acc.__setitem__(d * L + c, Acc[d * L + c] * softmax.shrink[c]))
            tiles.product(values, pairs, (E, spec.block, L), Acc, True, b.each)
        softmax.finish()
        with b.each("divide", E) as d:
            b.vectors("divide_row", L, lambda c: Acc.__setitem__(d * L + c, Acc[d * L + c] * softmax.shrink[c]))
        tiles.interleave(lambda d, c: Acc[d * L + c], pairs, E, L)
        tiles.transpose(pairs, rows, E // 2, L)
        with w.rows_of(item, "out") as (ii, row):
            b.row("out_row", E, lambda d: Out.__setitem__((row, d), rows[ii * E + d]))
            with b.each("lse", 1):
                Lse[row, 0] = softmax.logarithm(ii)
    return p.finish()
