"""Functions of users have one digest exactly where they do the same."""

from __future__ import annotations

import types

import pytest

from gnn_sparse_backend.compiler.language.definition import digest_of, is_own

SOURCE = """
FACTOR = 2
def helper(x):
    return x * FACTOR
def function(x, by=1):
    return [helper(each) + by for each in x]
"""


def made(*replaced: tuple[str, str]):
    """The function of SOURCE, some of whose text is replaced."""
    text = SOURCE
    for before, after in replaced:
        assert before in text
        text = text.replace(before, after)
    module = types.ModuleType("theirs")
    exec(text, module.__dict__)
    return module.function


def test_equal_code_has_one_digest():
    assert digest_of(made()) == digest_of(made())


@pytest.mark.parametrize(
    "replaced",
    [("FACTOR = 2", "FACTOR = 3"), ("x * FACTOR", "x + FACTOR"), ("by=1", "by=2"), (" + by", " - by")],
    ids=["a value of the module", "a function that it calls", "a default", "its own code"],
)
def test_whatever_changes_what_it_does_changes_the_digest(replaced):
    assert digest_of(made(replaced)) != digest_of(made())


def test_closures_are_read():
    def scaled(by):
        return lambda x: x * by

    assert digest_of(scaled(2)) == digest_of(scaled(2)) != digest_of(scaled(3))


def test_functions_that_call_each_other_have_one():
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    assert digest_of(even) != digest_of(odd)


def test_what_has_no_code_is_refused():
    with pytest.raises(TypeError, match="<built-in function len> is no Python function"):
        digest_of(len)


def test_functions_of_this_package_are_known():
    assert is_own(digest_of) and not is_own(made())
