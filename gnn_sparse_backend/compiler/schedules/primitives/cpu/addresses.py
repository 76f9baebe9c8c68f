"""Where operands of a call lie: addresses of their first rows, and whether all others lie as those say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .....deferred import sym, tirx, tvm
from ....codegen.nodes import int64, substitute
from ....language.axes import StageIError
from ....language.program import Iteration
from ....position.function import PositionFunction
from ..shared.loops import rewrite_loop


class NotSo(Exception):
    """An operand that does not lie as a function wants it."""


def call(name: str, *addresses: tirx.Expr) -> tirx.Stmt:
    """A call of a function that gives nothing."""
    return tirx.Evaluate(tirx.call_extern("void", name, *addresses))


def address(load: tvm.ir.TensorLoad, at: Mapping[tirx.Var, int]) -> tirx.Expr:
    """The address of an element where variables have these values."""
    given = {var: int64(value) for var, value in at.items()}
    return tirx.address_of(load.source[tuple(substitute(index, given) for index in load.indices)])


def check_rows(load: tvm.ir.TensorLoad, row: tirx.Var | None, column: tirx.Var, step: int) -> None:
    """Raise NotSo unless all rows are as far from each other, and elements of a row are ``step`` apart."""
    analyzer, zero = sym.Analyzer(), int64(0)
    for number, index in enumerate(load.indices):
        start = {column: zero} if row is None else {column: zero, row: zero}
        first = substitute(index, start)
        wanted = column * int64(step if number == len(load.indices) - 1 else 0)
        if row is not None:
            wanted += row * (substitute(index, start | {row: int64(1)}) - first)
        rest = analyzer.simplify(index - first - wanted)
        if not isinstance(rest, tirx.IntImm) or rest.value != 0:
            raise NotSo(f"{load} is not an operand in rows with elements {step} apart")


def rewrite(
    stage2: PositionFunction, iteration: Iteration, level: int, change: Callable[[tirx.For], tirx.Stmt], where: str
) -> PositionFunction:
    """`rewrite_loop` with a change that may raise NotSo, which becomes a StageIError."""
    problems: list[str] = []

    def guarded(loop: tirx.For) -> tirx.Stmt:
        try:
            return change(loop)
        except NotSo as problem:
            problems.append(str(problem))
            return loop

    stage2 = rewrite_loop(stage2, iteration.name, level, guarded)
    if problems:  # raised here: an exception would lose its class on its way through TVM's visitor
        raise StageIError(f"{where}: {problems[0]}")
    return stage2
