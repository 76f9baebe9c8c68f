"""Powers of 2 for results that are rounded to bfloat16: 2^x to 13 bits, in eight instructions of AVX-512, or eleven.

    2^x = 2^floor(x) p(x - floor(x)),  p(r) = 1 + r + r (r - 1) (a + b r)

p is 1 at 0 and 2 at 1, so that powers of whole numbers are exact and nothing jumps; a and b are minimax (relative error
1.04e-4, half a unit in the last place of bfloat16 being 2e-3). `vreduceps` gives x - floor(x), 0 of infinity, and
`vscalefps` multiplies by 2^floor(x): 2^-inf = 0, 2^inf = inf, and NaN stays NaN. Neither leaves the fast path.

Other vectors have the whole number n that is next to x, p(r) = 1 + r (a + r (b + r c)) of r = x - n, minimax on |r| <=
1/2 (relative error 1.02e-4), and 2^n as the bits of its exponent, which are those of 0 for n = -127.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from ...llvm_text import Code, polynomial, select

LANES = 16
FEATURES = ("avx512dq", "avx512f")
"""What the processor must have for the shorter way, in LLVM's spelling."""
_LINEAR, _SQUARE, _CUBE = 0.69542434753, 0.22630768228, 0.07826797019
_FLOOR = 9
"""Immediate operand of `vreduceps`: no digits after the point, towards minus infinity, no exception."""
_NEAREST = 0.6932828979925825, 0.24221097466536887, 0.055009057806582905
_DIGITS, _BIAS = 23, 127
_VECTOR = f"<{LANES} x float>"


def function_name(lanes: int) -> str:
    """Name of the function on vectors of ``lanes`` numbers."""
    return f"gsb_exp2_brief_float32x{lanes}"


def llvm_text(lanes: int, features: Collection[str]) -> str:
    """The function, for LLVM to put for its calls. features: of the processor, in LLVM's spelling."""
    return _by_scaling() if lanes == LANES and set(FEATURES) <= set(features) else _by_bits(lanes)


def _by_bits(lanes: int) -> str:
    code = Code(32, lanes)
    x = code.parameter
    x = select(x < -_BIAS, -_BIAS, x)  # NaN passes
    x = select(x > _BIAS + 1, _BIAS + 1, x)
    # adding a large number rounds to a whole one, which then fills the low bits
    large = 1.5 * 2.0**_DIGITS + _BIAS
    shifted = x + large
    power = polynomial(x - (shifted - large), 1.0, *_NEAREST)
    return code.function(function_name(lanes), power * (shifted.bits() << _DIGITS).of_bits())


def _by_scaling() -> str:
    lines = [f"%r0 = call {_VECTOR} @llvm.x86.avx512.mask.reduce.ps.512({_VECTOR} %x, i32 {_FLOOR}, {_rest()})"]
    total = _constant(_CUBE)
    for n, coefficient in enumerate((_SQUARE, _LINEAR, 1.0)):
        lines += [
            f"%p{n} = fmul contract {_VECTOR} {total}, %r0",
            f"%s{n} = fadd contract {_VECTOR} %p{n}, {_constant(coefficient)}",
        ]
        total = f"%s{n}"
    lines += [
        f"%y = call {_VECTOR} @llvm.x86.avx512.mask.scalef.ps.512({_VECTOR} {total}, {_VECTOR} %x, {_rest()})",
        f"ret {_VECTOR} %y",
    ]
    rest = f"{_VECTOR}, i16, i32 immarg)"
    return (
        f"declare {_VECTOR} @llvm.x86.avx512.mask.reduce.ps.512({_VECTOR}, i32 immarg, {rest}\n"
        f"declare {_VECTOR} @llvm.x86.avx512.mask.scalef.ps.512({_VECTOR}, {_VECTOR}, {rest}\n"
        f"define linkonce_odr hidden {_VECTOR} @{function_name(LANES)}({_VECTOR} %x) alwaysinline nounwind {{\n"
        + "".join(f"  {line}\n" for line in lines)
        + "}\n"
    )


def _rest() -> str:
    """All lanes, rounded as the thread rounds."""
    return f"{_VECTOR} zeroinitializer, i16 -1, i32 4"


def _constant(value: float) -> str:
    exact = struct.unpack("f", struct.pack("f", value))[0]
    bits = struct.unpack("Q", struct.pack("d", exact))[0]
    return f"<{', '.join([f'float 0x{bits:016X}'] * LANES)}>"
