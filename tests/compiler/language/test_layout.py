"""Offsets by the axis tree against counting the elements one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.compiler.language.axes import (
    Size,
    StageIError,
    dense_fixed,
    dense_variable,
    sparse_fixed,
    sparse_variable,
)
from gnn_sparse_backend.compiler.language.layout import chains, elements, first, offset, slots


def grow(kinds, rng):
    """A chain of axes under a root of 3, its indptr arrays, and every element as a tuple of relative positions."""
    root = dense_fixed("A0", 3)
    chain, arrays = [root], {}
    stored = [(p,) for p in range(3)]
    for depth, kind in enumerate(kinds, 1):
        if kind == "sparse_fixed":
            axis = sparse_fixed(f"A{depth}", chain[-1], (9, 2), f"i{depth}")
            stored = [(*e, p) for e in stored for p in range(2)]
        else:
            counts = rng.integers(0, 3, len(stored))
            arrays[f"p{depth}"] = np.concatenate([[0], np.cumsum(counts)])
            stored = [(*e, p) for e, c in zip(stored, counts) for p in range(c)]
            if kind == "dense_variable":
                axis = dense_variable(f"A{depth}", chain[-1], (9, len(stored)), f"p{depth}")
            else:
                axis = sparse_variable(f"A{depth}", chain[-1], (9, len(stored)), (f"p{depth}", f"i{depth}"))
        chain.append(axis)
    return tuple(chain), arrays, stored


kinds_below = st.lists(st.sampled_from(["sparse_fixed", "dense_variable", "sparse_variable"]), max_size=3)


@settings(deadline=None, max_examples=60)
@given(kinds_below, st.integers(0, 2**32 - 1))
def test_offset_of_the_nth_element_is_n(kinds, seed):
    chain, arrays, stored = grow(kinds, np.random.default_rng(seed))

    def indptr(axis, at):
        return int(arrays[axis.indptr][at])

    assert [offset(chain, e, indptr) for e in stored] == list(range(len(stored)))
    assert elements(chain[-1]) == len(stored)
    if len(chain) > 1:
        parents = sorted({e[:-1] for e in stored})
        for parent in parents:
            at = next(n for n, e in enumerate(stored) if e[:-1] == parent)
            assert first(chain[-1], offset(chain[:-1], parent, indptr), indptr) == at


def test_offset_of_arrays_of_positions():
    i = dense_fixed("I", 3)
    j = sparse_variable("J", i, (9, 5), ("p", "x"))
    rows, positions = np.array([0, 0, 2, 2, 2]), np.array([0, 1, 0, 1, 2])
    got = offset((i, j), [rows, positions], lambda axis, at: np.array([0, 2, 2, 5])[at])
    np.testing.assert_array_equal(got, np.arange(5))


def test_sizes_are_looked_up():
    m, nnz = Size("m"), Size("nnz")
    i = dense_fixed("I", m)
    j = sparse_variable("J", i, (m, nnz), ("p", "x"))
    k = sparse_fixed("K", j, (m, 3), "y")
    size = {m: 7, nnz: 11}
    assert elements(i, size.get) == 7
    assert elements(k, lambda s: size.get(s, s)) == 33


def test_slots_per_parent():
    i = dense_fixed("I", 5)
    assert slots(i) == 5
    assert slots(sparse_fixed("J", i, (9, 4), "x")) == 4
    assert slots(sparse_variable("J", i, (9, 20), ("p", "x"))) == 9
    # where coordinates repeat there may be more elements under a parent than coordinates
    assert slots(sparse_variable("J", i, (9, 20), ("p", "x"), unique=False)) == 20


def test_chains_are_grouped_by_tree_in_order_of_appearance():
    i, h = dense_fixed("I", 3), dense_fixed("H", 2)
    j = sparse_variable("J", i, (9, 5), ("p", "x"))
    assert chains((h, i, j)) == ((h,), (i, j))
    assert chains((i, h, j)) == ((i, j), (h,))
    assert chains(()) == ()


def test_axes_without_a_layout():
    i = dense_fixed("I", 3)
    j = sparse_variable("J", i, (9, 5), ("p", "x"))
    other = sparse_variable("L", i, (9, 5), ("q", "y"))
    with pytest.raises(StageIError, match="'I' occurs twice"):
        chains((i, i))
    with pytest.raises(StageIError, match="'J' stands before its parent 'I'"):
        chains((j, i))
    with pytest.raises(StageIError, match="'L' stands beside another child of its parent 'I'"):
        chains((i, j, other))
