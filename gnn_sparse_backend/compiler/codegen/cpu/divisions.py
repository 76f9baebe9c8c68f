"""Divisions of integers that round down, by numbers that are known at run time alone, made calls of small functions.

TVM makes each of them a choice between two results of a division that rounds towards zero, with the dividend written
into both. Of ``a // b % c // d`` there are eight copies of ``a``, and TVM simplifies each of them again.
"""

from __future__ import annotations

import tvm_ffi

from ....deferred import tirx
from ..nodes import importing

_BITS = {"int32": 32, "int64": 64}


def call_divisions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A lowered function whose divisions of scalars by other numbers than constants are calls of functions that it
    carries. LLVM puts them in place, where the dividend is one value.

        x[i // n]  ->  x[T.call_pure_extern("int64", "gsb_floordiv_int64", i, n)]
    """
    called: set[tuple[str, str]] = set()

    def visit(division: tirx.FloorDiv | tirx.FloorMod, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        division = mutator.default_mutate(division)
        kind, dtype = type(division).__name__.lower(), str(division.ty.dtype)
        if isinstance(division.b, tirx.IntImm) or dtype not in _BITS:
            return division
        called.add((kind, dtype))
        return tirx.call_pure_extern(dtype, f"gsb_{kind}_{dtype}", division.a, division.b)

    body = tvm_ffi.structural_mutate(function.body, [((tirx.FloorDiv, tirx.FloorMod), visit)])
    if not called:
        return function
    return importing(function, body, "\n".join(_text(*each) for each in sorted(called)))


# A remainder has the sign of the dividend: where that is not the divisor's, the quotient is one less.
_TEXT = """
define internal i{bits} @gsb_{kind}_{dtype}(i{bits} %a, i{bits} %b) alwaysinline nounwind willreturn memory(none) {{
  %rest = srem i{bits} %a, %b
  %some = icmp ne i{bits} %rest, 0
  %signs = xor i{bits} %rest, %b
  %unlike = icmp slt i{bits} %signs, 0
  %low = and i1 %some, %unlike
{result}
}}
"""
_RESULTS = {
    "floordiv": """\
  %towards.zero = sdiv i{bits} %a, %b
  %correction = sext i1 %low to i{bits}
  %result = add i{bits} %towards.zero, %correction
  ret i{bits} %result""",
    "floormod": """\
  %correction = select i1 %low, i{bits} %b, i{bits} 0
  %result = add i{bits} %rest, %correction
  ret i{bits} %result""",
}


def _text(kind: str, dtype: str) -> str:
    bits = _BITS[dtype]
    return _TEXT.format(kind=kind, dtype=dtype, bits=bits, result=_RESULTS[kind].format(bits=bits))
