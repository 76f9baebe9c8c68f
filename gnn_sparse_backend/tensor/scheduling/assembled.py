"""Statements whose result is put together element by element, row by row, each in a workspace first where wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from operator import methodcaller

from ...compiler import Program, Schedule, StageIError
from ...compiler.schedules.units import unit_schedule
from ...frozen import dataclass
from ..errors import ScheduleError
from ..expressions.assembled.order import Order
from ..expressions.assembled.programs import Assembling, assemblies
from ..expressions.assembled.rows import listed
from ..expressions.kernel import TensorKernel, assembling
from ..expressions.loops.loops import Loop
from ..expressions.loops.provenance import Bound, above, below
from ..expressions.notation import written
from ..expressions.terms import Term, along, sparse_accesses
from . import commands
from .nest import Assign, Nest, expression_of
from .statement import Source, Statement
from .workspaces import products_in


@dataclass(frozen=True, eq=False)
class AssembledStatement(Statement):
    """A statement with a sparse result that has coordinates of its own, made by `statement`.

    Elements are counted first, then filled, in the same loops, so rows are outermost. The columns of a row are met in
    order, and written one behind the other, or the row is summed in a workspace.

    Attributes:
        workspace: its name, of one that was asked for.
    """

    workspace: str = ""

    def pos(self, i: str, p: str, access: str) -> Statement:
        said = f"pos({i}, {p}, {access})"
        commands.texts(said, i, p, access)
        found = self._access(said, access)
        for term in self.source.terms:
            if found not in term.accesses:
                beside = written(expression_of(term))
                commands.refuse(said, f"{beside} is added too, and not multiplied by {access}; cut coordinates")
        indices = list(dict.fromkeys(above(self.nests[0].graph, i)))
        if len(indices) > 1:
            commands.refuse(
                said,
                f"elements of {access} along {' and '.join(indices)} are in two loops; take pos of one index",
            )
        return super().pos(i, p, access)

    def precompute(
        self, expression: str, i: str | Sequence[str], i_pre: str | Sequence[str], workspace: str
    ) -> Statement:
        """Sum a row of the result in a workspace: `expression` is all that is summed, `i` the result's last index."""
        said = f"precompute({expression!r}, {i}, {i_pre}, {workspace})"
        names, inside = (commands.names_of(said, each) for each in (i, i_pre))
        commands.texts(said, expression, workspace)
        if self.workspace:
            commands.refuse(said, f"a row is summed in {self.workspace} already; there is one workspace")
        commands.fresh(said, self.nests, (*inside, workspace), self._taken)
        last = self.order.result[-1]
        if names != tuple(below(self.nests[0].graph, last)) or len(inside) != 1:
            commands.refuse(
                said,
                f"a workspace has a row of the result, an element for each value of {last}; cut it up afterwards",
            )
        if _alike(products_in(said, expression, workspace)) != _alike(self.source.terms):
            commands.refuse(
                said, f"all that is summed goes to the workspace: {written(self.source.notation.expression)}"
            )

        def change(nest: Nest) -> Nest:
            commands.plain(said, nest, names[0])
            return commands.related(commands.put(nest, names, inside), Bound(names[0], inside[0], 0, "same"))

        nests = commands.with_loops(said, self.nests, names, change)
        made = replace(self, nests=nests, workspace=workspace, said=(*self.said, said))
        made.check(said)
        return made

    @property
    def order(self) -> Order:
        """The loops, as both programs have them."""
        nest = self.nests[0]
        loops = tuple(loop.name for loop in nest.loops)
        reached = {index: n for n, loop in enumerate(loops) for index in above(nest.graph, loop)}
        result = tuple(sorted(self.source.notation.result.indices, key=reached.__getitem__))
        unrolled = tuple(loop.name for loop in nest.loops if loop.unit == "unrolled")
        made = Order(loops, result, True, nest.graph, unrolled, self._static)
        columns = tuple(below(nest.graph, result[-1]))
        in_order = columns == made.columns and loops[: len(made.rows + columns)] == (*made.rows, *columns)
        made = replace(made, workspace=bool(self.workspace) or not in_order)
        return listed(made, self.source.terms, self.source.operands)

    @property
    def threads(self) -> bool:
        """Whether the outermost loop is on threads."""
        return any(loop.unit == "threads" for loop in self.nests[0].loops)

    def __str__(self) -> str:
        notation, order, loops = self.source.notation, self.order, self.nests[0].loops
        right, last = written(notation.expression), order.result[-1]
        if not order.workspace:
            lines = _nested(loops, f"{notation.result} += {right}")
        else:
            name, depth = self.workspace or "w", len(order.rows)
            filled = self.nests[0].loops[depth:]
            index = self._renamed or last
            inner = [f"{name}[...] = 0", *_nested(filled, f"{name}[{index}] += {right}")]
            inner += _nested([Loop(last)], f"{notation.result} = {name}[{last}]")
            lines = _nested(loops[:depth], *inner)
        return "\n".join([str(notation), "", *lines, "", self.provenance()])

    @property
    def program(self) -> Program:
        """The program of stage I that fills the result."""
        return self._programs[-1].written.program

    @property
    def schedule(self) -> Schedule:
        """What its loops run on, beside threads, which have shares of the outermost one."""
        return unit_schedule(tuple((name, "unrolled") for name in self._programs[-1].unrolled))

    def kernel(self, serial: bool = False) -> TensorKernel:
        """The compiled kernel."""
        source = self.source
        what = source.notation, source.terms, source.operands, source.wanted, source.dtype, source.converted
        found = assembling(*what, self.order, tuple(self._promises()), self.threads)
        return replace(found, made=(methodcaller("kernel"), (self,)))

    def check(self, said: str) -> None:
        self._check_rows(said)
        self._check_products(said)
        self._check_operands(said)
        try:
            programs = self._programs
        except (ScheduleError, StageIError) as error:
            raise ScheduleError(str(error) if str(error).startswith(said) else f"{said}: {error}") from error
        for made in programs:
            commands.check_unrolled(said, made.written.program, made.unrolled)

    def _check_rows(self, said: str) -> None:
        """Rows are complete one after the other, and the outermost loop over them is what threads share."""
        order, above_last = self.order, set(self.order.result[:-1])
        depth = len(order.rows)
        late = [loop for loop in order.loops[depth:] if above_last & set(above(order.graph, loop))]
        if late:
            wrong = next((loop for loop in order.loops[:depth] if loop not in order.rows), late[0])
            commands.refuse(
                said,
                f"rows of {self.source.notation.result} are not complete one after another under {wrong}; keep loops "
                f"over {', '.join(order.result[:-1])} alone, and outside of others",
            )
        for n, loop in enumerate(self.nests[0].loops):
            if loop.unit in ("", "unrolled"):
                continue
            if n or not depth or (loop.unit, loop.race) != ("threads", "none"):
                commands.refuse(
                    said, "of a result that is put together, the outermost loop runs on threads, without a race"
                )

    def _check_products(self, said: str) -> None:
        """Every product has all of the indices that one of its loops is made of, or none of them."""
        order = self.order
        for loop in order.loops:
            mine = set(above(order.graph, loop))
            for term in self.source.terms:
                indices = {*term.indices, *order.result}
                if mine & indices and mine - indices:
                    commands.refuse(
                        said,
                        f"{written(expression_of(term))} has no {', '.join(mine - indices)}, of which {loop} is made; "
                        "fuse others",
                    )

    def _check_operands(self, said: str) -> None:
        """Operands are walked in the order in which they are stored."""
        order = self.order
        reached = {index: n for n, loop in enumerate(order.loops) for index in above(order.graph, loop)}
        for access in sparse_accesses(self.source.terms, self.source.operands):
            stored = along(access, self.source.operands[access.name].format)
            if [reached[index] for index in stored] != sorted(reached[index] for index in stored):
                commands.refuse(
                    said, f"{access} is stored by {', '.join(stored)}, in this order; convert it, or keep the loops"
                )

    @cached_property
    def _programs(self) -> tuple[Assembling, ...]:
        source = self.source
        return assemblies(source.notation, source.terms, source.operands, source.dtype, self.order)

    @property
    def _renamed(self) -> str:
        """What the last index is called where a workspace is filled."""
        same = (r for r in self.nests[0].graph if isinstance(r, Bound) and r.kind == "same")
        return next((relation.bounded for relation in same), "")

    @property
    def _taken(self) -> set[str]:
        return {*super()._taken, *([self.workspace] if self.workspace else [])}


def assembled_statement(source: Source, order: Order) -> AssembledStatement:
    """The statement of a source in the loops of an order."""
    nest = Nest(tuple(map(Loop, order.loops)), Assign(source.notation.result, source.terms[0]))
    return AssembledStatement(source, (nest,))


def _nested(loops: Sequence[Loop], *inside: str) -> list[str]:
    """Lines of loops around others."""
    lines = [f"{'    ' * n}{loop}" for n, loop in enumerate(loops)]
    return [*lines, *(f"{'    ' * len(loops)}{line}" for line in inside)]


def _alike(terms: Sequence[Term]) -> list[tuple[float, list[str]]]:
    """Products in an order that does not depend on how they were written."""
    return sorted((term.coefficient, sorted(f"{f.inverse}{written(f.of)}" for f in term.factors)) for term in terms)
