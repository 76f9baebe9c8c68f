"""The meaning of stage I programs, run slowly and obviously in float64: the oracle for everything below.

It visits elements one by one in Python and finds coordinates by looking through them. It shares no code with the
lowering. What is stored in no place yet is NaN, so a value that is read before it is written shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from .axes import Axis, Size, StageIError, given
from .expr import Binary, Call, Cast, Const, Expr, Load, Offset, Owner, Present, Select, SizeOf, Stored, Var
from .layout import chains, elements
from .program import Buffer, Iteration, Program, Store
from .types import FLOATS

Offsets: TypeAlias = dict[Axis, int]
"""Where the elements lie that are being visited."""
Visiting: TypeAlias = dict[Var, Axis]
"""The axis that each variable walks along."""

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": lambda a, b: a if a < b else b,
    "max": lambda a, b: a if a > b else b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "&": lambda a, b: int(a) & int(b),
    "|": lambda a, b: int(a) | int(b),
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "abs": abs,
}
_CALLS: dict[str, Callable[[Any], Any]] = {
    **FUNCTIONS,
    "is_nan": np.isnan,
    "low_half": lambda word: np.float64(np.array(word % 65536 * 65536, np.uint32).view(np.float32)),
    "high_half": lambda word: np.float64(np.array(word // 65536 * 65536, np.uint32).view(np.float32)),
    "bfloat16_bits": lambda x: _bfloat16_bits(x),
    "bit": lambda n: 1 << n,
    "bit_count": lambda x: x.bit_count(),
    "trailing_zeros": lambda x: (x & -x).bit_length() - 1,
}


def _bfloat16_bits(x: float) -> int:
    """Bits of the nearest bfloat16 number to x, ties to even."""
    below, exact = divmod(int(np.array(x, np.float32).view(np.uint32)), 65536)
    if np.isnan(x):
        return below | 64
    return below + (exact > 32768 or (exact == 32768 and below % 2 == 1))


def interpret(program: Program, arguments: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Run `program` and return the values of all its parameters after the run.

    Args:
        program: a stage I program.
        arguments: an integer for each size, an integer array for each index array, and for each parameter an array of
            its stored shape (one dimension per axis tree), copied, floating values as float64.

    Raises StageIError for arguments that are not there, and of another shape.
    """
    missing = [name for name in program.parameter_names if name not in arguments]
    if missing:
        raise StageIError(f"interpret: program {program.name!r} has no argument for {', '.join(missing)}")
    return _Interpreter(program, arguments).run()


def _above(axis: Axis, offsets: Offsets) -> int | None:
    """Where the element lies under which those of the axis are; None for a root, and where none is visited."""
    return None if axis.parent is None else offsets.get(axis.parent)


