"""Elementary functions as arithmetic that a CPU does in vectors: no branch, no call, no table.

Each function takes a TVM expression of type float32 or float64 and gives one of the same type. Ranges are reduced in two
steps (Cody and Waite, Software Manual for the Elementary Functions, 1980, chapter 6): exp(x) = 2^n exp(r) with
r = x - n ln 2 and |r| <= ln(2) / 2, ln 2 being a short number, whose products with n are exact, and a small rest. The logarithm
is that of FDLIBM's `e_log` (Sun Microsystems, 1993): log(1 + f) by the odd series in s = f / (2 + f). The coefficients are
minimax (Remez exchange, relative error of the result, 60 digits), rounded to the type.

Errors against exact results, largest found over all exponents, in units in the last place (with and without fused multiply-add):
exp 1.2 (results below the smallest normal number are rounded, not flushed), log 1.0, tanh 2.0, sigmoid 2.6.
Special values are IEEE's: exp(-inf) = 0, exp(0) = 1 exactly, log(0) = -inf, log of a negative number NaN, and NaN of NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from tvm import tirx

_LN2 = Fraction("0.693147180559945309417232121458176568075500134360255254120680")


@dataclass(frozen=True)
class _Format:
    """A floating-point type, and what the formulas need to know of it.

    digits: stored bits of the significand. lowest, highest: where exp becomes zero and infinity for good.
    exp, log, tanh: coefficients, lowest first.
    """

    dtype: str
    width: int
    digits: int
    bias: int
    lowest: float
    highest: float
    exp: tuple[float, ...]
    log: tuple[float, ...]
    tanh: tuple[float, ...]

    @property
    def bits(self) -> str:
        return f"uint{self.width}"

    @property
    def ln2(self) -> tuple[float, float]:
        """ln 2 as a number whose products with every exponent are exact, and the rest."""
        spare = self.bias.bit_length() + 1
        high = Fraction(int(_LN2 * 2 ** (self.digits + 1 - spare)), 2 ** (self.digits + 1 - spare))
        return float(high), float(_LN2 - high)

    @property
    def shift(self) -> float:
        """A number so large that adding it rounds to an integer, which then fills the low bits."""
        return 1.5 * 2.0**self.digits

    @property
    def one(self) -> int:
        return self.bias << self.digits

    @property
    def half_root(self) -> int:
        """The bits of sqrt(1/2), rounded down."""
        return (self.bias - 1 << self.digits) + isqrt(2 << 2 * self.digits) - (1 << self.digits)

    @property
    def infinity(self) -> int:
        return (2 * self.bias + 1) << self.digits

    @property
    def nan(self) -> int:
        return self.infinity | 1 << (self.digits - 1)


_FORMATS = {
    "float32": _Format(
        "float32", 32, 23, 127, -104.0, 89.0,
        exp=(0.4999999342971218, 0.16666520376200292, 0.04166839100980054, 0.008368747249539293, 0.0013814540395052693),
        log=(0.6666677671650977, 0.3997749566653732, 0.29873071092349435),
        tanh=(-0.3333328194342762, 0.13331442211903552, -0.053739715456613595, 0.020639087044182543, -0.00570498572022551),
    ),
    "float64": _Format(
        "float64", 64, 52, 1023, -746.0, 710.0,
        exp=(
            0.5000000000000011, 0.1666666666666641, 0.04166666666652968, 0.008333333333494937, 0.0013888888943770856,
            0.00019841269505882104, 2.480149293967295e-05, 2.7557586694122343e-06, 2.763030946836363e-07, 2.5000056564205526e-08,
        ),
        log=(
            0.6666666666666735, 0.3999999999941109, 0.28571428743264055, 0.22222198475856583, 0.18183569744883132,
            0.15313903165682, 0.1479750804415501,
        ),
        tanh=(
            -0.33333333333332854, 0.13333333333262093, -0.053968253931267925, 0.021869487576101163, -0.00886322100273056,
            0.003591989174700056, -0.0014549588827988068, 0.000586316556644414, -0.00022856424470624277,
            7.71444051246439e-05, -1.6072588482710903e-05,
        ),
    ),
}  # fmt: skip


class Steps:
    """Intermediate results by name. TVM simplifies as if floating-point numbers were real ones (it turns (x + c) - c into
    x); it does not look through a name, so rounding happens where a formula wants it."""

    def __init__(self, dtype: str):
        self.format = _FORMATS[dtype]
        self._bound: list[tuple[object, object]] = []

    def __call__(self, name: str, value):
        var = tirx.Var(name, str(value.ty.dtype))
        self._bound.append((var, value))
        return var

    def end(self, result):
        for var, value in reversed(self._bound):
            result = tirx.Let(var, value, result)
        return result

    def number(self, value: float):
        return tirx.FloatImm(self.format.dtype, value)

    def integer(self, value: int):
        return tirx.IntImm(self.format.bits, value)

    def bits(self, value):
        return tirx.reinterpret(self.format.bits, value)

    def of_bits(self, value):
        return tirx.reinterpret(self.format.dtype, value)

    def polynomial(self, x, *coefficients: float):
        """Horner's rule; the constant coefficient comes first."""
        total = self.number(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self("p", total * x + self.number(coefficient))
        return total


def exp(steps: Steps, x):
    to, format = steps, steps.format
    x = to("x", x)
    # a comparison with NaN does not hold, so NaN passes
    x = to("x", tirx.Select(x < to.number(format.lowest), to.number(format.lowest), x))
    x = to("x", tirx.Select(x > to.number(format.highest), to.number(format.highest), x))
    # n = round(x / ln 2); the low bits of n_shifted are n + 2 bias, those of half_shifted n / 2 + bias
    shift = format.shift + 2 * format.bias
    n_shifted = to("n_shifted", x * to.number(float(1 / _LN2)) + to.number(shift))
    n = to("n", n_shifted - to.number(shift))
    half_shifted = to("half_shifted", n * to.number(0.5) + to.number(format.shift + format.bias))
    high, low = format.ln2
    r = to("r", x - n * to.number(high))
    r = to("r", r - n * to.number(low))
    power = to.polynomial(r, 1.0, 1.0, *format.exp)
    # 2^n in two factors: 2^n itself may be too large or too small for a number where exp(x) is not
    half = to("half", to.bits(half_shifted))
    rest = to("rest", to.bits(n_shifted) - half)
    digits = to.integer(format.digits)
    scaled = to("scaled", power * to.of_bits(tirx.shift_left(half, digits)))
    return scaled * to.of_bits(tirx.shift_left(rest, digits))


def log(steps: Steps, x):
    to, format = steps, steps.format
    x = to("x", x)
    # numbers below the smallest normal one are made normal
    small = x < to.number(2.0 ** (1 - format.bias))
    up = format.digits + 2
    bits = to("bits", to.bits(tirx.Select(small, x * to.number(2.0**up), x)))
    # x = 2^k m with sqrt(1/2) <= m < sqrt(2); exponent = k + bias
    exponent = to("exponent", tirx.shift_right(bits + to.integer(format.one - format.half_root), to.integer(format.digits)))
    m = to("m", to.of_bits(bits - tirx.shift_left(exponent, to.integer(format.digits)) + to.integer(format.one)))
    # an integer in the low bits of 2^digits, whose units are ones: a conversion that every vector unit has
    unit = to.integer((format.bias + format.digits) << format.digits)
    k = to("k", to.of_bits(tirx.bitwise_or(exponent, unit)) - to.number(2.0**format.digits + format.bias))
    k = to("k", k - tirx.Select(small, to.number(float(up)), to.number(0.0)))
    f = to("f", m - to.number(1.0))
    s = to("s", f / (f + to.number(2.0)))
    z = to("z", s * s)
    half_square = to("half_square", f * to.number(0.5) * f)
    series = to("series", z * to.polynomial(z, *format.log))
    high, low = format.ln2
    tail = to("tail", s * (half_square + series) + k * to.number(low))
    body = to("body", half_square - tail)
    body = to("body", f - body)
    result = to("result", k * to.number(high) + body)
    result = to("result", tirx.Select(x < to.number(float("inf")), result, x))  # infinity and NaN are their own logarithms
    result = to("result", tirx.Select(x < to.number(0.0), to.of_bits(to.integer(format.nan)), result))
    return tirx.Select(x.equal(to.number(0.0)), to.number(float("-inf")), result)


def tanh(steps: Steps, x):
    to, format = steps, steps.format
    x = to("x", x)
    square = to("square", x * x)
    near = to("near", to.polynomial(square, 1.0, *format.tanh) * x)
    power = to("power", exp(to, tirx.abs(x) * to.number(2.0)))
    far = to("far", to.number(1.0) - to.number(2.0) / (power + to.number(1.0)))
    far = to("far", tirx.Select(x < to.number(0.0), to.number(0.0) - far, far))
    return tirx.Select(tirx.abs(x) < to.number(0.625), near, far)


def sigmoid(steps: Steps, x):
    to = steps
    x = to("x", x)
    # of the negative magnitude: the exponential cannot overflow, so small results keep their digits
    power = to("power", exp(to, to.number(0.0) - tirx.abs(x)))
    return tirx.Select(x < to.number(0.0), power, to.number(1.0)) / (power + to.number(1.0))


def is_nan(steps: Steps, x):
    """By the bits: a comparison of x with itself does not survive TVM's simplifier."""
    to, format = steps, steps.format
    magnitude = tirx.bitwise_and(to.bits(x), to.integer((1 << (format.width - 1)) - 1))
    return magnitude > to.integer(format.infinity)
