"""Statements whose result is put together element by element, row by row, each in a workspace first where wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from ...compiler import LoopSchedule, Program
from ..errors import ScheduleError
from ..expressions.assembled.assembly import Assembly
from ..expressions.assembled.order import Order, along, sparse_accesses
from ..expressions.assembled.workspace import Workspace
from ..expressions.kernel import TensorKernel, assembling
from ..expressions.notation import written
from ..expressions.result import accumulator
from ..expressions.terms import Term
from . import commands
from .nest import Assign, Loop, Nest
from .statement import Source, Statement
from .workspaces import products_in

NO_ORDER = Order((), (), False)


@dataclass(frozen=True, eq=False)
class AssembledStatement(Statement):
    """A statement with a sparse result that has coordinates of its own, made by `statement`.

    Elements are counted first, then filled, in the same loops, so these have an order in which rows are complete one
    after the other. `reorder`, `precompute` of all that is summed and `parallelize` of the outermost loop apply; the
    other commands raise ScheduleError.

    Attributes:
        order: of the loops.
        workspace: what was precomputed: the index where it is filled, and the name.
        threads: the outermost loop runs on them.
    """

    order: Order = NO_ORDER
    workspace: tuple[str, str] | None = None
    threads: bool = False

    def split(self, i: str, outer: str, inner: str, size: int) -> Statement:
        self._refuse(f"split({i}, {outer}, {inner}, {size})")

    def divide(self, i: str, outer: str, inner: str, parts: int) -> Statement:
        self._refuse(f"divide({i}, {outer}, {inner}, {parts})")

    def fuse(self, i: str, j: str, fused: str) -> Statement:
        self._refuse(f"fuse({i}, {j}, {fused})")

    def pos(self, i: str, p: str, access: str) -> Statement:
        self._refuse(f"pos({i}, {p}, {access})")

    def coord(self, p: str, i: str) -> Statement:
        self._refuse(f"coord({p}, {i})")

    def unroll(self, i: str) -> Statement:
        self._refuse(f"unroll({i})")

    def bound(self, i: str, bounded: str, extent: int, kind: str = "exact") -> Statement:
        self._refuse(f"bound({i}, {bounded}, {extent}, {kind!r})")

    def reorder(self, *order: str) -> Statement:
        """Loops in another order, in which operands are stored and rows are complete one after the other."""
        said = f"reorder({', '.join(map(str, order))})"
        commands.texts(said, *order)
        if self.threads or self.workspace:
            commands.refuse(said, "give this command before precompute and parallelize")
        loops = tuple(loop.name for loop in commands.reorder(self.nests, order)[0].loops)
        source, indices = self.source, self.source.notation.result.indices
        for access in sparse_accesses(source.terms, source.operands):
            chain = [loops.index(index) for index in along(access, source.operands[access.name].format)]
            if chain != sorted(chain):
                stored = ", ".join(along(access, source.operands[access.name].format))
                commands.refuse(said, f"{access} is stored by {stored}, in this order; convert it, or keep the loops")
        result = tuple(index for index in loops if index in indices)
        if loops[: len(result) - 1] != result[:-1]:
            summed = next(index for index in loops if index not in indices)
            commands.refuse(said, f"rows of {source.notation.result} are not complete one after another under {summed}")
        made = Order(loops, result, loops != (*result, *loops[len(result) :]))
        return replace(self, order=made, nests=_nests(self.source, made), said=(*self.said, said))

    def precompute(
        self, expression: str, i: str | Sequence[str], i_pre: str | Sequence[str], workspace: str
    ) -> Statement:
        """Sum a row of the result in a workspace: `expression` is all that is summed, `i` the result's last index."""
        said = f"precompute({expression!r}, {i}, {i_pre}, {workspace})"
        names, inside = ((each,) if isinstance(each, str) else tuple(each) for each in (i, i_pre))
        commands.texts(said, expression, *names, *inside, workspace)
        if self.threads or self.workspace:
            commands.refuse(said, "give this command once, before parallelize")
        commands.fresh(said, self.nests, (*inside, workspace), self._taken)
        if names != self.order.result[-1:] or len(inside) != 1:
            last = self.order.result[-1]
            commands.refuse(said, f"a workspace has a row of the result, an element for each value of {last}")
        if _alike(products_in(said, expression, workspace)) != _alike(self.source.terms):
            commands.refuse(
                said, f"all that is summed goes to the workspace: {written(self.source.notation.expression)}"
            )
        made = replace(self.order, workspace=True)
        return replace(self, order=made, workspace=(inside[0], workspace), said=(*self.said, said))

    def parallelize(self, i: str, unit: str, race: str = "none") -> Statement:
        """Share rows, which are the outermost loop, out among threads."""
        said = f"parallelize({i}, {unit!r}, {race!r})"
        is_row = len(self.order.result) > 1 and i == self.order.indices[0]
        if self.threads or not is_row or (unit, race) != ("threads", "none"):
            commands.refuse(
                said, "of a result that is put together, the outermost loop runs on threads, without a race"
            )
        nests = commands.parallelize(self.nests, i, unit, race)
        return replace(self, threads=True, nests=nests, said=(*self.said, said))

    def __str__(self) -> str:
        notation, order = self.source.notation, self.order
        right = written(notation.expression)
        rows = [str(loop) for loop in self.nests[0].loops]
        inner, name = self.workspace or (order.result[-1], "w")
        lines = [str(notation), ""]
        if not order.workspace:
            lines += [f"{'    ' * n}{loop}" for n, loop in enumerate(rows)]
            lines.append(f"{'    ' * len(rows)}{notation.result} += {right}")
        else:
            depth = len(order.result) - 1
            lines += [f"{'    ' * n}{loop}" for n, loop in enumerate(rows[:depth])]
            lines.append(f"{'    ' * depth}{name}[...] = 0")
            filled = [f"for {inner if index == order.result[-1] else index}" for index in order.indices[depth:]]
            lines += [f"{'    ' * (depth + n)}{loop}" for n, loop in enumerate(filled)]
            lines.append(f"{'    ' * (depth + len(filled))}{name}[{inner}] += {right}")
            lines.append(f"{'    ' * depth}for {order.result[-1]}")
            lines.append(f"{'    ' * (depth + 1)}{notation.result} = {name}[{order.result[-1]}]")
        return "\n".join([*lines, "", self.provenance()])

    @property
    def program(self) -> Program:
        """The program of stage I that fills the result."""
        source, writer = self.source, Workspace if self.order.workspace else Assembly
        index_dtype = max(operand.index_dtype for operand in source.operands.values())
        what = source.notation, source.terms, source.operands, self.order, accumulator(source.dtype), index_dtype
        return writer(*what, filling=True).run().program

    @property
    def schedule(self) -> LoopSchedule:
        """None of its own: rows are shared out as wholes."""
        return LoopSchedule()

    def kernel(self, serial: bool = False) -> TensorKernel:
        """The compiled kernel."""
        source = self.source
        what = source.notation, source.terms, source.operands, source.wanted, source.dtype, source.converted
        return assembling(*what, self.order, self.threads)

    def _refuse(self, said: str) -> NoReturn:
        raise ScheduleError(
            f"{said}: the result of {self.source.notation} is put together element by element, in loops that reorder, "
            "precompute and parallelize change; give format='dense' for others"
        )


def assembled_statement(source: Source, order: Order) -> AssembledStatement:
    """The statement of a source in the loops of an order."""
    return AssembledStatement(source, _nests(source, order), order=order)


def _nests(source: Source, order: Order) -> tuple[Nest, ...]:
    """Loops, for printing and for commands; what they compute is written by the programs of the order."""
    return (Nest(tuple(map(Loop, order.indices)), Assign(source.notation.result, source.terms[0])),)


def _alike(terms: Sequence[Term]) -> list[tuple[float, list[str]]]:
    """Products in an order that does not depend on how they were written."""
    return sorted((term.coefficient, sorted(f"{f.inverse}{written(f.of)}" for f in term.factors)) for term in terms)
