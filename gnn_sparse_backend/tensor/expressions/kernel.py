"""Kernels of expressions: compiled for formats and types, called with tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...compiler import CpuSchedule, Program, compile_program
from ...compiler import Kernel as CompiledKernel
from ...compiler.cache.bounded import shared
from ...compiler.language.layout import chains
from ..storage.format import Format, as_format, dense
from ..storage.stored import GivenFormat, Stored, of_dense
from ..storage.structure import LevelArrays, Structure
from ..storage.values import Values, argument, is_tensor, to_dtype, zeros_like
from .notation import Access, Statement, accesses
from .program import Written, write
from .result import Kept, accumulator, dtype_of, kept_of
from .terms import Operand, Term, terms_of

MOST_STATIC = 128
"""Extents of dense indices up to this are compiled in, so that loops over them are vectors."""

_plans = shared("tensor expressions", 1024)


@dataclass(frozen=True, eq=False)
class _Plan:
    """A statement compiled for operands of such formats and types."""

    statement: Statement
    terms: tuple[Term, ...]
    operands: Mapping[str, Operand]
    kept: Kept | None
    dtype: str
    static: Mapping[str, int]
    written: Written
    kernel: CompiledKernel


@dataclass(frozen=True, eq=False)
class TensorKernel:
    """An expression compiled for operands of certain formats and types; any numbers of rows and elements are taken.

    Made by `compile`. Call it with the operands by name, as `kernel(B=..., C=...)`; it returns the result. Raises
    TypeError and ValueError for operands that it was not compiled for.

    Attributes:
        format: of the result.
    """

    plan: _Plan
    format: Format

    def stages(self, *names: str) -> str:
        """The texts of stage I, the schedule, stages II and III and the assembly, to be printed, or of those named:
        "program", "plan", "stage2", "stage3", "assembly".
        """
        return self.plan.kernel.stages(*names)

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
        found = self.computed(operands)
        return found if found.format == self.format else found.to(self.format)

    def computed(self, operands: Mapping[str, Stored]) -> Stored:
        """The result as the kernel leaves it, in a format that may be another one."""
        sizes = extents_of(self.plan.statement, operands)
        _check(self.plan, operands, sizes)
        return _run(self.plan, operands, sizes)

    def __repr__(self) -> str:
        formats = ", ".join(f"{name}: {operand.format} {operand.dtype}" for name, operand in self.plan.operands.items())
        return f"{type(self).__name__}({self.expression}; {formats}; result {self.format} {self.plan.dtype})"


def kernel_of(
    statement: Statement, operands: Mapping[str, Stored], format: GivenFormat, patterns: frozenset[str] = frozenset()
) -> TensorKernel:
    """The kernel of a statement for such operands: from memory, else compiled.

    Args:
        format: of the result. None: at the coordinates of the sparse operand where the result has all of its indices,
            otherwise an ordinary array.
        patterns: sparse operands whose elements count as ones.
    """
    wanted = None if format is None else as_format(format, len(statement.result.indices))
    specs = _specs(statement, operands, patterns)
    sizes = extents_of(statement, operands)
    looked_up = {
        index for access in accesses(statement.expression) if specs[access.name].is_sparse for index in access.indices
    }
    static = {index: n for index, n in sizes.items() if looked_up and index not in looked_up and 0 < n <= MOST_STATIC}
    key = str(statement), tuple(specs.items()), wanted, tuple(static.items())
    kernel: TensorKernel = _plans.found(key, lambda: _compiled(statement, specs, wanted, static))
    return kernel


def _compiled(
    statement: Statement, specs: Mapping[str, Operand], wanted: Format | None, static: Mapping[str, int]
) -> TensorKernel:
    terms = terms_of(statement, specs)
    kept = kept_of(statement, terms, specs)
    if kept is not None:
        whole = set(kept.access.indices) <= set(statement.result.indices)
        if not whole if wanted is None else wanted.is_dense:
            kept = None
    dtype = dtype_of(statement, terms, specs)
    written = write("expression", statement, terms, specs, kept, dtype, static)
    plan = _Plan(statement, terms, specs, kept, dtype, static, written, compile_program(written.program, CpuSchedule()))
    made = dense(len(statement.result.indices)) if kept is None else kept.format
    return TensorKernel(plan, made if wanted is None else wanted)


def _specs(statement: Statement, operands: Mapping[str, Stored], patterns: frozenset[str]) -> dict[str, Operand]:
    found: dict[str, Operand] = {}
    known: list[Structure] = []
    for name in dict.fromkeys(access.name for access in accesses(statement.expression)):
        stored = operands[name]
        structure = stored.structure
        if stored.format.is_dense:
            found[name] = Operand(stored.format, stored.dtype)
            continue
        number = next((n for n, other in enumerate(known) if same_structure(structure, other)), len(known))
        known += [structure] if number == len(known) else []
        widths = tuple(level.width for level in structure.levels if level.kind == "slots")
        found[name] = Operand(stored.format, stored.dtype, stored.index_dtype, number, name in patterns, widths)
    return found


def same_structure(a: Structure, b: Structure) -> bool:
    """Whether elements are at the same coordinates, in the same positions."""
    if a.levels is b.levels and a.format == b.format:
        return True
    if a.format != b.format or a.shape != b.shape or a.positions != b.positions or a.index_dtype != b.index_dtype:
        return False
    arrays = [((x.offsets, y.offsets), (x.indices, y.indices)) for x, y in zip(a.levels, b.levels)]
    pairs = [*(pair for level in arrays for pair in level), (a.mask, b.mask)]
    return all(x is y or (x is not None and y is not None and np.array_equal(x, y)) for x, y in pairs)


def extents_of(statement: Statement, operands: Mapping[str, Stored]) -> dict[str, int]:
    """The extent of each index. Raises NotationError, which shows where the operands disagree."""
    found: dict[str, tuple[int, Access]] = {}
    for access in accesses(statement.expression):
        if access.name not in operands:
            statement.refuse(f"{access.name} is not given; there are {_listed(operands)}", access.at, len(access.name))
        shape = operands[access.name].shape
        if len(shape) != len(access.indices):
            statement.refuse(
                f"{access.name} has {len(shape)} modes, shape {shape}, and {len(access.indices)} indices",
                access.at,
                len(str(access)),
            )
        for index, extent in zip(access.indices, shape):
            before, where = found.setdefault(index, (extent, access))
            if before != extent:
                statement.refuse(
                    f"index {index!r} has {extent} values in {access}, and {before} in {where}",
                    access.at,
                    len(str(access)),
                )
    result = statement.result
    for index in result.indices:
        if index not in found:
            statement.refuse(f"index {index!r} of the result is in no operand", result.at, len(str(result)))
    return {index: extent for index, (extent, _) in found.items()}


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "none"


def _check(plan: _Plan, operands: Mapping[str, Stored], sizes: Mapping[str, int]) -> None:
    patterns = frozenset(name for name, operand in plan.operands.items() if operand.pattern)
    given = _specs(plan.statement, operands, patterns)
    for name, operand in plan.operands.items():
        if given[name] != operand:
            mine, other = (
                f"{each.format} {each.dtype}, index_dtype {each.index_dtype}" for each in (operand, given[name])
            )
            raise TypeError(
                f"operand {name} is {other}{_slots(given[name])}, and the kernel was compiled for {mine}"
                f"{_slots(operand)}" + (f" of structure {operand.structure}" if mine == other else "")
            )
    for index, extent in plan.static.items():
        if sizes[index] != extent:
            raise ValueError(f"index {index!r} has {sizes[index]} values, and the kernel was compiled for {extent}")


def _slots(operand: Operand) -> str:
    return f", {operand.widths} slots" if operand.widths else ""


def _run(plan: _Plan, operands: Mapping[str, Stored], sizes: Mapping[str, int]) -> Stored:
    structures = {
        operand.structure: operands[name].structure for name, operand in plan.operands.items() if operand.is_sparse
    }
    example = next((each.values for each in operands.values() if is_tensor(each.values)), np.empty(0))
    shape = tuple(sizes[index] for index in plan.statement.result.indices)
    kept = None if plan.kept is None else _kept_structure(plan, operands, sizes)
    count = int(np.prod(shape, dtype=np.int64)) if kept is None else kept.positions
    out = zeros_like(to_dtype(example[:0], accumulator(plan.dtype)), count)
    arguments = [
        _argument(plan, name, operands, structures, sizes, out) for name in plan.written.program.parameter_names
    ]
    plan.kernel(*arguments)
    out = to_dtype(out, plan.dtype)
    return of_dense(out.reshape(shape)) if kept is None else Stored(kept, out)


def _argument(
    plan: _Plan,
    name: str,
    operands: Mapping[str, Stored],
    structures: Mapping[int, Structure],
    sizes: Mapping[str, int],
    out: Values,
) -> Any:
    """What a parameter of the program is."""
    written = plan.written
    if name in written.sizes:
        kind, *rest = written.sizes[name]
        return sizes[rest[0]] if kind == "index" else getattr(structures[kind].levels[rest[0]], rest[1])
    if name in written.arrays:
        number, level, what = written.arrays[name]
        levels = structures[number].levels
        if what == "steps":
            above = levels[level - 1].positions
            return (np.arange(above + 1) * levels[level].extent).astype(structures[number].index_dtype)
        return argument(getattr(levels[level], what))
    if name in written.masks:
        mask = argument(structures[written.masks[name]].mask)
        return mask.reshape(_shape_of(plan, name, structures[written.masks[name]]))
    operand = written.buffers[name]
    stored = operands.get(operand)
    values = out if stored is None else argument(stored.values)
    buffer = written.program.buffer(name)
    if not buffer.axes:
        return values.reshape(1)
    if stored is not None and stored.format.is_dense:
        return values.reshape(tuple(stored.shape[mode] for mode in stored.format.modes_in_order))
    if stored is not None:
        return values.reshape(_shape_of(plan, name, stored.structure))
    if plan.kept is None:
        return values.reshape(tuple(sizes[index] for index in plan.statement.result.indices))
    return values.reshape(_shape_of(plan, name, _kept_structure(plan, operands, sizes)))


def _shape_of(plan: _Plan, name: str, structure: Structure) -> tuple[int, ...]:
    """The shape in which values are passed: one dimension for each tree of axes."""
    axes = plan.written.program.buffer(name).axes
    level_of = dict(zip(axes[len(axes) - len(structure.levels) :], structure.levels))
    leaves = [chain[-1] for chain in chains(axes)]
    return tuple(level_of[leaf].extent if leaf.parent is None else level_of[leaf].positions for leaf in leaves)


def _kept_structure(plan: _Plan, operands: Mapping[str, Stored], sizes: Mapping[str, int]) -> Structure:
    kept = plan.kept
    assert kept is not None
    source = operands[kept.access.name].structure
    levels = list(source.levels[: kept.levels])
    for index in kept.dense:
        levels.append(LevelArrays("dense", sizes[index], levels[-1].positions * sizes[index]))
    shape = tuple(sizes[index] for index in plan.statement.result.indices)
    return Structure(kept.format, shape, tuple(levels), source.mask)
