"""Multiply tiles of bfloat16 numbers by Arm's instruction for matrices (``bfmmla``)."""

from __future__ import annotations

from .....deferred import tirx
from ....codegen import Target
from ....codegen.cpu.instructions import mmla
from ....codegen.nodes import blocks, nodes, sequence
from ....language.axes import StageIError
from ....language.program import walk_iterations
from ....position.function import PositionFunction
from ...sequence import Step, primitive
from .addresses import address, call, check_rows, rewrite
from .amx_tiles import amx_tiles, check_free, check_pairs, use_of


@primitive()
def mmla_tiles(stage2: PositionFunction, names: tuple[str, ...]) -> PositionFunction:
    """Make calls for squares of 8 x 8 sums of the loops that add products to the local buffers of these names.

        for m, n, k in grid(32, 32, 32):                            gsb_mmla_32(C[0, 0], C[1, 0], X[t, 0], X[t + 1, 0],
            C[m, n] += X[t + m, k] * W[b, k // 2, 2n + k % 2]  ->               W[b, 0, 0], W[b, 1, 0])
                                                                    gsb_mmla_32(C[0, 8], C[1, 8], ...); ...

    The buffers stay in memory: what begins and ends their sums stays as it is.

    Preconditions, refused with a StageIError: those of `amx_tiles` but for registers, which 8 x 8 sums have, and terms
    come in fours.
    """
    uses = [
        use for it in walk_iterations(stage2.program.iterations) if (use := use_of(it, names, "mmla_tiles")) is not None
    ]
    products = [use for use in uses if use.what == "product"]
    if not products:
        raise StageIError(f"mmla_tiles: no iteration adds products to {', '.join(names)}")
    for use in products:
        rows, columns, terms = use.extents
        where = f"mmla_tiles: iteration {use.iteration.name!r}"
        if terms % mmla.TERMS:
            raise StageIError(f"{where}: {terms} terms do not come in fours")

        def change(loop: tirx.For, rows: int = rows, columns: int = columns, terms: int = terms) -> tirx.Stmt:
            block = blocks(loop)[-1]
            (store,) = nodes(block.body, tirx.BufferStore)
            m, n, k = (v.var for v in block.iter_vars)
            sums, left, right = store.value.a, store.value.b.a.value, store.value.b.b.value
            check_rows(left, m, k, 1)
            check_pairs(right, k, n)
            check_free(left, n)
            check_free(right, m)
            found = []
            for i in range(0, rows, mmla.SIDE):
                for j in range(0, columns, mmla.SIDE):
                    operands = [
                        *(address(sums, {m: i + row, n: j}) for row in (0, 1)),
                        *(address(left, {m: i + row, k: 0}) for row in (0, 1)),
                        *(address(right, {n: j, k: 2 * row}) for row in (0, 1)),
                    ]
                    found.append(call(mmla.product_name(terms), *operands))
            return sequence(found)

        stage2 = rewrite(stage2, use.iteration, 2, change, where)
    return stage2


def tile_products(names: tuple[str, ...], target: Target) -> Step:
    """Return the step by which a processor that has an instruction for tiles multiplies those of these names."""
    return mmla_tiles(names) if target.has_arm_bf16 else amx_tiles(names)
