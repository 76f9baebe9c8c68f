"""Running kernels: the arguments of a program from operands, and the result from what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...compiler import Kernel as CompiledKernel
from ...compiler.codegen.cpu.threads import num_threads
from ...compiler.language.expr import Binary, Const, Expr, SizeOf
from ...compiler.language.interpret import BINARY
from ...compiler.language.layout import chains
from ..errors import FormatError
from ..storage.format import Format, dense
from ..storage.stored import Stored
from ..storage.structure import LevelArrays, Structure, dense_levels
from ..storage.values import Values, argument, empty_like, is_tensor, to_dtype, zeros_like
from .assembled.assembly import COUNT, INDICES, OFFSETS, VALUES
from .assembled.order import Order
from .assembled.workspace import FIRST, SHARES, WORD
from .declared import Written
from .notation import Statement
from .result import Kept, accumulator
from .terms import Operand, Term


@dataclass(frozen=True, eq=False)
class Counted:
    """What puts a result together beside the kernel that fills it.

    Attributes:
        written: the program that counts the elements of each row.
        order: of the indices.
        index_dtype: of the offsets and coordinates of the result.
    """

    written: Written
    kernel: CompiledKernel
    order: Order
    index_dtype: str


class Promise(Protocol):
    """What was said of operands."""

    def check(self, sizes: Mapping[str, int], operands: Mapping[str, Stored]) -> None:
        """Raise ValueError where it is not true."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A statement compiled for operands of such formats and types.

    Attributes:
        kept: the structure of an operand that the result has; None of an ordinary array and of one with its own.
        static: indices whose extent is compiled in.
        counted: of a result that is stored sparse with a structure of its own.
        converted: formats that operands are converted to, since theirs cannot be walked together.
        promises: what a schedule was told of operands.
    """

    statement: Statement
    terms: tuple[Term, ...]
    operands: Mapping[str, Operand]
    kept: Kept | None
    dtype: str
    static: Mapping[str, int]
    written: Written
    kernel: CompiledKernel
    counted: Counted | None = None
    converted: Mapping[str, Format] = field(default_factory=dict)
    promises: tuple[Promise, ...] = ()


def result_structure(plan: Plan, operands: Mapping[str, Stored], sizes: Mapping[str, int]) -> Structure:
    """Where the result of a plan has its elements: that of an operand, or of an ordinary array."""
    if plan.kept is not None:
        return _kept_structure(plan, operands, sizes)
    shape = tuple(sizes[index] for index in plan.statement.result.indices)
    return Structure(dense(len(shape)), shape, tuple(dense_levels(shape)))


def values_shape(plan: Plan, structure: Structure) -> tuple[int, ...]:
    """The shape in which a kernel takes the values of its result."""
    return (structure.shape or (1,)) if plan.kept is None else _shape_of(plan.written, "", structure)


def assembled(plan: Plan, counted: Counted, operands: Mapping[str, Stored], sizes: Mapping[str, int]) -> Stored:
    """The result of a plan whose rows are counted, added up to where they begin, and filled."""
    extents = [sizes[index] for index in counted.order.result]
    rows = int(np.prod(extents[:-1], dtype=np.int64))
    groups, above = max(1, min(num_threads(), rows)), extents[-1] // WORD**2 + 1
    shares = np.arange(groups + 1) * rows // groups
    own: dict[str, Any] = {
        **{"rows": rows, "groups": groups, "above": above, "words": above * WORD, "columns": above * WORD**2},
        **{SHARES: shares, FIRST: shares[:-1].copy(), COUNT: np.empty(rows, np.int64)},
    }
    counted.kernel(*arguments(plan, counted.written, operands, sizes, own))
    total = int(own[COUNT].sum())
    if max(total, *extents) > np.iinfo(counted.index_dtype).max:
        raise FormatError(
            f"the result of {plan.statement} has {total} elements, more than {counted.index_dtype} can count; "
            "give an operand made with index_dtype='int64'"
        )
    values = empty_like(_example(plan, operands), total)
    offsets = np.empty(rows + 1, counted.index_dtype)
    offsets[0] = 0
    np.cumsum(own[COUNT], dtype=offsets.dtype, out=offsets[1:])
    # threads get as many elements each
    shares = np.searchsorted(offsets, (np.arange(groups + 1) * total // groups).astype(offsets.dtype))
    shares[0], shares[-1] = 0, rows
    own |= {SHARES: shares, FIRST: shares[:-1].copy()}
    indices = empty_like(offsets, total)
    own |= {"elements": total, OFFSETS: offsets, INDICES: indices, VALUES: values}
    plan.kernel(*arguments(plan, plan.written, operands, sizes, own))
    levels = [*dense_levels(extents[:-1]), LevelArrays("compressed", extents[-1], total, offsets, indices)]
    result = plan.statement.result.indices
    order = tuple(result.index(index) for index in counted.order.result)
    format = Format(tuple(level.kind for level in levels), order)
    structure = Structure(format, tuple(sizes[index] for index in result), tuple(levels))
    return Stored(structure, to_dtype(values, plan.dtype))


def _example(plan: Plan, operands: Mapping[str, Stored]) -> Values:
    """No values, in the type that is summed in, of PyTorch where an operand is."""
    example = next((each.values for each in operands.values() if is_tensor(each.values)), np.empty(0))
    return to_dtype(example[:0], accumulator(plan.dtype))


def result_of(plan: Plan, operands: Mapping[str, Stored], count: int) -> Values:
    """So many values, which the kernel writes all of: zeros where it leaves some out."""
    if plan.kept is not None and ("slots" in plan.kept.format.levels or plan.kept.format.masked):
        return zeros_like(_example(plan, operands), count)
    return empty_like(_example(plan, operands), count)


def arguments(
    plan: Plan, written: Written, operands: Mapping[str, Stored], sizes: Mapping[str, int], own: Mapping[str, Any]
) -> list[Any]:
    """What the parameters of a program are; own: those that no operand has."""
    structures = {
        operand.structure: operands[name].structure for name, operand in plan.operands.items() if operand.is_sparse
    }

    def of(name: str) -> Any:
        if name in written.sizes:
            return _size(name, written, structures, sizes, own)
        if name in written.arrays:
            number, level, what = written.arrays[name]
            if number < 0:
                return own[what]
            levels = structures[number].levels
            if what == "steps":
                above = levels[level - 1].positions
                return (np.arange(above + 1) * levels[level].extent).astype(structures[number].index_dtype)
            return argument(getattr(levels[level], what))
        if name in written.masks:
            structure = structures[written.masks[name]]
            return argument(structure.mask).reshape(_shape_of(written, name, structure))
        operand = written.buffers[name]
        if operand in own:
            return own[operand]
        stored = operands[operand]
        values = argument(stored.values)
        if not written.program.buffer(name).axes:
            return values.reshape(1)
        if stored.format.is_dense:
            return values.reshape(tuple(stored.shape[mode] for mode in stored.format.modes_in_order))
        return values.reshape(_shape_of(written, name, stored.structure))

    return [of(name) for name in written.program.parameter_names]


def _size(
    name: str,
    written: Written,
    structures: Mapping[int, Structure],
    sizes: Mapping[str, int],
    own: Mapping[str, Any],
) -> Any:
    # no closure that calls itself: it would keep the structures until the garbage collector runs
    kind, *rest = written.sizes[name]
    if kind == "extent":
        return evaluated(rest[0], lambda inner: _size(inner, written, structures, sizes, own))
    if kind == "index":
        return sizes[rest[0]]
    return own[kind] if kind in own else getattr(structures[kind].levels[rest[0]], rest[1])


def evaluated(extent: Expr, size: Callable[[str], int]) -> int:
    """The value of an expression of sizes."""
    match extent:
        case Const():
            return int(extent.value)
        case SizeOf():
            return int(size(extent.size.name))
        case Binary():
            return int(BINARY[extent.op](evaluated(extent.a, size), evaluated(extent.b, size)))
    raise AssertionError(extent)


def _shape_of(written: Written, name: str, structure: Structure) -> tuple[int, ...]:
    """The shape in which values are passed, one dimension for each tree of axes; name: of a buffer, or VALUES."""
    program = written.program
    buffer = program.buffer(name or next(b for b, what in written.buffers.items() if what == VALUES))
    level_of = dict(zip(reversed(buffer.axes), reversed(structure.levels)))
    leaves = [chain[-1] for chain in chains(buffer.axes)]
    # a dense axis below others counts the values of one element above
    below = [leaf.parent is None and leaf is not buffer.axes[0] for leaf in leaves]
    found = [level_of[leaf] for leaf in leaves]
    return tuple(level.extent if is_below else level.positions for level, is_below in zip(found, below))


def _kept_structure(plan: Plan, operands: Mapping[str, Stored], sizes: Mapping[str, int]) -> Structure:
    kept = plan.kept
    assert kept is not None
    source = operands[kept.access.name].structure
    levels = list(source.levels[: kept.levels])
    levels += dense_levels([sizes[index] for index in kept.dense], levels[-1].positions)
    shape = tuple(sizes[index] for index in plan.statement.result.indices)
    return Structure(kept.format, shape, tuple(levels), source.mask)
