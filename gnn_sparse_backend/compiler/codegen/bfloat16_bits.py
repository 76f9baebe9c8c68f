"""bfloat16 numbers by their bits, the upper half of a float32: TVM expressions of words of 32 bits and their halves."""

from __future__ import annotations

from ...deferred import tirx


def low_half(word: tirx.Expr) -> tirx.Expr:
    """The float32 of the bfloat16 in the lower half of a word; the second of two neighbours is in the upper one."""
    return tirx.reinterpret("float32", tirx.shift_left(word.astype("uint32"), integer(16)))


def high_half(word: tirx.Expr) -> tirx.Expr:
    """The float32 of the bfloat16 in the upper half of a word."""
    return tirx.reinterpret("float32", tirx.bitwise_and(word.astype("uint32"), integer(0xFFFF0000)))


def rounded(x: tirx.Expr) -> tirx.Expr:
    """The bits of a float32 rounded to bfloat16, in the upper half of a word whose lower one is zero or NaN's."""
    bits = tirx.reinterpret("uint32", x)
    # to the nearest, ties to even: half of what is cut off is added, and a little less where the last digit is even
    last = tirx.bitwise_and(tirx.shift_right(bits, integer(16)), integer(1))
    kept = tirx.bitwise_and(bits + integer(0x7FFF) + last, integer(0xFFFF0000))
    quiet = tirx.bitwise_or(bits, integer(0x400000))  # the sum could carry a NaN over to infinity or zero
    return tirx.Select(is_nan(bits), quiet, kept)


def bfloat16_bits(x: tirx.Expr) -> tirx.Expr:
    """The bits of a float32 that is rounded to bfloat16: from 0 to 65,535."""
    return tirx.shift_right(rounded(x), integer(16))


def is_nan(bits: tirx.Expr) -> tirx.Expr:
    """Whether the bits of a float32 or float64 are those of a NaN."""
    kind = str(bits.ty.dtype)
    magnitude, infinity = {"uint32": (0x7FFFFFFF, 0x7F800000), "uint64": (0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000)}[kind]
    return tirx.bitwise_and(bits, tirx.IntImm(kind, magnitude)) > tirx.IntImm(kind, infinity)


def integer(value: int) -> tirx.IntImm:
    return tirx.IntImm("uint32", value)
