"""Multiply bfloat16 numbers two at a time, with float32 sums, in the lanes of a vector (``vdpbf16ps``, ``bfdot``)."""

from __future__ import annotations

from .....deferred import sym, tirx, tvm
from ....codegen.cpu.instructions.pair_dot import function_name
from ....codegen.nodes import blocks, int64, nodes, sequence, substitute
from ....language.axes import StageIError
from ....language.expr import Binary, Cast, Expr, Load
from ....language.program import Iteration, Store
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.loops import rewrite_loop


@iteration_primitive()
def bf16_pair_dot(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Make one call for each store under the innermost loop of `iteration`, of two terms, and the loop of its columns.

        for q in range(2):                                      S[0:16] = gsb_bf16_pair_dot_x16(S[0:16],
            with block("sum"):                                                         A[i, 2i:2i+2] in 16 lanes,
                for k in vectorized(16):                                               W[i, 0:32])
                    with block("sum_0"):                    ->
                        S[k] += A[i, 2i + q] * W[i, 2k + q]

    `codegen.cpu.instructions.pair_dot` has the functions that are called: one instruction where the CPU has it, else
    what it computes.

    Preconditions, refused with a StageIError: the last axis of the iteration is a reduction of length 2; below it are
    iterations over one static spatial axis each; each of their stores has the form S[k] = S[k] + a * w, S float32, a
    and w converted from bfloat16, w at an index that grows by 2 k + q, a at one that does, too, or that grows by one
    with q and is the same for all k.
    """
    where = f"bf16_pair_dot: iteration {iteration.name!r}"
    if not iteration.axes or iteration.axes[-1].length != 2 or iteration.kinds[-1] != "R":
        raise StageIError(f"{where}: its last axis is not a reduction over two terms")
    if iteration.init or iteration.where is not None or iteration.locals:
        raise StageIError(f"{where} has an init, a condition or local buffers")
    for inner in iteration.body:
        if (
            not isinstance(inner, Iteration)
            or len(inner.axes) != 1
            or inner.kinds != "S"
            or inner.init
            or inner.where is not None
        ):
            raise StageIError(f"{where} holds more than iterations over the columns of a sum")
        for store in inner.body:
            _check(store, f"{where}, {inner.name!r}")
    problems: list[str] = []

    def change(loop: tirx.For) -> tirx.Stmt:
        realize = loop.body
        outer = dict(zip((v.var for v in realize.block.iter_vars), realize.iter_values))
        statements = []
        for inner in iteration.nested:
            block = next(b for b in blocks(realize.block.body) if b.name_hint == inner.name)
            (column,) = [v.var for v in block.iter_vars]
            lanes = inner.axes[0].static_length
            for store in nodes(block.body, tirx.BufferStore):
                try:
                    statements.append(substitute(_call(store, column, realize.block.iter_vars[-1].var, lanes), outer))
                except _NotTwos as problem:
                    problems.append(str(problem))
        return substitute(sequence(statements), {loop.loop_var: int64(0)}) if statements else loop

    stage2 = rewrite_loop(stage2, iteration.name, 0, change)
    if problems:  # raised here: an exception would lose its class on its way through TVM's visitor
        raise StageIError(f"{where}: {problems[0]}")
    return stage2


class _NotTwos(Exception):
    """An index that is not that of an operand of the instruction."""


def _check(store: Store | Iteration, where: str) -> None:
    product = store.added if isinstance(store, Store) else None
    if not isinstance(store, Store) or product is None:
        raise StageIError(f"{where} does not add to what it stores to")
    factors = (product.a, product.b) if isinstance(product, Binary) and product.op == "*" else ()
    if store.buffer.dtype != "float32" or len(factors) != 2 or not all(map(_is_narrow, factors)):
        raise StageIError(f"{where} does not add the product of two bfloat16 numbers to one of float32")


def _is_narrow(factor: Expr) -> bool:
    return isinstance(factor, Cast) and isinstance(factor.value, Load) and factor.value.buffer.dtype == "bfloat16"


def _call(store: tirx.BufferStore, column: tirx.Var, term: tirx.Var, lanes: int) -> tirx.Stmt:
    """The store of the call for a store of one term, where `column` and `term` are the variables of k and of q."""
    a, w = store.value.b.a.value, store.value.b.b.value
    zero = {column: int64(0), term: int64(0)}
    _advances(store.value.a, {column: 1, term: 0}, zero)
    _advances(w, {column: 2, term: 1}, zero)
    many = f"x{lanes}" if lanes > 1 else ""
    try:
        _advances(a, {column: 0, term: 1}, zero)
        two = tirx.reinterpret("int32", _stretch(a, zero, 2))
        left = tirx.Broadcast(two, lanes) if lanes > 1 else two
    except _NotTwos:
        _advances(a, {column: 2, term: 1}, zero)
        left = tirx.reinterpret(f"int32{many}", _stretch(a, zero, 2 * lanes))
    sums = _stretch(store.value.a, zero, lanes)
    call = tirx.call_pure_extern(
        f"float32{many}",
        function_name(lanes),
        sums,
        left,
        tirx.reinterpret(f"int32{many}", _stretch(w, zero, 2 * lanes)),
    )
    return tirx.BufferStore(store.buffer, call, list(sums.indices))


def _stretch(load: tvm.ir.TensorLoad, zero: dict[tirx.Var, tirx.Expr], count: int) -> tirx.Expr:
    """The load of `count` neighbours, the first of them where the variables are 0."""
    *head, last = (substitute(index, zero) for index in load.indices)
    if count > 1:
        last = tirx.Ramp(last, int64(1), count)
    return load.source[(*head, last)]


def _advances(load: tvm.ir.TensorLoad, steps: dict[tirx.Var, int], zero: dict[tirx.Var, tirx.Expr]) -> None:
    """Raise _NotTwos unless the last index grows by so much with each of the variables, and no other index at all."""
    analyzer = sym.Analyzer()
    wanted = [int64(0)] * (len(load.indices) - 1) + [sum((step * var for var, step in steps.items()), int64(0))]
    for index, grown in zip(load.indices, wanted):
        rest = analyzer.simplify(index - substitute(index, zero) - grown)
        if not isinstance(rest, tirx.IntImm) or rest.value != 0:
            raise _NotTwos(f"{load} does not lie as the operands of two terms do")
