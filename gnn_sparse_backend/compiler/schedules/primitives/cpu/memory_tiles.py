"""Multiply tiles of bfloat16 numbers by calls that have sums in registers as long as a product lasts."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import tvm_ffi

from .....deferred import tirx, tvm
from ....codegen import Target
from ....codegen.cpu.instructions import dot_tiles, mmla
from ....codegen.nodes import blocks, int64, nodes, sequence, substitute
from ....language.axes import StageIError
from ....language.program import Iteration, walk_iterations
from ....position.function import PositionFunction
from ...sequence import Step, primitive
from .addresses import address, call, check_rows, rewrite
from .amx_tiles import Use, amx_tiles, check_free, check_pairs, use_of, without

CALLED = {"bfmmla": mmla, "vdpbf16ps": dot_tiles}
"""What has the functions that are called, by the instruction that they are made of."""
Place = Callable[["tirx.Var", "tirx.Var"], "tvm.ir.TensorLoad"]
"""What gives the element for a row and a column of a tile."""


@primitive()
def memory_tiles(stage2: PositionFunction, names: tuple[str, ...], instruction: str) -> PositionFunction:
    """Make calls of the loops that add products to the local buffers of these names, for 8 x 8 sums each (``bfmmla``),
    or for 8 x 32 or 16 x 16 (``vdpbf16ps``).

        for m, n, k in grid(32, 32, 32):                            gsb_mmla_8_8_32_0(C[0, 0], C[1, 0],
            C[m, n] += X[t + m, k] * W[b, k // 2, 2n + k % 2]  ->       X[t, 0], X[t + 1, 0], W[b, 0, 0], W[b, 1, 0])
                                                                    gsb_mmla_8_8_32_0(C[0, 8], C[1, 8], ...); ...

    The buffers stay in memory: what begins and ends their sums stays as it is. Where it stands right before and behind
    a product, and is zeros or a copy from where the sums end, they are added up there, and the buffer is gone.

    Preconditions, refused with a StageIError: those of `amx_tiles` but for registers; terms are a multiple of what an
    instruction takes of them.
    """
    called = CALLED[instruction]
    found = (use_of(it, names, "memory_tiles") for it in walk_iterations(stage2.program.iterations))
    uses = [use for use in found if use is not None]
    gone = []
    if not any(use.what == "product" for use in uses):
        raise StageIError(f"memory_tiles: no iteration adds products to {', '.join(names)}")
    for use in uses:
        if use.what != "product":
            continue
        terms = use.extents[2]
        where = f"memory_tiles: iteration {use.iteration.name!r}"
        if terms % called.TERMS:
            raise StageIError(f"{where}: {terms} terms are not a multiple of {called.TERMS}")
        stage2, begin, end = _around(stage2, uses, use)
        change = _calls(called, use, begin == "zero", end)
        stage2 = rewrite(stage2, use.iteration, 2, change, where)
        if end is not None:
            gone.append(use.buffer)
    return without(stage2, gone)


def _calls(called: ModuleType, use: Use, fresh: bool, end: Place | None) -> Callable[[tirx.For], tirx.Stmt]:
    """What makes calls of the loops of a product. fresh: sums begin with zeros. end: where they belong, unless it is
    the tile.
    """
    rows, columns, terms = use.extents
    # tiles are multiples of 16 x 16, as is what the last of the shapes divides
    down, across = next((r, c) for r, c in called.SHAPES if rows % r == columns % c == 0)
    name = called.product_name(down, across, terms, fresh)

    def change(loop: tirx.For) -> tirx.Stmt:
        block = blocks(loop)[-1]
        (store,) = nodes(block.body, tirx.BufferStore)
        m, n, k = (v.var for v in block.iter_vars)
        left, right = store.value.b.a.value, store.value.b.b.value
        sums = store.value.a if end is None else end(m, n)
        check_rows(sums, m, n, 1)
        check_rows(left, m, k, 1)
        check_pairs(right, k, n)
        check_free(left, n)
        check_free(right, m)
        found = []
        for i in range(0, rows, down):
            for j in range(0, columns, across):
                operands = [
                    *(address(sums, {m: i + row, n: j}) for row in (0, 1)),
                    *(address(left, {m: i + row, k: 0}) for row in (0, 1)),
                    *(address(right, {n: j, k: 2 * row}) for row in (0, 1)),
                ]
                found.append(call(name, *operands))
        return sequence(found)

    return change


def _around(stage2: PositionFunction, uses: list[Use], use: Use) -> tuple[PositionFunction, str, Place | None]:
    """The function without what begins and ends the sums of a product, how they begin, and where they belong; as it is,
    and None, where that is needed.
    """
    own = [each for each in uses if each.buffer == use.buffer]
    if [each.what for each in own] not in (["zero", "product", "drain"], ["fill", "product", "drain"]):
        return stage2, "", None
    names = [each.iteration.name for each in own]
    bodies = [_names(it.body) for it in walk_iterations(stage2.program.iterations)]
    if not any(names == body[at : at + 3] for body in bodies for at in range(len(body))):
        return stage2, "", None
    begin, _, end = own
    first, last = (_place(stage2, each) for each in (begin, end))
    m, n = (tirx.Var(name, "int64") for name in "mn")
    if begin.what == "fill" and not tvm_ffi.structural_equal(first(m, n), last(m, n)):
        return stage2, "", None
    for each in (begin, end):
        stage2 = rewrite(stage2, each.iteration, 1, lambda _: tirx.Evaluate(int64(0)), "")
    return stage2, begin.what, last


def _names(body: tuple[object, ...]) -> list[str]:
    return [each.name if isinstance(each, Iteration) else "" for each in body]


def _place(stage2: PositionFunction, use: Use) -> Place:
    """What gives, for a row and a column, the element that a tile is copied from or to."""
    block = next(each for each in blocks(stage2.function.body) if each.name_hint == use.iteration.name)
    (store,) = nodes(block.body, tirx.BufferStore)
    other = store.buffer[tuple(store.indices)] if use.what == "drain" else store.value
    own = [v.var for v in block.iter_vars]
    return lambda m, n: substitute(other, dict(zip(own, (m, n))))


def tile_products(names: tuple[str, ...], target: Target) -> Step:
    """Return the step by which a processor multiplies tiles of these names."""
    if target.has_amx_bf16:
        return amx_tiles(names)
    return memory_tiles(names, "bfmmla" if target.has_arm_bf16 else "vdpbf16ps")
