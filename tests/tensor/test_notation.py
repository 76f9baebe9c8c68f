"""Index notation and subscripts of einsum: what they mean, and where they are wrong."""

from __future__ import annotations

import pytest

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.tensor.expressions.notation import parse, parse_einsum


@pytest.mark.parametrize(
    "text, again",
    [
        ("A[i,j]=B[i,k,l]*C[k,j]*D[l,j]", "A[i,j] = B[i,k,l] * C[k,j] * D[l,j]"),
        ("y[i] = 2*A[i,j]*x[j] - relu(-b[i])/(c + 1)", "y[i] = 2 * A[i,j] * x[j] - relu(-1 * b[i]) / (c + 1)"),
        ("a = (B[i] - (C[i] - .5e1)) / D[i]", "a = (B[i] - (C[i] - 5.0)) / D[i]"),
        ("s = x[i] - y[i] + z[i]", "s = x[i] - y[i] + z[i]"),
    ],
)
def test_a_statement_is_written_as_it_was_read(text, again):
    assert str(parse(text)) == again and str(parse(again)) == again


@pytest.mark.parametrize(
    "text, words, at",
    [
        ("A[i,j] = B[i,k", "parted by ','", 14),
        ("A[i,j = B", "parted by ','", 6),
        ("A[i] = B[i,2]", "an index of B is a name such as i, not '2'", 11),
        ("A[i] = foo(B[i])", "function 'foo' is not one of exp, log", 7),
        ("A[i] = B[i] C[i]", "'C' is not expected here", 12),
        ("A[i] = B[i] $ 2", "'\\$' has no meaning here", 12),
        ("A[i,i] = B[i]", "index 'i' occurs twice in the result", 0),
        ("A[i] = A[i] * B[i]", "the result A is read", 7),
        ("= 3", "begins with its result", 0),
        ("A[i] + B[i]", "wants '=', not '\\+'", 5),
        ("A[i] = (B[i]", "the bracket wants '\\)'", 12),
        ("A[i] = ", "is wanted, not 'the end'", 7),
    ],
)
def test_an_error_shows_the_place(text, words, at):
    with pytest.raises(st.NotationError, match=words) as caught:
        parse(text)
    assert caught.value.at == at
    assert str(caught.value).splitlines()[1:] == [f"    {text}", f"    {' ' * at}{'^' * str(caught.value).count('^')}"]


@pytest.mark.parametrize(
    "subscripts, count, text",
    [
        ("ij,jk->ik", 2, "R[i,k] = T0[i,j] * T1[j,k]"),
        ("ij,jk", 2, "R[i,k] = T0[i,j] * T1[j,k]"),
        ("ba", 1, "R[a,b] = T0[b,a]"),
        ("i i", 1, "R = T0[i,i]"),
        ("i,->i", 2, "R[i] = T0[i] * T1"),
    ],
)
def test_subscripts(subscripts, count, text):
    assert str(parse_einsum(subscripts, count)) == text


@pytest.mark.parametrize(
    "subscripts, count, words, at",
    [
        ("ij,jk->ik", 3, "subscripts of 2 operands, and 3 are given", 5),
        ("ij,jk->ik", 1, "subscripts of 2 operands, and 1 are given", 3),
        ("i...->i", 1, "an ellipsis is not known", 1),
        ("i1->i", 1, "is not an index", 1),
        ("ij->k", 1, "index 'k' of the result is in no operand", 4),
        ("i->ii", 1, "index 'i' occurs twice in the result", 3),
        ("i->j->k", 1, "'->' stands once", 4),
    ],
)
def test_subscripts_that_are_wrong_show_the_place(subscripts, count, words, at):
    with pytest.raises(st.NotationError, match=words) as caught:
        parse_einsum(subscripts, count)
    assert caught.value.at == at


def test_what_is_no_text_is_refused():
    for read in (lambda: st.evaluate(3), lambda: st.einsum(3, 4)):
        with pytest.raises(TypeError, match="not 3"):
            read()
