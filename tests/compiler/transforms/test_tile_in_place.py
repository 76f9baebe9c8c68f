"""A single tile of several chunks cuts iterations where they stand, at any depth, and keeps what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.transforms.dense_axes.tile import tile_axis
from tests.compiler.transforms.tiny_programs import matrix, spmm


def running_maximum():
    """C = sum of B over the row, halved wherever an element beats the sum so far; D = the last halved row, by
    position.
    """
    p = ProgramBuilder("running")
    I, J = matrix(p)
    N, K, One = p.dense_fixed("N", J.length), p.dense_fixed("K", 6), p.dense_fixed("One", 1)
    B, C, D = (p.buffer(name, axes, "float32") for name, axes in (("B", (N, K)), ("C", (I, K)), ("D", (I, K))))
    with p.iterate("rows", (I,), "S") as (i,):
        Sum = p.local("Sum", (K,), "float32")
        Last = p.local("Last", (K,), "float32")
        with p.iterate("start", (K,), "S", ("s",)) as (s,):
            Sum[s] = 0.0
            Last[s] = 0.0
        with p.iterate("edges", (J,), "R") as (j,):
            with p.iterate("halve", (One,), "S"):
                p.where(B[j, 0] > Sum[5])
                with p.iterate("half", (K,), "S", ("h",)) as (h,):
                    Sum[h] = Sum[h] * 0.5
            with p.iterate("add", (K,), "S", ("a",)) as (a,):
                p.where(a < 5)
                Sum[a] = Sum[a] + B[j, a]
                Last[a] = B[j, a]
        with p.iterate("out", (K,), "S", ("f",)) as (f,):
            C[i, f] = Sum[f]
            D[i, f] = Last[f]
    return p.finish()


def arguments(program):
    rng = np.random.default_rng(0)
    values = {
        "m": 5,
        "n": 7,
        "nnz": 12,
        "ptr": np.array([0, 3, 3, 8, 9, 12], np.int32),
        "idx": rng.integers(0, 7, 12).astype(np.int32),
    }
    for buffer in program.parameters:
        shape = {"A": (12,), "B": (7, 6), "C": (5, 6), "D": (5, 6)}[buffer.name]
        values[buffer.name] = rng.standard_normal(shape).astype(np.float32)
    return values


@pytest.mark.parametrize("make", [running_maximum, spmm])
@pytest.mark.parametrize("chunks", [(6,), (4, 2), (1, 2, 3)])
def test_same_results(make, chunks):
    before = make()
    after = tile_axis(before, "K", (chunks,))
    given = arguments(before)
    expected, got = interpret(before, given), interpret(after, given)
    for name in set(expected) & {"C", "D"}:
        assert np.abs(expected[name]).max() > 0
        np.testing.assert_array_equal(got[name], expected[name])


def test_a_buffer_that_is_also_indexed_otherwise_stays_whole():
    rows = tile_axis(running_maximum(), "K", ((4, 2),)).iteration("rows")
    assert [b.name for b in rows.locals] == ["Sum", "Last_0", "Last_1"]


def test_every_iteration_over_the_axis_is_cut_where_it_stood():
    rows = tile_axis(running_maximum(), "K", ((4, 2),)).iteration("rows")
    assert [s.name for s in rows.body] == ["start_0", "start_1", "edges", "out_0", "out_1"]
    assert [s.name for s in rows.body[2].body] == ["halve", "add_0", "add_1"]
    assert [s.name for s in rows.body[2].body[0].body] == ["half_0", "half_1"]
