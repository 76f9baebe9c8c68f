"""Multiply tiles of bfloat16 numbers, with float32 sums in tile registers (``tdpbf16ps``)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import gcd

import tvm_ffi

from .....deferred import s_tir, sym, tirx, tvm
from .....frozen import dataclass
from ....codegen.cpu.instructions import amx
from ....codegen.nodes import blocks, int64, nodes, sequence, substitute, with_parts
from ....language.axes import StageIError
from ....language.expr import Binary, Cast, Const, Load
from ....language.program import Iteration, Store, loads_in, walk_iterations
from ....position.function import PositionFunction
from ...sequence import primitive
from ..shared.loops import rewrite_block
from .addresses import NotSo, address, call, check_rows, rewrite


@primitive()
def amx_tiles(stage2: PositionFunction, names: tuple[str, ...]) -> PositionFunction:
    """Keep the local buffers of these names in tile registers, and put tile instructions in the place of the loops over
    them.

        for m, n in grid(32, 32): C[m, n] = 0                       gsb_amx_zero_0(); ... gsb_amx_zero_3()
        for b in range(...):                                        for b in range(...):
            for m, n, k in grid(32, 32, 32):                            gsb_amx_load_4(X[t, ...], X[t + 1, ...])
                C[m, n] += X[t + m, k] * W[b, k // 2, 2n + k % 2]  ->   ...
                                                                        gsb_amx_product_0_4_6(); ...
        for m, n in grid(32, 32): D[m, n] = C[m, n]                 gsb_amx_store_0(D[0, 0], D[1, 0]); ...

    Each element of the iteration of the outermost level, which a thread has as a whole, sets up the registers and gives
    them back.

    Preconditions, refused with a StageIError: the buffers are of float32, (m, n) with multiples of 16, of which the
    registers hold one with its operands; every iteration that has one of them is over its axes and one of zeros, a copy
    from or to another buffer, or a sum of products over a third axis, whose factors are converted from bfloat16; each
    buffer is copied from before the next begins. The left factor lies in rows, whose terms are neighbours, the right
    one in rows of two terms, the numbers of the second behind those of the first, column by column.
    """
    uses = [
        use for it in walk_iterations(stage2.program.iterations) if (use := use_of(it, names, "amx_tiles")) is not None
    ]
    _check_lives(uses, names)
    products = [use for use in uses if use.what == "product"]
    if not products:
        raise StageIError(f"amx_tiles: no iteration adds products to {', '.join(names)}")
    common = gcd(*(use.extents[2] for use in products))
    terms = max((k for k in range(2, amx.TERMS + 1, 2) if common % k == 0), default=0)
    if not terms:
        raise StageIError(f"amx_tiles: products of {common} terms are not in pairs")
    down, across = (max(use.tiles[side] for use in products) for side in (0, 1))
    sums = max(use.tiles[0] * use.tiles[1] for use in uses)
    if sums + down + across > amx.REGISTERS:
        raise StageIError(f"amx_tiles: {sums} tiles of sums with {down} and {across} of operands want more registers")
    registers = _Registers(sums, down, across, terms)
    for use in uses:

        def change(loop: tirx.For, use: Use = use) -> tirx.Stmt:
            block = blocks(loop)[-1]
            (store,) = nodes(block.body, tirx.BufferStore)
            return sequence(registers.instructions(use, store, [v.var for v in block.iter_vars]))

        where = f"amx_tiles: iteration {use.iteration.name!r}"
        stage2 = rewrite(stage2, use.iteration, len(use.extents) - 1, change, where)
    for it in stage2.program.iterations:
        if any(use.iteration in list(walk_iterations((it,))) for use in uses):
            stage2 = rewrite_block(stage2, it.name, registers.around)
    return without(stage2, names)


@dataclass(frozen=True)
class Use:
    """An iteration that has one of the buffers, and what it does with it: zero, fill, product or drain."""

    iteration: Iteration
    buffer: str
    what: str
    extents: tuple[int, ...]

    @property
    def tiles(self) -> tuple[int, int]:
        return self.extents[0] // amx.ROWS, self.extents[1] // amx.LANES


def use_of(it: Iteration, names: tuple[str, ...], primitive: str) -> Use | None:
    """What an iteration does with one of the buffers; None where it has none. Raises StageIError of a
    primitive for what tiles are not used for.
    """
    stores = [store for store in (*it.init, *it.body) if isinstance(store, Store)]
    mentioned = [store for store in stores if _mentioned(store, names)]
    if not mentioned:
        return None
    where = f"{primitive}: iteration {it.name!r}"
    store = mentioned[0]
    if len(it.body) != 1 or it.init or it.where is not None or it.locals or it.fused:
        raise StageIError(f"{where} does more than one thing with a tile")
    if store.buffer.name in names:
        tile, indices = store.buffer, store.indices
        what = "zero" if isinstance(store.value, Const) and store.value.value == 0 else "fill"
        if store.added is not None:
            what = "product"
            if not isinstance(store.added, Binary) or store.added.op != "*":
                raise StageIError(f"{where} adds no product")
            if not all(_is_narrow(factor) for factor in (store.added.a, store.added.b)):
                raise StageIError(f"{where} does not multiply numbers converted from bfloat16")
        elif what == "fill" and not _is_float32(store.value):
            raise StageIError(f"{where} stores more to {tile.name!r} than zeros or float32 numbers of another buffer")
    elif isinstance(store.value, Load) and store.buffer.dtype == "float32":
        tile, indices, what = store.value.buffer, store.value.indices, "drain"
    else:
        raise StageIError(f"{where} computes with a tile; copy it to another buffer of float32 first")
    extents = tuple(axis.length for axis in it.axes if isinstance(axis.length, int))
    if not len(it.axes) == len(extents) == (3 if what == "product" else 2):
        raise StageIError(f"{where} is not over the rows and columns of {tile.name!r}, and terms of a product")
    kinds = "SSR" if what == "product" else "SS"
    if it.kinds != kinds or tuple(indices) != tuple(it.variables[:2]):
        raise StageIError(f"{where} does not visit {tile.name!r} element by element")
    shape = tuple(axis.length for axis in tile.axes)
    if tile.dtype != "float32" or shape != extents[:2] or extents[0] % amx.ROWS or extents[1] % amx.LANES:
        raise StageIError(f"{where}: {tile.name!r} of {tile.dtype} {shape} is not in whole tiles")
    return Use(it, tile.name, what, extents)


def _mentioned(store: Store, names: tuple[str, ...]) -> bool:
    return store.buffer.name in names or any(load.buffer.name in names for load in loads_in((store,)))


def _is_narrow(factor: object) -> bool:
    return isinstance(factor, Cast) and isinstance(factor.value, Load) and factor.value.buffer.dtype == "bfloat16"


def _is_float32(value: object) -> bool:
    return isinstance(value, Load) and value.buffer.dtype == "float32"


def _check_lives(uses: list[Use], names: tuple[str, ...]) -> None:
    """Each buffer begins with zeros or a copy, and is copied from before another begins: they share registers."""
    live, copied = "", True
    for use in uses:
        if use.what in ("zero", "fill"):
            if not copied:
                raise StageIError(f"amx_tiles: {use.buffer!r} begins before {live!r} is copied from")
            live, copied = use.buffer, False
        elif use.buffer != live:
            raise StageIError(f"amx_tiles: {use.buffer!r} has not begun where iteration {use.iteration.name!r} has it")
        elif use.what == "drain":
            copied = True
    missing = set(names) - {use.buffer for use in uses}
    if missing:
        raise StageIError(f"amx_tiles: no iteration has {', '.join(sorted(missing))}")


@dataclass(frozen=True)
class _Registers:
    """Numbers of registers: first those of the sums, then of the left operands, then of the right ones."""

    sums: int
    left: int
    right: int
    terms: int

    def around(self, realize: s_tir.SBlockRealize) -> tirx.Stmt:
        block = realize.block
        begin = call(amx.begin_name(self.sums, self.left, self.right, self.terms))
        body = tirx.SeqStmt([begin, block.body, call(amx.end_name())])
        return s_tir.SBlockRealize(realize.iter_values, realize.predicate, with_parts(block, body=body))

    def instructions(self, use: Use, store: tirx.BufferStore, at: list[tirx.Var]) -> list[tirx.Stmt]:
        (down, across), (m, n, *_) = use.tiles, at
        grid = [(i, j, i * across + j) for i in range(down) for j in range(across)]
        if use.what == "zero":
            return [call(amx.zero_name(number)) for _, _, number in grid]
        if use.what == "product":
            return self._product(use, store, at)
        name = amx.load_name if use.what == "fill" else amx.store_name
        other = store.value if use.what == "fill" else store.buffer[tuple(store.indices)]
        check_rows(other, m, n, 1)
        found = []
        for i, j, number in grid:
            rows = (address(other, {m: amx.ROWS * i + row, n: amx.LANES * j}) for row in (0, 1))
            found.append(call(name(number), *rows))
        return found

    def _product(self, use: Use, store: tirx.BufferStore, at: list[tirx.Var]) -> list[tirx.Stmt]:
        (down, across), (m, n, k) = use.tiles, at
        left, right = store.value.b.a.value, store.value.b.b.value
        check_rows(left, m, k, 1)
        check_pairs(right, k, n)
        check_free(left, n)
        check_free(right, m)
        found = []
        for first in range(0, use.extents[2], self.terms):
            for j in range(across):
                rows = (address(right, {n: amx.LANES * j, k: first + 2 * row}) for row in (0, 1))
                found.append(call(amx.load_name(self.sums + self.left + j), *rows))
            for i in range(down):
                rows = (address(left, {m: amx.ROWS * i + row, k: first}) for row in (0, 1))
                found.append(call(amx.load_name(self.sums + i), *rows))
                for j in range(across):
                    operands = self.sums + i, self.sums + self.left + j
                    found.append(call(amx.product_name(i * across + j, *operands)))
        return found


def check_pairs(load: tvm.ir.TensorLoad, term: tirx.Var, column: tirx.Var) -> None:
    """Raise NotSo unless pairs of terms are rows, with two numbers for each column side by side."""
    row, second = tirx.Var("row", "int64"), tirx.Var("second", "int64")
    analyzer = sym.Analyzer()
    analyzer.bind(second, tvm.ir.Range.from_min_extent(int64(0), int64(2)))
    pairs = {term: row * int64(2) + second}
    indices = tuple(analyzer.simplify(substitute(index, pairs)) for index in load.indices)
    check_rows(load.source[indices], row, column, 2)
    check_rows(load.source[indices], row, second, 1)


def check_free(load: tvm.ir.TensorLoad, free: tirx.Var) -> None:
    """Raise NotSo where an operand depends on a variable."""
    if any(var.same_as(free) for index in load.indices for var in nodes(index, tirx.Var)):
        raise NotSo(f"{load} differs from one row, or column, of the sums to the next")


def without(stage2: PositionFunction, names: Collection[str]) -> PositionFunction:
    """The function without the buffers, which nothing loads from or stores to any more."""

    def visit(block: s_tir.SBlock, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        block = mutator.default_mutate(block)
        return with_parts(
            block,
            alloc_buffers=[buffer for buffer in block.alloc_buffers if buffer.name not in names],
            reads=[region for region in block.reads if region.source.name not in names],
            writes=[region for region in block.writes if region.source.name not in names],
        )

    axes = {name: own for name, own in stage2.axes.items() if name not in names}
    return replace(stage2.mutated((s_tir.SBlock, visit)), axes=axes)