class _Interpreter:
    def __init__(self, program: Program, arguments: Mapping[str, Any]) -> None:
        self.program = program
        self.sizes = {s: int(arguments[s.name]) for s in program.sizes}
        names = [a for axis in program.axes for a in (axis.indptr, axis.indices) if a]
        self.arrays = {name: [int(i) for i in np.asarray(arguments[name])] for name in names}
        self.values: dict[Buffer, np.ndarray] = {}
        for buffer in program.buffers:
            self.values[buffer] = self._empty(buffer)
            if buffer.scope == "param":
                given = np.asarray(arguments[buffer.name])
                if given.shape != self.values[buffer].shape:
                    raise StageIError(
                        f"buffer {buffer.name!r} is stored with shape {self.values[buffer].shape}, got {given.shape}"
                    )
                self.values[buffer][...] = given

    def run(self) -> dict[str, np.ndarray]:
        with np.errstate(all="ignore"):
            for iteration in self.program.iterations:
                self._iteration(iteration, {}, {})
        return {b.name: self.values[b] for b in self.program.parameters}

    def _size(self, extent: int | Size) -> int:
        return self.sizes[extent] if isinstance(extent, Size) else extent

    def _empty(self, buffer: Buffer) -> np.ndarray:
        shape = tuple(elements(chain[-1], self._size) for chain in chains(buffer.axes)) or (1,)
        if buffer.dtype in FLOATS:
            return np.full(shape, np.nan)
        return np.zeros(shape, np.int64)

    # offsets: where the visited element of each axis lies. coordinates: what each iterator stands for.
    def _iteration(self, it: Iteration, offsets: dict[Axis, int], axis_of: dict[Var, Axis]) -> None:
        limits = {b.axis: (b.by, *(self._value(e, offsets, axis_of) for e in (b.low, b.high))) for b in it.bounds}
        axis_of = {**axis_of, **{it.variable(a): a for a in it.axes}}
        if it.init:
            for at in self._elements(it.spatial, offsets):
                for store in it.init:
                    self._store(store, at, axis_of)
        for at in self._elements(it.axes, offsets):
            if not all(self._within(axis, at, *limit) for axis, limit in limits.items()):
                continue
            if it.where is not None and not self._value(it.where, at, axis_of):
                continue
            for buffer in it.locals:
                self.values[buffer] = self._empty(buffer)
            for statement in it.body:
                if isinstance(statement, Iteration):
                    self._iteration(statement, at, axis_of)
                else:
                    self._store(statement, at, axis_of)

    def _elements(self, axes: tuple[Axis, ...], offsets: dict[Axis, int]) -> Iterator[dict[Axis, int]]:
        """Every element of the axes in lexicographic order, padded slots left out."""
        if not axes:
            yield offsets
            return
        for offset in self._slots(axes[0], _above(axes[0], offsets)):
            if not (axes[0].padded and self._coordinate(axes[0], offset, offsets) < 0):
                yield from self._elements(axes[1:], {**offsets, axes[0]: offset})

    def _within(self, axis: Axis, at: Offsets, by: str, low: int, high: int) -> bool:
        """Whether the element of an axis at which a visit is lies within bounds."""
        if by == "coordinate":
            return low <= self._coordinate(axis, at[axis], at) < high
        return low <= at[axis] - self._slots(axis, _above(axis, at)).start < high

    def _offset(self, expr: Offset, offsets: Offsets, axis_of: Visiting) -> int:
        named = expr.axis.chain[: len(expr.indices)]
        found = self._located(named, expr.indices, offsets, axis_of, f"{expr.part} of axis {expr.axis.name!r}")
        if found is None:
            return -1 if expr.part == "offset_of" else 0
        if expr.part == "offset_of":
            return found[expr.axis]
        slots = self._slots(expr.axis, _above(expr.axis, found))
        return slots.start if expr.part == "begin_of" else slots.stop

    def _owner(self, axis: Axis, at: int) -> int:
        if not axis.is_variable:
            width = self._size(axis.stored)
            return min(at // width, elements(given(axis.parent), self._size) - 1) if width else -1
        return max((p for p, begin in enumerate(self.arrays[given(axis.indptr)][:-1]) if begin <= at), default=-1)

    def _slots(self, axis: Axis, parent: int | None) -> range:
        if axis.parent is None:
            return range(self._size(axis.length))
        if axis.is_variable:
            indptr = self.arrays[given(axis.indptr)]
            return range(indptr[given(parent)], indptr[given(parent) + 1])
        width = self._size(axis.stored)
        return range(given(parent) * width, (given(parent) + 1) * width)

    def _coordinate(self, axis: Axis, offset: int, offsets: dict[Axis, int]) -> int:
        if axis.is_sparse:
            return self.arrays[given(axis.indices)][offset]
        return offset - self._slots(axis, _above(axis, offsets)).start

    def _place(
        self, buffer: Buffer, indices: tuple[Expr, ...], offsets: Offsets, axis_of: Visiting
    ) -> tuple[int, ...] | None:
        """The index of an access in the stored array, or None where no such element is stored."""
        found = self._located(buffer.axes, indices, offsets, axis_of, f"buffer {buffer.name!r}")
        return None if found is None else tuple(found[chain[-1]] for chain in chains(buffer.axes)) or (0,)

    def _located(
        self, axes: tuple[Axis, ...], indices: tuple[Expr, ...], offsets: Offsets, axis_of: Visiting, what: str
    ) -> Offsets | None:
        """Where the element of each axis lies that the indices name, or None where one is not stored."""
        found: dict[Axis, int] = {}
        visited: set[Axis] = set()
        for axis, expr in zip(axes, indices, strict=True):
            visiting = isinstance(expr, Var) and axis_of[expr] == axis
            if visiting and (axis.parent is None or axis.parent in visited):
                found[axis] = offsets[axis]
                visited.add(axis)
                continue
            wanted = self._value(expr, offsets, axis_of)
            slots = self._slots(axis, _above(axis, found))
            if axis.is_sparse:
                matches = [o for o in slots if self.arrays[given(axis.indices)][o] == wanted]
                if wanted < 0 or not matches:
                    return None
                found[axis] = matches[0]
            elif 0 <= wanted < len(slots):
                found[axis] = slots.start + wanted
            elif any(a.parent == axis and a.is_sparse for a in axes):
                return None
            else:
                raise StageIError(f"{what}: coordinate {wanted} lies outside axis {axis.name!r} of length {len(slots)}")
        return found

    def _store(self, store: Store, offsets: Offsets, axis_of: Visiting) -> None:
        place = self._place(store.buffer, store.indices, offsets, axis_of)
        value = self._value(store.value, offsets, axis_of)
        if place is not None:
            self.values[store.buffer][place] = value

    def _value(self, expr: Expr, offsets: Offsets, axis_of: Visiting) -> Any:
        def value(e: Expr) -> Any:
            return self._value(e, offsets, axis_of)

        match expr:
            case Const():
                return np.float64(expr.value) if expr.dtype in FLOATS else expr.value
            case Var():
                axis = axis_of[expr]
                return self._coordinate(axis, offsets[axis], offsets)
            case SizeOf():
                return self.sizes[expr.size]
            case Load():
                place = self._place(expr.buffer, expr.indices, offsets, axis_of)
                zero = np.float64(0) if expr.dtype in FLOATS else 0
                if place is None:
                    return zero
                return self.values[expr.buffer][place] if expr.dtype in FLOATS else int(self.values[expr.buffer][place])
            case Present():
                return self._place(expr.load.buffer, expr.load.indices, offsets, axis_of) is not None
            case Stored():
                what = f"axis {expr.axis.name!r}"
                return self._located(expr.axis.chain, expr.indices, offsets, axis_of, what) is not None
            case Offset():
                return self._offset(expr, offsets, axis_of)
            case Owner():
                return self._owner(expr.axis, value(expr.at))
            case Binary():
                if expr.op in ("and", "or"):  # the second operand may be meaningless where the first decides
                    return (value(expr.a) and value(expr.b)) if expr.op == "and" else (value(expr.a) or value(expr.b))
                return BINARY[expr.op](value(expr.a), value(expr.b))
            case Call():
                return _CALLS[expr.function](value(expr.argument))
            case Select():
                return value(expr.then) if value(expr.condition) else value(expr.otherwise)
            case Cast():
                found = value(expr.value)
                return np.float64(found) if expr.dtype in FLOATS else int(np.int64(found).astype(expr.dtype))
        raise StageIError(f"cannot interpret {expr!r}")
