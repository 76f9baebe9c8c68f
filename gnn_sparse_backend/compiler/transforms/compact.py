"""Parameters without run-time strides: then a vector load of a row is known to be aligned where the row's width is."""

from __future__ import annotations

from dataclasses import replace

from ..language.expr import Expr, Load
from ..language.program import Iteration, Program, map_expressions, map_iterations
from ..language.traversal import rewrite
from ..language.validate import changed


def compact_parameters(program: Program) -> Program:
    """The program with every parameter compact. Its callers pass contiguous tensors.

    Before and after:

        X = p.buffer("X", (N, K), "float32", strided=True)  ->  X = p.buffer("X", (N, K), "float32")
    """
    new = {b: replace(b, strided=False) for b in program.buffers if b.strided}

    def compact(e: Expr) -> Expr | None:
        return Load(new[e.buffer], e.indices) if isinstance(e, Load) and e.buffer in new else None

    def visit(it: Iteration) -> tuple[Iteration]:
        return (map_expressions(it, lambda expr: rewrite(expr, compact)),)

    buffers = tuple(new.get(b, b) for b in program.buffers)
    iterations = map_iterations(program.iterations, visit)
    return changed(program, "compact_parameters", buffers=buffers, iterations=iterations)
