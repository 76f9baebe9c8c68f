"""Entries of a local array that are picked by comparisons: the same values, and no index that depends on the lane."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.transforms.dense_axes.select_entry import MOST, pick_entries
from gnn_sparse_backend.compiler.transforms.dense_axes.share import share_axis


def scaled(heads: int, width: int):
    """Y[i, k] = X[i, k] * (A[i, head of k] + 1), by way of an array of all heads."""
    p = ProgramBuilder("scaled")
    I, H, K = p.dense_fixed("I", p.size("m")), p.dense_fixed("H", heads), p.dense_fixed("K", heads * width)
    A, X, Y = p.buffer("A", (I, H), "float32"), p.buffer("X", (I, K), "float32"), p.buffer("Y", (I, K), "float32")
    with p.iterate("rows", (I,), "S", ("i",)) as (i,):
        P = p.local("P", (H,), "float32")
        with p.iterate("fill", (H,), "S", ("h",)) as (h,):
            P[h] = A[i, h] + 1.0
        with p.iterate("scale", (K,), "S", ("k",)) as (k,):
            Y[i, k] = X[i, k] * P[k // width]
    return p.finish()


@pytest.mark.short(2)
@pytest.mark.parametrize("heads, width", [(1, 4), (2, 4), (5, 3)])
def test_the_same_values(heads, width):
    program = share_axis(scaled(heads, width), "K", 4)
    done = pick_entries(program, "H")
    rng = np.random.default_rng(0)
    a, x = (rng.integers(-4, 5, (3, size)).astype(np.float32) for size in (heads, heads * width))
    found = interpret(done, {"m": 3, "A": a, "X": x, "Y": np.zeros_like(x)})["Y"]
    np.testing.assert_array_equal(found, x * np.repeat(a + 1, width, axis=1))
    assert f"// {width}]" in program.script() and f"// {width}]" not in done.script()


def test_many_entries_stay_in_memory():
    program = share_axis(scaled(MOST + 1, 2), "K", 4)
    assert pick_entries(program, "H").script() == program.script()


def test_no_other_axis():
    with pytest.raises(StageIError, match="axis 'I' is not dense-fixed with a static length"):
        pick_entries(scaled(2, 2), "I")
