"""Statements: an expression as loops, changed by commands that each give a new statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from operator import methodcaller
from typing import Any

from ...compiler import Kernel, Program, Schedule, StageIError, compile_program, unit_schedule
from ...compiler.schedules.primitives.shared.whole import most_of
from ...compiler.schedules.sequence import is_for_gpu, of_stage
from ...frozen import dataclass
from ..errors import ScheduleError
from ..expressions.declared import Written
from ..expressions.execution import Plan
from ..expressions.kernel import TensorKernel
from ..expressions.loops.provenance import Bound, above
from ..expressions.notation import Access
from ..expressions.notation import Statement as Notation
from ..expressions.result import Kept
from ..expressions.terms import Operand, Term
from ..storage.format import Format, dense
from . import commands, races, workspaces
from .nest import Nest
from .printing import provenance
from .promises import Promise
from .writer import LoopWriter, Units


@dataclass(frozen=True)
class Source:
    """What is computed, of which operands."""

    notation: Notation
    terms: tuple[Term, ...]
    operands: Mapping[str, Operand]
    kept: Kept | None
    dtype: str
    wanted: Format | None
    converted: Mapping[str, Format]


@dataclass(frozen=True, eq=False)
class Statement:
    """An expression as loops, made by `statement`. Immutable: a command gives a new statement, or raises ScheduleError
    with what is wrong and leaves this one as it is. `print` shows the loops, and where their variables come from.
    """

    source: Source
    nests: tuple[Nest, ...]
    said: tuple[str, ...] = field(default=(), repr=False)

    # Commands.

    def split(self, i: str, outer: str, inner: str, size: int) -> Statement:
        """The loop over `i` in parts of `size`: two loops, over the parts and over what is in one. The last part may be
        smaller; what is left is cut off outside of the inner loop."""
        return self._made("split", (i, outer, inner), size)

    def divide(self, i: str, outer: str, inner: str, parts: int) -> Statement:
        """Split the loop over `i` into `parts` parts, equal but for the last: two loops, over the parts and in one."""
        return self._made("divide", (i, outer, inner), parts)

    def fuse(self, i: str, j: str, fused: str) -> Statement:
        """The loop over `i`, and that over `j` right inside of it, as one loop."""
        return self._made("fuse", (i, j, fused))

    def pos(self, i: str, p: str, access: str) -> Statement:
        """Visit the elements that an operand stores along `i`, by their positions `p`, instead of its coordinates.

        Args:
            i: an index of which the operand has a compressed level, or a fusion of the indices of its first levels:
                then positions are those of all elements, so that parts of them are equal however rows differ.
            access: as it stands in the expression: "A[i,j]".
        """
        said = f"pos({i}, {p}, {access})"

        def change() -> tuple[Nest, ...]:
            return commands.pos(self.nests, i, p, self._access(said, access), self.source.operands, self._taken)

        return self._changed(said, (i, p, access), change)

    def coord(self, p: str, i: str) -> Statement:
        """Visit coordinates again, as `i`, instead of the positions `p` that `pos` made."""
        return self._made("coord", (p, i))

    def reorder(self, *order: str) -> Statement:
        """Loops of one nest in another order, from the outermost on; others stay where they are."""
        said = f"reorder({', '.join(map(str, order))})"
        return self._changed(said, order, lambda: commands.reorder(self.nests, order))

    def parallelize(self, i: str, unit: str, race: str = "none") -> Statement:
        """Put the loop over `i` on a unit.

        Args:
            unit: "threads" of the CPU, "lanes" of a vector; of a GPU "block", "warp" and "thread".
            race: what settles that several elements add to one place. "none": nothing, refused where it would be
                needed. "atomics": atomic additions. "temporary": a copy of the result for each element of the loop,
                added up in the end. "parallel_reduction": a sum for each element, where the place is known outside of
                the loop. All but "none" change the order of a sum, and "atomics" from run to run.
        """
        said = f"parallelize({i}, {unit!r}, {race!r})"
        return self._changed(said, (i, unit, race), lambda: commands.parallelize(self.nests, i, unit, race))

    def unroll(self, i: str) -> Statement:
        """Write out the elements of the loop over `i`, whose number must be known at compile time: that of a part."""
        return self._changed(f"unroll({i})", (i,), lambda: commands.unroll(self.nests, i))

    def bound(self, i: str, bounded: str, extent: int, kind: str = "exact") -> Statement:
        """Say that `i` has `extent` values exactly, or no more ("most"): compiled in, and checked at each call."""
        return self._changed(
            f"bound({i}, {bounded}, {extent}, {kind!r})",
            (i, bounded, kind),
            lambda: commands.bound(self.nests, i, bounded, extent, kind, self._taken),
        )

    def precompute(
        self, expression: str, i: str | Sequence[str], i_pre: str | Sequence[str], workspace: str
    ) -> Statement:
        """Sum a part of a product in a workspace first.

        Args:
            expression: a product of tensors in the expression: "B[i,k] * C[k,j]".
            i: the loop or loops, of each value of which the workspace has an element.
            i_pre: what they are called where the workspace is filled.
            workspace: its name.
        """
        said = f"precompute({expression!r}, {i}, {i_pre}, {workspace})"
        names, inside = (commands.names_of(said, each) for each in (i, i_pre))
        return self._changed(
            said,
            (expression, *names, *inside, workspace),
            lambda: workspaces.precompute(self.nests, expression, names, inside, workspace, self._taken),
        )

    # What it is.

    def __str__(self) -> str:
        lines = [str(self.source.notation), ""]
        for nest in self.nests:
            lines += nest.text()
        return "\n".join([*lines, "", self.provenance()])

    def provenance(self) -> str:
        """The graph of its variables: what each is made from, its extent, and how what it stands for is found."""
        return provenance(self.nests, self.source.operands)

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that made it."""
        return self.said

    @property
    def program(self) -> Program:
        """The program of stage I."""
        return self._written[0].program

    @property
    def schedule(self) -> Schedule:
        """What its loops run on."""
        _, units, atomic = self._written
        return unit_schedule(units, atomic=atomic)

    def kernel(self, serial: bool = False) -> TensorKernel:
        """The compiled kernel; serial: loops that are on a GPU run one after the other, on the CPU.

        Raises ScheduleError for a statement with loops on a GPU that is to run otherwise.
        """
        if is_for_gpu(self.schedule) and not serial:
            raise ScheduleError(
                "loops are on a GPU, and arrays are on the CPU: give serial=True to check what it computes, one "
                "element after the other, or take the text of cuda(arch)"
            )
        found = self._of(compile_program(self.program, self.schedule, serial=serial))
        return replace(found, made=(methodcaller("kernel", serial), (self,)))

    def cuda(self, arch: str = "sm_80") -> str:
        """The CUDA source of a statement with loops on a GPU; needs no GPU. Raises ScheduleError where none is."""
        from ...compiler import stage3
        from ...compiler.codegen import generate_cuda

        if not is_for_gpu(self.schedule):
            raise ScheduleError("no loop is on a GPU; give parallelize(i, 'block') and parallelize(j, 'thread')")
        return generate_cuda(stage3(self.program, self.schedule), arch)

    def __reduce__(self) -> tuple[type[Statement], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, each.name) for each in fields(self))

    # How it comes about.

    def _made(self, name: str, names: tuple[str, ...], *given: Any) -> Statement:
        command: Callable[..., tuple[Nest, ...]] = getattr(commands, name)
        said = f"{name}({', '.join(map(str, (*names, *given)))})"
        return self._changed(said, names, lambda: command(self.nests, *names, *given, taken=self._taken))

    def _changed(self, said: str, names: Sequence[str], change: Callable[[], tuple[Nest, ...]]) -> Statement:
        commands.texts(said, *names)
        done = replace(self, nests=change(), said=(*self.said, said))
        done.check(said)
        return done

    def check(self, said: str) -> None:
        """Raise ScheduleError where the loops cannot be written, or would not compute what is asked for."""
        repeats = {name for name, each in self.source.operands.items() if "compressed-nonunique" in each.format.levels}
        asked = races.Asked(self.source.notation.result.name, self.source.kept is not None, lambda a: a.name in repeats)
        races.check(self.nests, asked)
        try:
            written, units, _ = self._written
            program = written.program
            for step in of_stage(self.schedule, 1):
                step(program)
        except (ScheduleError, StageIError) as error:
            raise ScheduleError(str(error) if str(error).startswith(said) else f"{said}: {error}") from error
        for name, unit in units:
            most = most_of(program.iteration(name))
            if unit in ("lanes", "unrolled", "warp", "thread") and most is None:
                raise ScheduleError(
                    f"{said}: {unit} want a number of elements that is known at compile time; split the loop, or give "
                    "it a bound"
                )
            if unit in ("warp", "thread") and most is not None and not 0 < most <= 1024:
                raise ScheduleError(f"{said}: a block of a GPU has at most 1024 threads, not {most}")
        commands.check_unrolled(said, program, (name for name, unit in units if unit == "unrolled"))

    def _of(self, kernel: Kernel) -> TensorKernel:
        """What runs a compiled program on operands."""
        source, promises = self.source, tuple(dict.fromkeys(self._promises()))
        what = source.notation, source.terms, source.operands, source.kept, source.dtype
        plan = Plan(*what, self._static, self._written[0], kernel, None, source.converted, promises)
        made = dense(len(source.notation.result.indices)) if source.kept is None else source.kept.format
        return TensorKernel(plan, made if source.wanted is None else source.wanted)

    @cached_property
    def _written(self) -> tuple[Written, Units, tuple[str, ...]]:
        source = self.source
        writer = LoopWriter("scheduled", source.notation, source.operands, source.dtype, self._static, source.kept)
        return writer.run(self.nests, source.terms)

    @property
    def _static(self) -> dict[str, int]:
        exact = [promise for promise in self._promises() if promise.bound.kind == "exact"]
        return {next(above(promise.graph, promise.bound.of)): promise.bound.extent for promise in exact}

    def _promises(self) -> list[Promise]:
        found = [
            Promise(relation, each.graph)
            for nest in self.nests
            for each in nest.nests()
            for relation in each.graph
            if isinstance(relation, Bound) and relation.kind != "same"
        ]
        return found

    @property
    def _taken(self) -> set[str]:
        indices = {index for term in self.source.terms for index in term.indices}
        workspace = {each.target.name for nest in self.nests for each in nest.assigns()}
        return {*indices, *self.source.operands, *self.source.notation.result.indices, *workspace}

    def _access(self, command: str, text: str) -> Access:
        found = {str(a): a for term in self.source.terms for a in term.accesses}
        wanted = "".join(str(text).split())
        if wanted not in found:
            commands.refuse(command, f"{text} is no access of the expression; there are {', '.join(found)}")
        return found[wanted]
