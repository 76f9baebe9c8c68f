"""Parameters without run-time strides: then a vector load of a row is known to be aligned where the row's width is."""

from __future__ import annotations

from dataclasses import replace

from ..language.expr import Expr, Load, rewrite
from ..language.program import Buffer, Iteration, Program, Store, map_iterations


def compact_parameters(program: Program) -> Program:
    """The program with every parameter compact. Its callers pass contiguous tensors.

    Before and after:

        X = p.buffer("X", (N, K), "float32", strided=True)  ->  X = p.buffer("X", (N, K), "float32")
    """
    new = {b: replace(b, strided=False) for b in program.buffers if b.strided}

    def change(expr: Expr) -> Expr:
        return rewrite(
            expr, lambda e: Load(new[e.buffer], e.indices) if isinstance(e, Load) and e.buffer in new else None
        )

    def store(s: Store) -> Store:
        target: Buffer = new.get(s.buffer, s.buffer)
        return Store(target, tuple(change(i) for i in s.indices), change(s.value))

    def visit(it: Iteration) -> tuple[Iteration, ...]:
        where = None if it.where is None else change(it.where)
        body = tuple(store(s) if isinstance(s, Store) else s for s in it.body)
        return (replace(it, init=tuple(map(store, it.init)), body=body, where=where),)

    buffers = tuple(new.get(b, b) for b in program.buffers)
    iterations = map_iterations(program.iterations, visit)
    return replace(program, buffers=buffers, iterations=iterations).with_provenance("compact_parameters")
