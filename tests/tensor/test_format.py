"""Formats: what levels may stand in which order, names, and the text of each."""

from __future__ import annotations

import re

import pytest

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.tensor.storage.format import as_format


@pytest.mark.parametrize(
    "name, modes, levels",
    [
        ("csr", 2, ("dense", "compressed")),
        ("dcsr", 2, ("compressed", "compressed")),
        ("csf", 4, ("compressed",) * 4),
        ("coo", 3, ("compressed-nonunique", "singleton", "singleton")),
        ("ell", 2, ("dense", "slots")),
        ("dia", 2, ("compressed", "dense")),
        ("bsr(2, 3)", 2, ("dense", "compressed", "dense", "dense")),
        ("dense", 0, ()),
    ],
)
def test_names(name, modes, levels):
    found = as_format(name, modes)
    assert found.levels == levels and found.modes == modes and str(found) == name
    assert as_format(found, modes) is found


def test_constants_and_makers_are_those_of_the_names():
    for name in ("csr", "csc", "dcsr", "ell", "dia"):
        assert as_format(name, 2) == getattr(st, name)
    assert as_format("bsr(4)", 2) == st.bsr(4) == st.bsr((4, 4))
    assert as_format("coo", 3) == st.coo(3) and as_format("csf", 3) == st.csf() and as_format("dense", 2) == st.dense(2)
    assert st.csc == st.csr.permuted((1, 0)) == st.Format(("dense", "compressed"), order=(1, 0))
    assert st.bsr((2, 3)).permuted((1, 0)).permuted((1, 0)) == st.bsr((2, 3))
    assert (
        str(st.Format(("dense", "compressed", "dense"), (2, 0, 1)))
        == "Format(dense, compressed, dense, order=(2, 0, 1))"
    )


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: st.Format(("sparse",)), "level 'sparse' is not one of 'dense', 'compressed'"),
        (lambda: st.Format(("dense", "singleton")), "a singleton stands under compressed-nonunique"),
        (lambda: st.Format(("compressed-nonunique", "dense")), "under compressed-nonunique stand singletons alone"),
        (lambda: st.Format(("dense", "dense"), order=(0, 0)), r"order \(0, 0\) of a format of 2 modes"),
        (lambda: st.Format("compressed", "hashed"), "order 'hashed' is not the mode of each level; levels stand in"),
        (lambda: st.bsr((2, 3, 4)), r"two sides, not \(2, 3, 4\)"),
        (lambda: st.bsr(0), r"block \(0, 0\) wants two positive sides"),
        (lambda: st.Format(("dense", "compressed", "dense", "dense"), None, (2, 2, 2)), r"block \(2, 2, 2\) wants two"),
        (lambda: st.csf(-1), "a format of -1 modes is none; give their number, 1 or more"),
        (lambda: st.coo("3"), "a format of '3' modes is none"),
        (lambda: as_format("csx", 2), "format 'csx' is not known; there are dense, coo, csf"),
        (lambda: as_format("csr", 3), "format csr is of tensors with 2 modes, and this one has 3"),
        (lambda: as_format(7, 2), "7 is not a format of tensors with 2 modes"),
    ],
)
def test_what_is_no_format_is_refused_in_words(make, words):
    with pytest.raises(st.FormatError, match=words):
        make()


def test_orders_and_sides_are_integers():
    for what, make in {
        "order (0.0, 1.0)": lambda: st.Format(("dense", "compressed"), (0.0, 1.0)),
        "order 1": lambda: st.Format(("dense", "compressed"), 1),
        "block (2.5, 2)": lambda: st.Format(("dense", "compressed", "dense", "dense"), None, (2.5, 2)),
        "block 2.5": lambda: st.bsr(2.5),
    }.items():
        with pytest.raises(TypeError, match=re.escape(f"{what} is not several integers")):
            make()
