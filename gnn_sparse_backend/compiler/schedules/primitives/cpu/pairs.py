"""Round rows to bfloat16, put them in pairs, and transpose pairs, in the lanes of vectors."""

from __future__ import annotations

from .....deferred import tirx
from ....codegen.cpu.instructions import pairs
from ....codegen.cpu.instructions.transpose import transpose_name
from ....codegen.nodes import blocks, nodes, sequence, substitute
from ....language.axes import StageIError
from ....language.expr import Cast, Expr, Load
from ....language.program import Iteration, Store
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from .addresses import NotSo, address, call, check_rows, rewrite


@iteration_primitive()
def interleave(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Make calls for 16 pairs of the loops of an iteration that puts two rows in one.

        for h, v in grid(rows, 32):                          for h in range(rows):
            W[h, 2 * v] = bfloat16(A[2 * h, v])         ->       gsb_pairs_of_float32(W[h, 0], A[2h, 0], A[2h + 1, 0])
            W[h, 2 * v + 1] = bfloat16(A[2 * h + 1, v])          gsb_pairs_of_float32(W[h, 32], A[2h, 16], ...)

    Preconditions, refused with a StageIError: the last axis is a spatial one of whole vectors of 16, there are two
    stores to one buffer of bfloat16, of numbers of bfloat16 or float32 that are neighbours along the last axis.
    """
    where = f"interleave: iteration {iteration.name!r}"
    stores = _plain_stores(iteration, where)
    types = {_source_type(store.value) for store in stores}
    if len(stores) != 2 or stores[0].buffer != stores[1].buffer or types not in ({"bfloat16"}, {"float32"}):
        raise StageIError(f"{where} is not two stores of bfloat16 or float32 numbers to one buffer")
    length = _in_vectors(iteration, where)
    (dtype,) = types

    def change(loop: tirx.For) -> tirx.Stmt:
        block = blocks(loop)[-1]
        column = block.iter_vars[-1].var
        own = nodes(block.body, tirx.BufferStore)
        sources = [store.value if dtype == "bfloat16" else store.value.value for store in own]
        targets = [store.buffer[tuple(store.indices)] for store in own]
        for load in sources:
            check_rows(load, None, column, 1)
        for load in targets:
            check_rows(load, None, column, 2)
        found = []
        for first in range(0, length, pairs.LANES):
            at = {column: first}
            found.append(
                call(pairs.interleave_name(dtype), address(targets[0], at), *(address(each, at) for each in sources))
            )
        return _inside(loop, sequence(found))

    return rewrite(stage2, iteration, 0, change, where)


@iteration_primitive()
def round_rows(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Make calls for 16 numbers of the loops of an iteration that rounds rows to bfloat16.

        for i, j in grid(rows, 32):                      for i in range(rows):
            W[i, j] = bfloat16(A[i, j])          ->          gsb_pairs_rounded(W[i, 0], A[i, 0])
                                                             gsb_pairs_rounded(W[i, 16], A[i, 16])

    Preconditions, refused with a StageIError: the last axis is a spatial one of whole vectors of 16, and there is one
    store of bfloat16, of numbers of float32 that are neighbours along it.
    """
    where = f"round_rows: iteration {iteration.name!r}"
    stores = _plain_stores(iteration, where)
    if len(stores) != 1 or _source_type(stores[0].value) != "float32":
        raise StageIError(f"{where} is not one store of float32 numbers to a buffer of bfloat16")
    length = _in_vectors(iteration, where)

    def change(loop: tirx.For) -> tirx.Stmt:
        block = blocks(loop)[-1]
        column = block.iter_vars[-1].var
        (store,) = nodes(block.body, tirx.BufferStore)
        source, target = store.value.value, store.buffer[tuple(store.indices)]
        for load in (source, target):
            check_rows(load, None, column, 1)
        found = []
        for first in range(0, length, pairs.LANES):
            found.append(call(pairs.round_name(), *(address(each, {column: first}) for each in (target, source))))
        return _inside(loop, sequence(found))

    return rewrite(stage2, iteration, 0, change, where)


@iteration_primitive()
def transpose_pairs(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Make calls for 16 x 16 pairs of the loops of an iteration that transposes them.

        for i, j, q in grid(32, 32, 2):                 gsb_transposed_16(B[0, 0], B[1, 0], A[0, 0], A[1, 0])
            B[j, 2 * i + q] = A[i, 2 * j + q]      ->   gsb_transposed_16(B[16, 0], B[17, 0], A[0, 32], A[1, 32])
                                                        ...

    Preconditions, refused with a StageIError: the last axes are spatial, two of multiples of 16 and one of 2, there is
    one store of a number of bfloat16, which lies so.
    """
    where = f"transpose_pairs: iteration {iteration.name!r}"
    stores = _plain_stores(iteration, where)
    lengths = [axis.length for axis in iteration.axes if isinstance(axis.length, int)]
    down, across, two = lengths if len(lengths) == len(iteration.axes) == 3 else (1, 1, 1)
    if iteration.kinds != "SSS" or two != 2 or down % pairs.LANES or across % pairs.LANES:
        raise StageIError(f"{where} is not over two axes of multiples of {pairs.LANES} and one of 2")
    if len(stores) != 1 or not isinstance(stores[0].value, Load) or stores[0].value.buffer.dtype != "bfloat16":
        raise StageIError(f"{where} is not one store of a number of bfloat16")

    def change(loop: tirx.For) -> tirx.Stmt:
        block = blocks(loop)[-1]
        i, j, q = (v.var for v in block.iter_vars)
        (store,) = nodes(block.body, tirx.BufferStore)
        source, target = store.value, store.buffer[tuple(store.indices)]
        for load, row, column in ((source, i, j), (target, j, i)):
            check_rows(load, row, column, 2)
            check_rows(load, row, q, 1)
        found = []
        for a in range(0, down, pairs.LANES):
            for b in range(0, across, pairs.LANES):
                corner = {i: a, j: b, q: 0}
                places = target, corner | {j: b + 1}, source, corner | {i: a + 1}
                found.append(
                    call(
                        transpose_name(pairs.LANES),
                        *(address(places[0], corner), address(places[0], places[1])),
                        *(address(places[2], corner), address(places[2], places[3])),
                    )
                )
        return sequence(found)

    return rewrite(stage2, iteration, 2, change, where)


@iteration_primitive()
def transpose_words(stage2: PositionFunction, iteration: Iteration, lanes: int) -> PositionFunction:
    """Make calls for squares of ``lanes`` x ``lanes`` numbers of float32 of the loops of an iteration that transposes
    them.

        for i, j in grid(32, 16):          gsb_transposed_16(B[0, 0], B[1, 0], A[0, 0], A[1, 0])
            B[j, i] = A[i, j]         ->   gsb_transposed_16(B[0, 16], B[1, 16], A[16, 0], A[17, 0])

    Preconditions, refused with a StageIError: two spatial axes of multiples of ``lanes``, and one store of a number of
    float32 that lies so, its rows along either of them.
    """
    where = f"transpose_words: iteration {iteration.name!r}"
    stores = _plain_stores(iteration, where, "float32")
    lengths = [axis.length for axis in iteration.axes if isinstance(axis.length, int)]
    if iteration.kinds != "SS" or len(lengths) != 2 or any(length % lanes for length in lengths):
        raise StageIError(f"{where} is not over two axes of multiples of {lanes}")
    if len(stores) != 1 or not isinstance(stores[0].value, Load) or stores[0].value.buffer.dtype != "float32":
        raise StageIError(f"{where} is not one store of a number of float32")

    def change(loop: tirx.For) -> tirx.Stmt:
        block = blocks(loop)[-1]
        axes = [(v.var, length) for v, length in zip(block.iter_vars, lengths)]
        (store,) = nodes(block.body, tirx.BufferStore)
        source, target = store.value, store.buffer[tuple(store.indices)]
        try:
            check_rows(source, axes[0][0], axes[1][0], 1)
        except NotSo:
            axes.reverse()
            check_rows(source, axes[0][0], axes[1][0], 1)
        (row, down), (column, across) = axes
        check_rows(target, column, row, 1)
        found = []
        for a in range(0, down, lanes):
            for b in range(0, across, lanes):
                corner = {row: a, column: b}
                found.append(
                    call(
                        transpose_name(lanes),
                        *(address(target, corner), address(target, corner | {column: b + 1})),
                        *(address(source, corner), address(source, corner | {row: a + 1})),
                    )
                )
        return sequence(found)

    return rewrite(stage2, iteration, 1, change, where)


def _plain_stores(iteration: Iteration, where: str, dtype: str = "bfloat16") -> list[Store]:
    plain = not iteration.init and iteration.where is None and not iteration.locals and not iteration.fused
    stores = [s for s in iteration.body if isinstance(s, Store)]
    if not plain or len(stores) != len(iteration.body) or any(s.buffer.dtype != dtype for s in stores):
        raise StageIError(f"{where} is more than stores to buffers of {dtype}")
    return stores


def _in_vectors(iteration: Iteration, where: str) -> int:
    """Length of the last axis."""
    length = iteration.axes[-1].length
    if not isinstance(length, int) or length % pairs.LANES or set(iteration.kinds) != {"S"}:
        raise StageIError(f"{where}: its last axis, of {length}, is not in vectors of {pairs.LANES}")
    return length


def _source_type(value: Expr) -> str:
    if isinstance(value, Cast):
        value = value.value
    return value.buffer.dtype if isinstance(value, Load) else ""


def _inside(loop: tirx.For, body: tirx.Stmt) -> tirx.Stmt:
    """The body with what the variables of the block directly under the loop stand for."""
    realize = loop.body
    return substitute(body, {v.var: value for v, value in zip(realize.block.iter_vars, realize.iter_values)})
