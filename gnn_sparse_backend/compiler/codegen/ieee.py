"""Floating-point arithmetic as stage I means it, through a compiler that takes it for arithmetic of real numbers.

Measured of TVM 0.27: its simplifier turns, in every floating type,

    x - x, x * 0, 0 / x into 0;  (x + y) - y into x;  x - (x + y) into 0 - y;
    x == x into true, x != x into false;  not x < y into y <= x;
    x < y or y <= x into true, and y <= x into true wherever x < y is known not to hold;

its code for a CPU takes x != y to be false where one of them is NaN; that for CUDA takes max(x, y) for the operand that
is not NaN, where a CPU and stage I take y. All of this is wrong for NaN or infinity, and the difference is wrong for
numbers of unlike magnitude. So the last step before TVM hides from it that two operands are the same: LLVM and nvcc
look through the veil, and do keep to IEEE 754.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import tvm_ffi

from ...deferred import tirx, tvm
from . import bfloat16_bits as bits
from .nodes import nodes

_NARROW = ("float16", "bfloat16")
_WIDE = ("float32", "float64")

Visitor: TypeAlias = "tuple[type, Callable[[tirx.Expr, tvm_ffi.StructuralMutator], tirx.Expr]]"


def keep_ieee(module: tvm.IRModule, cuda: bool) -> tvm.IRModule:
    """The module with its floating-point differences, comparisons and their negations, and products and quotients with
    the constant 0, put so that TVM leaves their meaning alone; for CUDA maxima and minima as well; for a CPU isnan, and
    conversions to bfloat16 and back.

        S[0] = x[0] - y[0]   ->   S[0] = T.reinterpret("float32", T.reinterpret("uint32", x[0])) - y[0]
    """
    table = _Rules(_hide_cuda).for_cuda() if cuda else _Rules(_hide_cpu).for_cpu()
    return tvm.IRModule(
        {name: f.with_body(tvm_ffi.structural_mutate(f.body, table)) for name, f in module.functions.items()}
    )


def _hide_cpu(x: tirx.Expr) -> tirx.Expr:
    dtype = str(x.ty.dtype)
    return tirx.reinterpret(dtype, tirx.reinterpret(dtype.replace("float", "uint"), x))


def _hide_cuda(x: tirx.Expr) -> tirx.Expr:
    # not by reinterpret, of which TVM makes a statement: it would read x where a condition says not to
    dtype = str(x.ty.dtype)
    there, back = {
        "float32": ("__float_as_int", "__int_as_float"),
        "float64": ("__double_as_longlong", "__longlong_as_double"),
    }[dtype]
    return tirx.call_pure_extern(dtype, back, tirx.call_pure_extern(dtype.replace("float", "int"), there, x))


class _Rules:
    def __init__(self, hide: Callable[[tirx.Expr], tirx.Expr]) -> None:
        self.hide = hide

    def for_cpu(self) -> list[Visitor]:
        return [*self._common(), (tvm.ir.Call, _is_nan), (tirx.Cast, _rounding)]

    def for_cuda(self) -> list[Visitor]:
        return [
            *self._common(),
            (tirx.Max, self._binary(lambda a, b: tirx.Select(self._less(b, a), a, b))),
            (tirx.Min, self._binary(lambda a, b: tirx.Select(self._less(a, b), a, b))),
        ]

    def _common(self) -> list[Visitor]:
        return [
            (tirx.Sub, self._binary(lambda a, b: tirx.Sub(self.hide(a), b))),
            (tirx.Mul, self._binary(lambda a, b: tirx.Mul(self._unless_zero(a), self._unless_zero(b)))),
            (tirx.Div, self._binary(lambda a, b: tirx.Div(self._unless_zero(a), self._unless_zero(b)))),
            (tirx.LT, self._binary(self._less, result="bool")),
            (tirx.GT, self._binary(lambda a, b: self._less(b, a), result="bool")),
            (tirx.LE, self._binary(self._at_most, result="bool")),
            (tirx.GE, self._binary(lambda a, b: self._at_most(b, a), result="bool")),
            (tirx.EQ, self._binary(self._same, result="bool")),
            (tirx.NE, self._binary(lambda a, b: _negated(self._same(a, b)), result="bool")),
            (tirx.Not, self._negation),
        ]

    # the smaller side is hidden: so x < y and y <= x never look like opposites
    def _less(self, a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        return tirx.LT(self.hide(a), b)

    def _at_most(self, a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        return tirx.LE(self.hide(a), b)

    def _same(self, a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        return tirx.EQ(self.hide(a), b)

    def _unless_zero(self, x: tirx.Expr) -> tirx.Expr:
        return self.hide(x) if isinstance(x, tirx.FloatImm) and x.value == 0 else x

    def _binary(
        self, make: Callable[[tirx.Expr, tirx.Expr], tirx.Expr], result: str | None = None
    ) -> Callable[[tirx.Expr, tvm_ffi.StructuralMutator], tirx.Expr]:
        def visit(node: tirx.Expr, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
            node = mutator.default_mutate(node)
            dtype = str(node.a.ty.dtype)
            if dtype in _WIDE:
                return make(node.a, node.b)
            if dtype in _NARROW:  # exact in float32 but for one rounding, which the conversion back does
                wide = make(node.a.astype("float32"), node.b.astype("float32"))
                return wide if result else wide.astype(dtype)
            return node

        return visit

    def _negation(self, node: tirx.Expr, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        floating = _compares_floats(node.a)  # of indices TVM should know all it can
        node = mutator.default_mutate(node)
        return _negated(node.a) if floating else node


def _compares_floats(condition: tirx.Expr) -> bool:
    kinds = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
    return any("float" in str(comparison.a.ty.dtype) for comparison in nodes(condition, kinds))


def _rounding(cast: tirx.Cast, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
    """A conversion from a bfloat16 just made: for a CPU TVM drops both conversions, and with them the rounding."""
    cast = mutator.default_mutate(cast)
    inner = cast.value
    if not isinstance(inner, tirx.Cast) or str(inner.ty.dtype) != "bfloat16" or str(inner.value.ty.dtype) not in _WIDE:
        return cast
    return tirx.reinterpret("float32", bits.rounded(inner.value.astype("float32"))).astype(str(cast.ty.dtype))


def _is_nan(call: tvm.ir.Call, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
    """isnan by the bits, for the CPU, where TVM makes it a comparison of x with itself, which it takes to be false."""
    call = mutator.default_mutate(call)
    if getattr(call.op, "name", None) != "tirx.isnan":
        return call
    (x,) = call.args
    if str(x.ty.dtype) in _NARROW:
        x = x.astype("float32")
    return bits.is_nan(tirx.reinterpret(str(x.ty.dtype).replace("float", "uint"), x))


def _negated(condition: tirx.Expr) -> tirx.Expr:
    """TVM would move a negation into a comparison, where it is wrong for NaN."""
    return tirx.EQ(tirx.Cast("int32", condition), tirx.IntImm("int32", 0))
