"""Multiply fragments on Tensor Cores."""

from __future__ import annotations

from .....deferred import cuda_op, tirx, tvm
from ....codegen.nodes import blocks, int64, nodes, substitute
from ....language.axes import StageIError
from ....language.expr import Binary, Cast, Load
from ....language.program import Buffer, Iteration, Store
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.loops import bound_loop, rewrite_loop

LANES = 32
# type of the fragments: (shape of the instruction, its name of the type)
SHAPES = {"float16": ("m16n8k16", "fp16"), "bfloat16": ("m16n8k16", "bf16"), "float32": ("m16n8k8", "tf32")}


@iteration_primitive(on_gpu=True, instructions=True)
def multiply_fragments(stage2: PositionFunction, iteration: Iteration, instructions: bool = True) -> PositionFunction:
    """Put one ``mma.sync`` in the place of the loops of `iteration`, which say what it computes, element by element.

    Without ``instructions`` the loops stay.

        for m, n, k in grid(16, 8, 16):                          for lane in thread_binding(32, "threadIdx.x"):
            with block("mma"): CF[...] += AF[...] * BF[...]  ->      mma.sync.m16n8k16(CF[lane], AF[lane], BF[lane])

    The fragments are local buffers whose first dimension is the lane; a lane's registers are those that the indices
    give for m = n = k = 0. Preconditions, refused with a StageIError: three axes of the extents of an instruction,
    kinds "SSR", and one store of the form C = C + A * B to a float32 fragment of fragments of one type. That the
    indices are those of the instruction is the program's to say (`programs.grouped_tiles`).
    """
    where = f"multiply_fragments: iteration {iteration.name!r}"
    left, right, total = _fragments(iteration, where)
    shape, kind = SHAPES.get(left.dtype, ("", ""))
    extents = tuple(a.length for a in iteration.axes)
    if not shape or extents != tuple(map(int, shape.replace("m", "").replace("n", " ").replace("k", " ").split())):
        raise StageIError(f"{where}: no instruction multiplies {left.dtype} in tiles of {extents}")
    if not instructions:
        return stage2

    def change(loop: tirx.For) -> tirx.Stmt:
        block = blocks(loop)[-1]
        lane = tirx.Var("lane", "int64")
        zero = {v.var: int64(0) for v in block.iter_vars}

        def address(buffer: Buffer) -> tirx.Expr:
            found = next(load for load in nodes(block.body, tvm.ir.TensorLoad) if load.source.name == buffer.name)
            load = substitute(found, zero)
            return tirx.address_of(load.source[(lane, *load.indices[1:])])

        fragments = (address(left), 0, address(right), 0, address(total), 0)
        call = cuda_op.ptx_legacy_mma(shape, "row", "col", kind, kind, "fp32", *fragments, False)
        return bound_loop(lane, int64(LANES), tirx.Evaluate(call), "threadIdx.x")

    return rewrite_loop(stage2, iteration.name, 2, change)


def _fragments(iteration: Iteration, where: str) -> tuple[Buffer, Buffer, Buffer]:
    plain = len(iteration.body) == 1 and not iteration.init and iteration.where is None
    if len(iteration.axes) != 3 or iteration.kinds != "SSR" or not plain:
        raise StageIError(f"{where} is not one store over two spatial axes and a reduction")
    store = iteration.body[0]
    product = store.added if isinstance(store, Store) else None
    if not isinstance(store, Store) or product is None:
        raise StageIError(f"{where} does not add to what it stores to")
    factors = [product.a, product.b] if isinstance(product, Binary) and product.op == "*" else []
    factors = [f.value if isinstance(f, Cast) else f for f in factors]
    buffers = [f.buffer for f in factors if isinstance(f, Load)]
    if len(buffers) != 2 or buffers[0].dtype != buffers[1].dtype or store.buffer.dtype != "float32":
        raise StageIError(f"{where} does not add the product of two fragments of one type to one of float32")
    if any(b.scope != "local" or not b.axes or b.axes[0].length != LANES for b in (*buffers, store.buffer)):
        raise StageIError(f"{where} works on more than local buffers with an entry for each of {LANES} lanes")
    return buffers[0], buffers[1], store.buffer
