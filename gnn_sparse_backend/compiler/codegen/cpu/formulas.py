"""Elementary functions as arithmetic that a CPU does in vectors: no branch, no call, no table.

They are written in LLVM's language, as TVM's own would not do: TVM replaces names by what they stand for when it
analyses an expression, which then doubles with every second use of a name, and simplifies (x + c) - c to x.

Ranges are reduced in two steps (Cody and Waite, Software Manual for the Elementary Functions, 1980, chapter 6):
exp(x) = 2^n exp(r) with r = x - n ln 2 and |r| <= ln(2) / 2, ln 2 being a short number, whose products with n are
exact, and a small rest. The logarithm is that of FDLIBM's `e_log` (Sun Microsystems, 1993): log(1 + f) by the odd
series in s = f / (2 + f). The coefficients are minimax (Remez exchange, relative error of the result, 60 digits),
rounded to the type.

Largest errors found against exact results, over all exponents, with and without fused multiply-add, in units in the
last place: exp 1.25, log 1.0, tanh 1.5, sigmoid 2.5. Results below the smallest normal number are rounded, not flushed.
Special values are IEEE's: exp(-inf) = 0, exp(0) = 1 exactly, log(0) = -inf, log of what is negative NaN, NaN of NaN.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from ....frozen import dataclass
from ..llvm_text import Code, Value, polynomial, select

_LN2 = Fraction("0.693147180559945309417232121458176568075500134360255254120680")


@dataclass(frozen=True)
class _Format:
    """A floating-point type, and what the formulas need to know of it.

    digits: stored bits of the significand. lowest, highest: where exp becomes zero and infinity for good.
    exp, log, tanh: coefficients, lowest first.
    """

    width: int
    digits: int
    bias: int
    lowest: float
    highest: float
    exp: tuple[float, ...]
    log: tuple[float, ...]
    tanh: tuple[float, ...]

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
        32,
        23,
        127,
        -104.0,
        89.0,
        exp=(0.4999999342971218, 0.16666520376200292, 0.04166839100980054, 0.008368747249539293, 0.0013814540395052693),
        log=(0.6666677671650977, 0.3997749566653732, 0.29873071092349435),
        tanh=(
            -0.3333328194342762,
            0.13331442211903552,
            -0.053739715456613595,
            0.020639087044182543,
            -0.00570498572022551,
        ),
    ),
    "float64": _Format(
        64,
        52,
        1023,
        -746.0,
        710.0,
        exp=(
            0.5000000000000011,
            0.1666666666666641,
            0.04166666666652968,
            0.008333333333494937,
            0.0013888888943770856,
            0.00019841269505882104,
            2.480149293967295e-05,
            2.7557586694122343e-06,
            2.763030946836363e-07,
            2.5000056564205526e-08,
        ),
        log=(
            0.6666666666666735,
            0.3999999999941109,
            0.28571428743264055,
            0.22222198475856583,
            0.18183569744883132,
            0.15313903165682,
            0.1479750804415501,
        ),
        tanh=(
            -0.33333333333332854,
            0.13333333333262093,
            -0.053968253931267925,
            0.021869487576101163,
            -0.00886322100273056,
            0.003591989174700056,
            -0.0014549588827988068,
            0.000586316556644414,
            -0.00022856424470624277,
            7.71444051246439e-05,
            -1.6072588482710903e-05,
        ),
    ),
}


def _exp(x: Value, format: _Format) -> Value:
    # NaN passes: neither comparison with it holds
    x = select(x < format.lowest, format.lowest, x)
    x = select(x > format.highest, format.highest, x)
    # n = round(x / ln 2); the low bits of n_shifted are n + 2 bias, those of half_shifted n / 2 + bias
    shift = format.shift + 2 * format.bias
    n_shifted = x * float(1 / _LN2) + shift
    n = n_shifted - shift
    half_shifted = n * 0.5 + (format.shift + format.bias)
    high, low = format.ln2
    r = x - n * high - n * low
    power = polynomial(r, 1.0, 1.0, *format.exp)
    # 2^n in two factors: 2^n itself may be too large or too small for a number where exp(x) is not
    half = half_shifted.bits()
    rest = n_shifted.bits() - half
    return power * (half << format.digits).of_bits() * (rest << format.digits).of_bits()


def _log(x: Value, format: _Format) -> Value:
    # numbers below the smallest normal one are made normal
    small = x < 2.0 ** (1 - format.bias)
    up = format.digits + 2
    bits = select(small, x * 2.0**up, x).bits()
    # x = 2^k m with sqrt(1/2) <= m < sqrt(2); exponent = k + bias
    exponent = (bits + (format.one - format.half_root)) >> format.digits
    m = (bits - (exponent << format.digits) + format.one).of_bits()
    # an integer in the low bits of 2^digits, whose units are ones: a conversion that every vector unit has
    large = 2.0**format.digits
    k = (exponent | ((format.bias + format.digits) << format.digits)).of_bits() - (large + format.bias)
    k = k - select(small, float(up), 0.0)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half_square = f * 0.5 * f
    series = z * polynomial(z, *format.log)
    high, low = format.ln2
    result = k * high + (f - (half_square - (s * (half_square + series) + k * low)))
    result = select(x < float("inf"), result, x)  # infinity and NaN are their own logarithms
    result = select(x < 0.0, float("nan"), result)
    return select(x.equals(0.0), float("-inf"), result)


def _tanh(x: Value, format: _Format) -> Value:
    near = polynomial(x * x, 1.0, *format.tanh) * x
    # 1 - 2 / (exp(2 |x|) + 1), whose digits cancel where x is small
    size = x.magnitude()
    far = 1.0 - x.code.constant("number", 2.0) / (_exp(size + size, format) + 1.0)
    return select(size < 0.625, near, select(x < 0.0, 0.0 - far, far))


def _sigmoid(x: Value, format: _Format) -> Value:
    # exp of what is negative cannot overflow, so small results keep their digits
    power = _exp(0.0 - x.magnitude(), format)
    return select(x < 0.0, power, 1.0) / (power + 1.0)


_FORMULAS = {"exp": _exp, "log": _log, "tanh": _tanh, "sigmoid": _sigmoid}
FUNCTIONS = tuple(_FORMULAS)
TYPES = tuple(_FORMATS)


def llvm_function(function: str, dtype: str, lanes: int) -> tuple[str, str]:
    """(name, text) of one of FUNCTIONS in one of TYPES, on vectors of `lanes` numbers, or on numbers where lanes is 1.

    LLVM puts it in the place of every call, so it costs no call and can be vectorised with the loop around it.
    """
    format = _FORMATS[dtype]
    code = Code(format.width, lanes)
    name = f"gsb_{function}_{dtype}x{lanes}"
    return name, code.function(name, _FORMULAS[function](code.parameter, format))
