"""Running stage II and stage III functions in Python, statement by statement: the oracle for lowering and flattening.

Stage II buffers that stand on sparse axes have no array of their own shape; their accesses are addressed through the
axis tree, with the function's own index arrays. Loops of every kind run serially, in order, and floating-point values
are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...deferred import s_tir, tirx, tirx_buffer, tvm
from ..codegen.cpu.atomics import ADD as ATOMIC_ADD
from ..language.axes import Axis, Size, given
from ..language.interpret import BINARY, FUNCTIONS
from ..language.layout import chains, elements, offset
from ..language.types import FLOATS
from .function import PositionFunction

# TVM's names of the operations, in the order in which the interpreter of stage I has them
_NAMES = "Add Sub Mul Div FloorDiv FloorMod Min Max LT LE GT GE EQ NE BitwiseAnd BitwiseOr".split()
_BINARY = dict(zip(_NAMES, BINARY.values(), strict=True))
_CALLS: dict[str, Callable[[Any], Any]] = {
    **FUNCTIONS,
    "fabs": abs,
    "isnan": np.isnan,
    "popcount": lambda x: int(x).bit_count(),
}
# on non-negative integers
_BITWISE = {
    "LShift": lambda a, b: a << b,
    "RShift": lambda a, b: a >> b,
}


def run_position(stage2: PositionFunction, arguments: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Run a stage II function; arguments and results as in `language.interpret.interpret`."""
    return _Machine(stage2.function, arguments, stage2).run()


