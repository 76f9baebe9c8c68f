"""Running kernels: the arguments of a program from operands, and the result from what it wrote."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import field
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np

from ...compiler import Kernel as CompiledKernel
from ...compiler.codegen.cpu.threads import num_threads
from ...compiler.language.expr import Binary, Const, Expr, SizeOf
from ...compiler.language.interpret import BINARY
from ...compiler.language.layout import chains
from ...compiler.language.types import ACCUMULATOR
from ...frozen import dataclass
from ...runtime.machine import MACHINE
from ..errors import FormatError
from ..storage.format import Format, dense
from ..storage.stored import Stored
from ..storage.structure import LevelArrays, Structure, dense_levels, pack
from ..storage.values import Values, argument, empty_like, is_tensor, to_dtype, zeros_like
from .assembled.appended import ENDS, PLACES, ROOM
from .assembled.assembly import COUNT, FIRST, INDICES, OFFSETS, PLACE, SHARES, VALUES
from .assembled.columns import numbered
from .assembled.hashed import MOST, WIDE
from .assembled.order import Order
from .assembled.workspace import WORD
from .declared import Written
from .notation import Statement
from .result import Kept
from .terms import Operand, Term

MOSTLY = 0.75
"""Results that fill as much of their room stay in it."""


@dataclass(frozen=True, eq=False)
class Counted:
    """What puts a result together beside the kernel that fills it.

    Attributes:
        written: the program that counts the elements of each row.
        order: of the loops.
        index_dtype: of the offsets and coordinates of the result.
        turns: how many values the outermost loop has; None where it is one over the rows.
        rows: finds the rows that may have elements, where they are listed.
    """

    written: Written
    kernel: CompiledKernel
    order: Order
    index_dtype: str
    turns: Expr | None = None
    rows: Callable[[Mapping[str, Stored]], Structure] | None = None


@dataclass(frozen=True, eq=False)
class Once:
    """What puts a result together that its kernel has written in one walk.

    Attributes:
        limits: for each term, the operands of which each has at least as many elements in every row.
        order: of the indices.
        index_dtype: of the offsets and coordinates of the result.
    """

    limits: tuple[tuple[str, ...], ...]
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
        own: of a result that is stored sparse with a structure of its own.
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
    own: Counted | Once | None = None
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


def assembled(plan: Plan, operands: Mapping[str, Stored], sizes: Mapping[str, int]) -> Stored:
    """The result of a plan that is stored sparse with a structure of its own."""
    assert plan.own is not None
    order = plan.own.order.result
    extents = [sizes[index] for index in order]
    above = dense_levels(extents[:-1])
    if isinstance(plan.own, Counted):
        rows = None if plan.own.rows is None else plan.own.rows(operands)
        places = None if rows is None else rows.coordinates()[0]
        last, few = order[-1] if order else "", None
        if plan.own.order.workspace:
            few = numbered(plan.terms, plan.operands, operands, last, extents[-1])
        if few is None:
            offsets, indices, values = _counted(plan, plan.own, operands, sizes, extents, places)
        else:
            given, known = few
            inner = [*extents[:-1], len(known)]
            offsets, indices, values = _counted(plan, plan.own, given, {**sizes, last: len(known)}, inner, places)
            indices = known[indices].astype(indices.dtype)
        if rows is not None and places is not None:
            above, offsets = _listed(rows, places, offsets, plan.own.index_dtype)
    else:
        offsets, indices, values = _once(plan, plan.own, operands, sizes, extents)
    levels = [*above, LevelArrays("compressed", extents[-1], len(indices), offsets, indices)]
    result = plan.statement.result.indices
    format = Format(tuple(level.kind for level in levels), tuple(result.index(index) for index in order))
    structure = Structure(format, tuple(sizes[index] for index in result), tuple(levels))
    return Stored(structure, to_dtype(values, plan.dtype))


def _counted(
    plan: Plan,
    counted: Counted,
    operands: Mapping[str, Stored],
    sizes: Mapping[str, int],
    extents: list[int],
    listed: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, Values]:
    """Offsets, coordinates and values: rows are counted, added up to where they begin, and filled.

    listed: the coordinates of the rows, where not all are visited.
    """
    rows = turns = math.prod(extents[:-1]) if listed is None else listed.shape[1]
    _check_room(plan, rows)
    if counted.turns is not None:
        structures = _structures(plan, operands)
        turns = evaluated(counted.turns, lambda name: _size(name, counted.written, structures, sizes, {}))
    groups, above = max(1, min(num_threads(), turns)), extents[-1] // WORD**2 + 1
    shares = np.arange(groups + 1) * turns // groups
    own: dict[str, Any] = {
        **{"rows": rows, "groups": groups, "above": above, "words": above * WORD, "columns": above * WORD**2},
        **{"turns": turns, SHARES: shares, FIRST: shares[:-1].copy(), COUNT: np.empty(rows, np.int64)},
    }
    if listed is not None:
        own |= {f"{PLACE}{n}": column for n, column in enumerate(listed)}
    counted.kernel(*arguments(plan, counted.written, operands, sizes, own))
    total = int(own[COUNT].sum())
    _check_counts(plan, counted.index_dtype, total, extents)
    values = empty_like(example(plan, operands), total)
    offsets = np.empty(rows + 1, counted.index_dtype)
    offsets[0] = 0
    np.cumsum(own[COUNT], dtype=offsets.dtype, out=offsets[1:])
    if counted.turns is None:  # threads get as many elements each
        shares = _shares(offsets, groups)
        own |= {SHARES: shares, FIRST: shares[:-1].copy()}
    indices = empty_like(offsets, total)
    if extents[-1] > WIDE and own[COUNT].max(initial=0) <= MOST:  # nothing is summed in a value for each column
        own |= {"above": 1, "words": WORD, "columns": WORD**2}
    own |= {"elements": total, OFFSETS: offsets, INDICES: indices, VALUES: values}
    plan.kernel(*arguments(plan, plan.written, operands, sizes, own))
    return offsets, indices, values


def _listed(
    rows: Structure, at: np.ndarray, offsets: np.ndarray, index_dtype: str
) -> tuple[list[LevelArrays], np.ndarray]:
    """The levels of the rows that have elements, and the offsets of what is under them."""
    counts = np.diff(offsets)
    there = counts > 0
    structure, places = pack(rows.format, rows.shape, at[:, there], index_dtype)
    found = np.zeros(structure.positions + 1, offsets.dtype)
    found[1 + places] = counts[there]
    return list(structure.levels), np.cumsum(found, dtype=offsets.dtype)


def _once(
    plan: Plan, once: Once, operands: Mapping[str, Stored], sizes: Mapping[str, int], extents: list[int]
) -> tuple[np.ndarray, np.ndarray, Values]:
    """Offsets, coordinates and values: written where there is room for all, and moved together."""
    rows = extents[0]
    offsets_of = {name: argument(operands[name].structure.levels[1].offsets) for term in once.limits for name in term}

    def walked(row: int) -> int:
        return sum(int(offsets[row]) for offsets in offsets_of.values())

    groups = max(1, min(num_threads(), rows))
    inner = [bisect_left(range(rows), walked(rows) * n // groups, key=walked) for n in range(1, groups)]
    shares = np.array([0, *inner, rows])
    most = [np.min([np.diff(offsets_of[name][shares]) for name in term], axis=0) for term in once.limits]
    room = np.concatenate([[0], np.cumsum(np.sum(most, axis=0, dtype=np.int64))])
    _check_counts(plan, once.index_dtype, int(room[-1]), extents)
    indices = empty_like(np.empty(0, once.index_dtype), int(room[-1]))
    values = empty_like(example(plan, operands), int(room[-1]))
    offsets = np.zeros(rows + 1, once.index_dtype)
    own: dict[str, Any] = {"turns": rows, "groups": groups, SHARES: shares, FIRST: shares[:-1].copy()}
    own |= {ROOM: room, PLACES: int(room[-1]), ENDS: offsets[1:], INDICES: indices, VALUES: values}
    plan.kernel(*arguments(plan, plan.written, operands, sizes, own))
    # the ends of rows are counted from the beginning of their share
    counts = [int(offsets[last]) if last > first else 0 for first, last in pairwise(shares)]
    pieces, total = list(zip(room.tolist(), counts)), sum(counts)
    for (first, last), before in zip(pairwise(shares), accumulate(counts, initial=0)):
        offsets[1 + first : 1 + last] += before
    return offsets, _joined(indices, pieces, total), _joined(values, pieces, total)


def _joined(x: Values, pieces: list[tuple[int, int]], total: int) -> Values:
    """The pieces, each (begin, count), one after the other: in place where they fill most of it."""
    found = x if total >= MOSTLY * len(x) else empty_like(x[:0], total)
    source, to = (each.numpy() if is_tensor(each) else each for each in (x, found))
    here = 0
    for begin, count in pieces:
        if found is not x or here != begin:
            # a memoryview moves at once what NumPy, where pieces overlap, copies twice
            memoryview(to)[here : here + count] = memoryview(source)[begin : begin + count]
        here += count
    return found[:total]


def _shares(offsets: np.ndarray, groups: int) -> np.ndarray:
    """(groups + 1,) where shares of the rows begin that have about as many elements each."""
    shares = np.searchsorted(offsets, (np.arange(groups + 1) * int(offsets[-1]) // groups).astype(offsets.dtype))
    shares[0], shares[-1] = 0, len(offsets) - 1
    return shares


def _check_room(plan: Plan, rows: int) -> None:
    if (need := 16 * rows) > MACHINE:
        raise FormatError(
            f"the result of {plan.statement} has {rows} rows, and counting the elements of each takes "
            f"{need / 2**30:.0f} GiB, more than there is; store the operands by compressed levels, as 'dcsr' and 'csf' "
            "do, so that rows without elements take nothing"
        )


def _check_counts(plan: Plan, index_dtype: str, total: int, extents: list[int]) -> None:
    if max(total, *extents) > np.iinfo(index_dtype).max:
        raise FormatError(
            f"the result of {plan.statement} may have {total} elements, more than {index_dtype} can count; "
            "give an operand made with index_dtype='int64'"
        )


def example(plan: Plan, operands: Mapping[str, Stored]) -> Values:
    """No values, in the type that is summed in, of PyTorch where an operand is."""
    found = next((each.values for each in operands.values() if is_tensor(each.values)), np.empty(0))
    return to_dtype(found[:0], ACCUMULATOR[plan.dtype])


def result_of(plan: Plan, like: Values, count: int) -> Values:
    """`count` values like an example, which the kernel writes all of: zeros where it leaves some out."""
    leaves_out = plan.kept is not None and ("slots" in plan.kept.format.levels or plan.kept.format.masked)
    return zeros_like(like, count) if leaves_out else empty_like(like, count)


def arguments(
    plan: Plan, written: Written, operands: Mapping[str, Stored], sizes: Mapping[str, int], own: Mapping[str, Any]
) -> list[Any]:
    """What the parameters of a program are; own: those that no operand has."""
    structures = _structures(plan, operands)

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


def _structures(plan: Plan, operands: Mapping[str, Stored]) -> dict[int, Structure]:
    return {operand.structure: operands[name].structure for name, operand in plan.operands.items() if operand.is_sparse}


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
