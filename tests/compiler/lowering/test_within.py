"""Coordinates that surely lie within an axis are told from those that may not."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnn_sparse_backend.compiler.language.axes import Size, dense_fixed, sparse_variable
from gnn_sparse_backend.compiler.language.expr import Binary, Const, Var
from gnn_sparse_backend.compiler.lowering.within import within

ROWS, COLS = Size("m"), Size("n")
I, K, L = dense_fixed("I", ROWS), dense_fixed("K", 8), dense_fixed("L", 3)
J = sparse_variable("J", I, (COLS, Size("nnz")), ("indptr", "indices"))
i, j, k, el = Var("i"), Var("j"), Var("k"), Var("l")
OF = {i: I, j: J, k: K, el: L}


def const(value: int) -> Const:
    return Const(value, "int64")


def of(op: str, a, b) -> Binary:
    return Binary(op, a, b)


@pytest.mark.parametrize(
    "expr, length, there",
    [
        (k, 8, True),
        (k, 7, False),
        (k, 9, True),
        (k, ROWS, False),
        (i, ROWS, True),
        (i, COLS, False),
        (j, COLS, True),
        (of("+", k, const(4)), 12, True),
        (of("+", k, const(4)), 11, False),
        (of("-", k, const(1)), 8, False),
        (of("+", of("*", k, const(3)), el), 24, True),
        (of("+", of("*", k, const(3)), el), 23, False),
        (of("//", k, const(4)), 2, True),
        (of("//", k, const(4)), 1, False),
        (of("%", k, const(4)), 4, True),
        (of("//", k, el), 8, False),
        (of("+", i, const(0)), ROWS, False),
    ],
)
def test_known_cases(expr, length, there):
    assert within(expr, dense_fixed("B", length), OF) is there


def test_the_coordinate_of_a_padded_slot_may_be_negative():
    padded = replace(J, name="P", padded=True)
    assert not within(Var("p"), dense_fixed("B", COLS), {Var("p"): padded})


expressions = st.recursive(
    st.sampled_from([k, el]) | st.integers(-4, 9).map(const),
    lambda inner: (
        st.builds(of, st.sampled_from("+-*"), inner, inner)
        | st.builds(of, st.sampled_from(["//", "%"]), inner, st.integers(1, 5).map(const))
    ),
    max_leaves=6,
)


def evaluate(expr, k_value: int, l_value: int) -> int:
    match expr:
        case Const():
            return expr.value
        case Var():
            return k_value if expr == k else l_value
    a, b = evaluate(expr.a, k_value, l_value), evaluate(expr.b, k_value, l_value)
    return {"+": a + b, "-": a - b, "*": a * b}[expr.op] if expr.op in "+-*" else a // b if expr.op == "//" else a % b


@given(expressions, st.integers(1, 40))
def test_what_is_said_to_lie_within_does_for_every_value(expr, length):
    if within(expr, dense_fixed("B", length), OF):
        values = [evaluate(expr, *at) for at in itertools.product(range(8), range(3))]
        assert 0 <= min(values) and max(values) < length
