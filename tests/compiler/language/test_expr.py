"""Expressions of stage I: their types and what they refuse."""

import numpy as np
import pytest

from gnn_sparse_backend.compiler.language.axes import Size, StageIError, dense_fixed
from gnn_sparse_backend.compiler.language.expr import (
    Binary,
    Cast,
    Const,
    Select,
    SizeOf,
    Var,
    as_expr,
    both,
    call,
    cast,
    differ,
    either,
    equal,
    exp,
    maximum,
    minimum,
    number,
    present,
    select,
)
from gnn_sparse_backend.compiler.language.program import Buffer
from gnn_sparse_backend.compiler.language.traversal import rewrite, walk

I = dense_fixed("I", 4)
A = Buffer("A", (I,), "float32")
D = Buffer("D", (I,), "float64")
P = Buffer("P", (I,), "int32")
M = Buffer("M", (I,), "uint8")
Flag = Buffer("Flag", (I,), "bool")
i, j = Var("i"), Var("j")


def test_types():
    assert i.dtype == number(Size("n")).dtype == "int64"
    # index values widen, so that no product of a coordinate and a width can overflow
    assert P[i].dtype == M[i].dtype == (P[i] * 3).dtype == "int64"
    assert A[i].dtype == (A[i] + 1).dtype == (2 / A[i]).dtype == exp(A[i]).dtype == "float32"
    assert (
        Flag[i].dtype
        == (i < j).dtype
        == equal(A[i], 0).dtype
        == present(A[i]).dtype
        == both(i < 1, Flag[i]).dtype
        == "bool"
    )
    assert select(i < j, A[i], 0).dtype == "float32"
    assert cast("float64", A[i]).dtype == "float64"


def test_numbers_take_the_type_of_what_they_stand_beside():
    assert (A[i] + 1) == Binary("+", A[i], Const(1.0, "float32"))
    assert (1 - A[i]) == Binary("-", Const(1.0, "float32"), A[i])
    assert (i + 1) == Binary("+", i, Const(1, "int64"))
    assert minimum(3, i) == Binary("min", Const(3, "int64"), i)
    assert select(i < 2, 1, A[i]) == Select(i < 2, Const(1.0, "float32"), A[i])


def test_every_operator_builds_its_node():
    for op, made in {
        "+": i + j,
        "-": i - j,
        "*": i * j,
        "//": i // j,
        "%": i % j,
        "<": i < j,
        "<=": i <= j,
        ">": i > j,
        ">=": i >= j,
        "==": equal(i, j),
        "!=": differ(i, j),
        "min": minimum(i, j),
        "max": maximum(i, j),
    }.items():
        assert made == Binary(op, i, j)
    assert A[i] / A[j] == Binary("/", A[i], A[j])
    assert either(i < j, j < i) == Binary("or", i < j, j < i)
    assert -A[i] == Binary("-", Const(0.0, "float32"), A[i])


def test_numbers_on_the_left():
    c = Const(7, "int64")
    assert [7 + i, 7 - i, 7 * i, 7 // i, 7 % i] == [Binary(op, c, i) for op in ("+", "-", "*", "//", "%")]
    assert 7 / A[i] == Binary("/", Const(7.0, "float32"), A[i])


def test_cast_to_the_own_type_is_nothing():
    assert cast("float32", A[i]) == A[i]
    assert cast("float32", number(3)) == Cast("float32", Const(3, "int64"))
    assert cast("float32", 3) == Const(3.0, "float32")


def test_structural_equality_and_hash():
    assert A[i] + A[j] == A[i] + A[j] and hash(A[i] + A[j]) == hash(A[i] + A[j])
    assert A[i] + A[j] != A[j] + A[i]


def test_sizes_are_values():
    n = Size("n")
    assert (i < n) == Binary("<", i, SizeOf(n))
    assert number(n) == SizeOf(n)


REFUSED = {
    "types differ": (lambda: A[i] + D[i], "float32 and float64; cast"),
    "integer with float": (lambda: A[i] + i, "float32 and int64; cast"),
    "float where an integer is wanted": (lambda: i + 0.5, "0.5 cannot stand where an int64 is wanted"),
    "integer division": (lambda: i / j, "'/' wants floating-point operands, not int64; use '//'"),
    "float floor division": (lambda: A[i] // 2, "'//' wants integer operands, not float32"),
    "float remainder": (lambda: A[i] % 2, "'%' wants integer operands"),
    "conjunction of numbers": (lambda: both(i, j), "'and' wants conditions, not values of type int64"),
    "disjunction of numbers": (lambda: either(A[i], A[j]), "'or' wants conditions, not values of type float32"),
    "arithmetic on conditions": (lambda: (i < j) + (j < i), "wants numbers, not conditions; use select"),
    "order of conditions": (lambda: (i < j) < (j < i), "wants numbers, not conditions"),
    "truth value": (lambda: bool(i < j), "no truth value before the program runs; use select"),
    "chained comparison": (lambda: 0 < i < 3, "no truth value"),
    "select on a number": (lambda: select(i, 1, 2), "select wants a condition, not a value of type int64"),
    "select on a Python bool": (
        lambda: select(i == j, 1, 2),
        r"select wants a condition, not False; compare with <, equal",
    ),
    "select of two types": (lambda: select(i < j, A[i], i), "two sides of select have types float32 and int64"),
    "function of an integer": (lambda: exp(i), "exp wants a floating-point argument, not int64"),
    "unknown function": (lambda: call("gamma", A[i]), "unknown function 'gamma'; there are exp"),
    "unknown type": (lambda: cast("float8", A[i]), "unknown value type 'float8'"),
    "unknown type of a number": (lambda: number(1, "float8"), "unknown value type 'float8'"),
    "present of a value": (lambda: present(A[i] + 1), "present wants a buffer access"),
    "string": (lambda: i + "1", "'1' is not an expression"),
    "Python bool": (lambda: i + True, "True is not an expression"),
    "array": (lambda: i + np.int64(3), "is not an expression"),
    "NaN": (lambda: A[i] + float("nan"), "NaN cannot be a constant"),
    "too large for int64": (lambda: i + 2**63, f"{2**63} does not fit int64"),
    "too large for a float": (lambda: A[i] + 10**400, "does not fit float32"),
    "too many indices": (lambda: A[i, j], r"'A' has 1 axes \(I\) and was indexed with 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    build, message = REFUSED[case]
    with pytest.raises(StageIError, match=message):
        build()


def test_limits_of_integers_are_allowed():
    assert as_expr(2**63 - 1).value == 2**63 - 1
    assert as_expr(-(2**63)).value == -(2**63)


def test_walk_gives_every_node_once_the_root_last():
    expr = select(i < j, A[i + 1], 0)
    nodes = list(walk(expr))
    assert nodes[-1] is expr
    assert nodes[:2] == [i, j] and nodes[2] == (i < j)
    assert len(nodes) == 9  # i, j, i < j; i, 1, i + 1, A[i + 1]; 0; the select


def test_rewrite_replaces_every_occurrence_bottom_up():
    expr = A[i + 1] * A[j] + A[i]
    assert rewrite(expr, lambda e: j if e == i else None) == A[j + 1] * A[j] + A[j]
    assert rewrite(expr, lambda e: None) is expr