def run_loops(function: tirx.PrimFunc, arguments: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Run a stage III function; arguments and results as in `language.interpret.interpret`."""
    return _Machine(function, arguments, None).run()


class _Machine:
    def __init__(self, function: tirx.PrimFunc, arguments: Mapping[str, Any], stage2: PositionFunction | None) -> None:
        self.function, self.stage2 = function, stage2
        self.scalars: dict[tirx.Var, Any] = {}
        self.memory: dict[tirx.Buffer, np.ndarray] = {}
        self.by_name: dict[str, tirx.Var] = {p.name: p for p in function.params}
        for param in function.params:
            given = arguments[param.name]
            if tirx_buffer.is_buffer_var(param):
                kind = float if str(param.ty.dtype) in FLOATS else np.int64
                self.memory[param] = np.array(given, dtype=kind)
            else:
                self.scalars[param] = int(given)

    def run(self) -> dict[str, np.ndarray]:
        with np.errstate(all="ignore"):
            self._run(self.function.body)
        return {p.name: self.memory[p] for p in self.function.params if tirx_buffer.is_buffer_var(p)}

    def _place(self, buffer: tirx.Buffer, indices: Sequence[tirx.Expr]) -> tuple[int, ...]:
        at = [int(self._value(i)) for i in indices]
        axes = self.stage2.axes.get(buffer.name) if self.stage2 else None
        if axes:
            by_axis = dict(zip(axes, at, strict=True))
            at = [offset(c, [by_axis[a] for a in c], self._indptr) for c in chains(axes)]
        # a negative index would wrap around in NumPy and hide a mistake
        for position, length in zip(at, self.memory[buffer].shape, strict=True):
            if not 0 <= position < length:
                raise IndexError(f"{buffer.name}{at} lies outside an array of shape {self.memory[buffer].shape}")
        return tuple(at)

    def _indptr(self, axis: Axis, at: int) -> int:
        return int(self.memory[self.by_name[given(axis.indptr)]][at])

    def _allocate(self, buffer: tirx.Buffer) -> None:
        axes = self.stage2.axes.get(buffer.name) if self.stage2 else None
        if axes:
            shape = [elements(c[-1], self._size) for c in chains(axes)]
        else:
            shape = [int(self._value(extent)) for extent in buffer.ty.shape]
        if str(buffer.ty.dtype) in FLOATS:
            self.memory[buffer] = np.full(shape, np.nan)
        else:
            self.memory[buffer] = np.zeros(shape, np.int64)

    def _size(self, extent: int | Size) -> int:
        return self.scalars[self.by_name[extent.name]] if isinstance(extent, Size) else extent

    def _run(self, node: tirx.Stmt) -> None:
        match type(node).__name__:
            case "SeqStmt":
                for part in node.seq:
                    self._run(part)
            case "For":
                start = int(self._value(node.min))
                for at in range(start, start + int(self._value(node.extent))):
                    self.scalars[node.loop_var] = at
                    self._run(node.body)
            case "SBlockRealize":
                if self._value(node.predicate):
                    for var, bound in zip(node.block.iter_vars, node.iter_values):
                        self.scalars[var.var] = self._value(bound)
                    self._block(node.block)
            case "BufferStore":
                self.memory[node.buffer][self._place(node.buffer, node.indices)] = self._value(node.value)
            case "IfThenElse":
                if self._value(node.condition):
                    self._run(node.then_case)
                elif node.else_case is not None:
                    self._run(node.else_case)
            case "While":
                while self._value(node.condition):
                    self._run(node.body)
            case "AttrStmt":
                self._run(node.body)
            case "Evaluate":  # in a block without statements
                self._value(node.value)
            case other:
                raise TypeError(f"cannot run a statement of kind {other}: {node}")

    def _block(self, block: s_tir.SBlock) -> None:
        for buffer in block.alloc_buffers:
            self._allocate(buffer)
        reductions = [v for v in block.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
        if block.init is not None and all(self.scalars[v.var] == self._value(v.dom.min) for v in reductions):
            self._run(block.init)
        self._run(block.body)

    def _value(self, expr: tirx.Expr) -> Any:
        if isinstance(expr, tvm.ir.Var):
            return self.scalars[expr]
        kind = type(expr).__name__
        if kind in _BINARY:
            return _BINARY[kind](self._value(expr.a), self._value(expr.b))
        if kind in _BITWISE:
            found = _BITWISE[kind](int(self._value(expr.a)), int(self._value(expr.b)))
            return int(np.int64(found).astype(str(expr.ty.dtype)))
        match kind:
            case "IntImm":
                return int(expr.value)
            case "FloatImm":
                return np.float64(expr.value)
            case "TensorLoad":
                return self.memory[expr.source][self._place(expr.source, expr.indices)]
            case "And":
                return self._value(expr.a) and self._value(expr.b)
            case "Or":
                return self._value(expr.a) or self._value(expr.b)
            case "Not":
                return not self._value(expr.a)
            case "Cast":
                value = self._value(expr.value)
                dtype = str(expr.ty.dtype)
                return np.float64(value) if dtype in FLOATS else int(np.int64(value).astype(dtype))
            case "Select":
                return self._value(expr.true_value if self._value(expr.condition) else expr.false_value)
            case "Call":
                return self._call(expr)
        raise TypeError(f"cannot evaluate an expression of kind {kind}: {expr}")

    def _call(self, expr: tvm.ir.Call) -> Any:
        name = expr.op.name.rsplit(".", 1)[-1]
        if name == "call_extern" and expr.args[0].value.startswith(ATOMIC_ADD):
            load = expr.args[1].args[0]
            self.memory[load.source][self._place(load.source, load.indices)] += self._value(expr.args[2])
            return 0
        if name == "if_then_else":
            condition, then, otherwise = expr.args
            return self._value(then if self._value(condition) else otherwise)
        if name == "reinterpret":
            (arg,) = expr.args
            found = np.array(self._value(arg)).astype(str(arg.ty.dtype)).view(str(expr.ty.dtype))
            return np.float64(found) if str(expr.ty.dtype) in FLOATS else int(found)
        if name not in _CALLS:
            raise TypeError(f"cannot evaluate a call of {name}: {expr}")
        return _CALLS[name](self._value(expr.args[0]))
