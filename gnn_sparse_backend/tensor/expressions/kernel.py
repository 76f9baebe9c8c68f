"""Kernels of expressions: compiled for formats and types, called with tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from ...compiler import Program, compile_program
from ...compiler.cache.bounded import shared
from ...frozen import dataclass
from ..semirings import PLUS_TIMES, Semiring
from ..storage.format import Format, as_format, dense
from ..storage.stored import GivenFormat, Stored, packed
from ..storage.structure import Structure
from ..storage.values import is_recorded, taken
from .assembled.columns import apart
from .assembled.order import Order, assembled_order, conversions, modes_of
from .assembled.programs import assemblies
from .assembled.rows import listed, natural_format, rows_of
from .calls import Call, Last
from .execution import Counted, Once, Plan, Promise, assembled
from .notation import Statement, accesses
from .program import write
from .registers import Traits, scheduled
from .result import dtype_of, is_assembled, structure_of
from .specs import extents_of, specs_of
from .terms import Operand, Term, terms_of

MOST_STATIC = 512
"""Extents of dense indices up to this are compiled in, so that loops over them are vectors."""

_plans = shared("tensor expressions", 1024)


@dataclass(frozen=True, eq=False)
class TensorKernel:
    """An expression compiled for operands of certain formats and types; any numbers of rows and elements are taken.

    Made by `compile`. Call it with the operands by name, as `kernel(B=..., C=...)`; it returns the result. Raises
    TypeError and ValueError for operands that it was not compiled for.

    Attributes:
        format: of the result.
        made: a function and its arguments, which made it: copies, also those of other processes, are made so.
    """

    plan: Plan
    format: Format
    made: tuple[Callable[..., TensorKernel], tuple[Any, ...]] | None = field(default=None, repr=False)
    last: Last = field(default_factory=Last, init=False, repr=False)

    def __reduce__(self) -> tuple[Callable[..., TensorKernel], tuple[Any, ...]]:
        assert self.made is not None
        return _made_again, (type(self), *self.made)

    def stages(self, *names: str) -> str:
        """The texts of stage I, the schedule, stages II and III and the assembly, to be printed, or of those named:
        "program", "plan", "stage2", "stage3", "assembly". A result that is counted first has those of the program that
        counts, then those of the one that fills.
        """
        counted = [self.plan.own.kernel] if isinstance(self.plan.own, Counted) else []
        return "\n".join(kernel.stages(*names) for kernel in (*counted, self.plan.kernel))

    @property
    def program(self) -> Program:
        """The program of stage I."""
        return self.plan.written.program

    @property
    def expression(self) -> str:
        """What it computes, in index notation."""
        return str(self.plan.statement)

    def run(self, operands: Mapping[str, Stored]) -> Stored:
        """The result for these operands, each of the format and types that it was compiled for."""
        found, semiring = self.computed(operands), self.plan.statement.semiring
        if found.format == self.format:
            return found
        return found.to(self.format) if semiring.is_ordinary else _stored(found, self.format, semiring)

    def computed(self, operands: Mapping[str, Stored]) -> Stored:
        """The result as the kernel leaves it, in a format that may be another one."""
        call = self.last.found(operands)
        if call is not None:
            return call.run(operands)
        plan, (given, sizes) = self.plan, self.taken(operands)
        if plan.own is not None:
            return assembled(plan, given, sizes)
        call = Call(plan, given, sizes)
        if not plan.promises and given is operands:
            self.last.call = call
        return call.run(given)

    def taken(self, operands: Mapping[str, Stored]) -> tuple[Mapping[str, Stored], Mapping[str, int]]:
        """The operands as they are walked, and the extent of each index. Raises TypeError and ValueError for operands
        that it was not compiled for."""
        sizes = extents_of(self.plan.statement, operands)
        given = in_formats(operands, self.plan.converted, self.plan.statement.semiring)
        _check(self.plan, given, sizes)
        return given, sizes

    def __repr__(self) -> str:
        formats = ", ".join(f"{name}: {operand.format} {operand.dtype}" for name, operand in self.plan.operands.items())
        return f"{type(self).__name__}({self.expression}; {formats}; result {self.format} {self.plan.dtype})"


def kernel_of(
    statement: Statement, operands: Mapping[str, Stored], format: GivenFormat, patterns: frozenset[str] = frozenset()
) -> tuple[TensorKernel, Mapping[str, Stored]]:
    """The kernel of a statement for such operands, from memory, else compiled; and the operands in formats that it
    takes as they are.

    Args:
        format: of the result, as of `evaluate`.
        patterns: sparse operands whose elements count as ones.
    """
    wanted = None if format is None else as_format(format, len(statement.result.indices))
    sizes = extents_of(statement, operands)
    specs = specs_of(statement, operands, patterns)
    converted = conversions(statement, specs, wanted)
    if converted:
        operands = in_formats(operands, converted, statement.semiring)
        specs = specs_of(statement, operands, patterns)
    looked_up = {
        index for access in accesses(statement.expression) if specs[access.name].is_sparse for index in access.indices
    }
    static = {index: n for index, n in sizes.items() if looked_up and index not in looked_up and 0 < n <= MOST_STATIC}
    traits = Traits.of(operands)
    return _kernel(_Given(statement, specs, wanted, static, converted, traits)), operands


def own_format(statement: Statement, operands: Mapping[str, Stored], format: GivenFormat) -> Format | None:
    """The format of the result of `kernel_of`; None where the result is stored at the elements of an operand."""
    wanted = None if format is None else as_format(format, len(statement.result.indices))
    specs = specs_of(statement, operands, frozenset())
    converted = conversions(statement, specs, wanted)
    specs = {name: replace(spec, format=converted.get(name, spec.format)) for name, spec in specs.items()}
    terms = terms_of(statement, specs)
    if structure_of(statement, terms, specs, wanted) is not None:
        return None
    if wanted is not None or not is_assembled(statement, terms, specs, wanted):
        return wanted or dense(len(statement.result.indices))
    return _natural(statement, terms, apart(terms, specs), _order(statement, terms, specs, wanted))


def in_formats(
    operands: Mapping[str, Stored], formats: Mapping[str, Format], semiring: Semiring = PLUS_TIMES
) -> Mapping[str, Stored]:
    """The operands, those that are named here in these formats: without the zeros of dense levels, unless gradients of
    them are asked for, or the semiring has another zero.
    """
    if not formats:
        return operands
    found = {
        name: x.with_all(format)
        if is_recorded((x := operands[name]).values) or not semiring.is_ordinary
        else x.to(format)
        for name, format in formats.items()
    }
    return {**operands, **found}


def _stored(found: Stored, format: Format, semiring: Semiring) -> Stored:
    """A result in another format; out of one that does not tell what is absent, without the zeros of the semiring."""
    at, values = found.coordinates()
    if not found.format.exact and not format.is_dense:
        there = np.flatnonzero(values != semiring.zero(found.dtype))
        at, values = at[:, there], taken(values, there)
    return Stored(*packed(format, found.shape, at, values))


class _Given(NamedTuple):
    """What a kernel without a schedule is compiled from, and found again by."""

    statement: Statement
    specs: Mapping[str, Operand]
    wanted: Format | None
    static: Mapping[str, int]
    converted: Mapping[str, Format]
    traits: Traits

    def key(self) -> tuple[Any, ...]:
        named = (tuple(each.items()) for each in (self.specs, self.static, self.converted))
        return str(self.statement), self.wanted, self.traits, *named


def _kernel(given: _Given) -> TensorKernel:
    """The kernel from memory, else compiled."""
    found: TensorKernel = _plans.found(given.key(), lambda: replace(_compiled(given), made=(_kernel, (given,))))
    return found


def _made_again(kind: type[TensorKernel], make: Callable[..., TensorKernel], given: tuple[Any, ...]) -> TensorKernel:
    found = make(*given)
    return kind(found.plan, found.format, found.made)


def _compiled(given: _Given) -> TensorKernel:
    statement, specs, wanted, static, converted, traits = given
    terms = terms_of(statement, specs)
    kept = structure_of(statement, terms, specs, wanted)
    dtype = dtype_of(statement, terms, specs)
    if is_assembled(statement, terms, specs, wanted):
        order = _order(statement, terms, specs, wanted)
        return assembling(statement, terms, specs, wanted, dtype, converted, order)
    written = write("expression", statement, terms, specs, kept, dtype, static)
    kernel = compile_program(*scheduled(written, traits))
    plan = Plan(statement, terms, specs, kept, dtype, static, written, kernel, None, converted)
    made = dense(len(statement.result.indices)) if kept is None else kept.format
    return TensorKernel(plan, made if wanted is None else wanted)


def assembling(
    statement: Statement,
    terms: tuple[Term, ...],
    specs: Mapping[str, Operand],
    wanted: Format | None,
    dtype: str,
    converted: Mapping[str, Format],
    order: Order,
    promises: tuple[Promise, ...] = (),
    parallel: bool = True,
) -> TensorKernel:
    """The kernel of a result that is put together, in loops of an order. parallel: threads have shares of the rows."""
    specs = apart(terms, specs)
    found = assemblies(statement, terms, specs, dtype, order)
    programs = [(each.written, compile_program(each.written.program, each.schedule(parallel))) for each in found]
    first = found[0]
    own: Once | Counted
    if first.limits:
        own = Once(first.limits, order, first.index_dtype)
    else:
        own = Counted(*programs[0], order, first.index_dtype, first.turns, _rows(terms, specs, order))
    plan = Plan(statement, terms, specs, None, dtype, order.static, *programs[-1], own, converted, promises)
    return TensorKernel(plan, _natural(statement, terms, specs, order) if wanted is None else wanted)


def _order(statement: Statement, terms: tuple[Term, ...], specs: Mapping[str, Operand], wanted: Format | None) -> Order:
    return listed(assembled_order(statement, terms, specs, modes_of(statement, wanted)), terms, specs)


def _natural(statement: Statement, terms: tuple[Term, ...], specs: Mapping[str, Operand], order: Order) -> Format:
    """How a result is stored that is put together, if nobody says otherwise."""
    return natural_format(terms, specs, order, [statement.result.indices.index(index) for index in order.result])


def _rows(
    terms: tuple[Term, ...], specs: Mapping[str, Operand], order: Order
) -> Callable[[Mapping[str, Stored]], Structure] | None:
    """What finds the rows of a result, where they are listed."""
    rows = rows_of(terms, specs, order) if order.listed else None
    if rows is None or rows.kept is not None:
        return None if rows is None else rows.of_kept
    kernel = _compiled(_Given(rows.statement, rows.operands, None, {}, {}, Traits()))
    return lambda operands: kernel.computed(rows.given(operands)).structure


def _check(plan: Plan, operands: Mapping[str, Stored], sizes: Mapping[str, int]) -> None:
    patterns = frozenset(name for name, operand in plan.operands.items() if operand.pattern)
    sparse = [operand.structure for operand in plan.operands.values() if operand.is_sparse]
    given = specs_of(plan.statement, operands, patterns, compare=len(set(sparse)) < len(sparse))
    numbers: dict[int, int] = {}
    for name, operand in plan.operands.items():
        # elements that may be at different coordinates may be at the same ones too; the reverse is not compiled
        same = numbers.setdefault(operand.structure, given[name].structure) if operand.is_sparse else 0
        if replace(given[name], structure=operand.structure) != operand or given[name].structure != same:
            mine, other = (
                f"{each.format} {each.dtype}, index_dtype {each.index_dtype}" for each in (operand, given[name])
            )
            raise TypeError(
                f"operand {name} is {other}{_slots(given[name])}, and the kernel was compiled for {mine}"
                f"{_slots(operand)}" + (f" of structure {operand.structure}" if mine == other else "")
            )
    for promise in plan.promises:
        promise.check(sizes, operands)
    for index, extent in plan.static.items():
        if sizes[index] != extent:
            raise ValueError(f"index {index!r} has {sizes[index]} values, and the kernel was compiled for {extent}")


def _slots(operand: Operand) -> str:
    return f", {operand.widths} slots" if operand.widths else ""
