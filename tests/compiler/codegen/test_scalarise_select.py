"""Choices in vector loops, number by number: the same results, and no choice is left in a vector loop."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from gnn_sparse_backend.compiler.codegen.cuda.scalarise_select import choose_apart
from gnn_sparse_backend.compiler.position.interpret import run_loops

WIDTH = 4
X, Y, Z = (tirx.decl_buffer([2 * WIDTH], "float32", name=name) for name in "XYZ")


def loop(body, first: int = 0) -> tirx.For:
    p = tirx.Var("p", "int32")
    return tirx.For(p, first, WIDTH, tirx.ForKind.VECTORIZED, body(p))


def chosen(p) -> tirx.Expr:
    return tirx.Select(X[p] < 0, tirx.const(0.0, "float32"), X[p] + 1)


BODIES = {
    "one store": lambda p: tirx.BufferStore(Y, chosen(p), [p]),
    "stored elsewhere": lambda p: tirx.BufferStore(Y, chosen(p), [2 * WIDTH - 1 - p]),
    "beside a store that does not choose": lambda p: tirx.SeqStmt(
        [tirx.BufferStore(Y, chosen(p), [p]), tirx.BufferStore(Z, Y[p] * 2, [p])]
    ),
    "in two stores": lambda p: tirx.SeqStmt(
        [tirx.BufferStore(Y, chosen(p), [p]), tirx.BufferStore(Z, Y[p] + chosen(p), [p])]
    ),
    "under a condition": lambda p: tirx.SeqStmt(
        [
            tirx.BufferStore(Y, chosen(p), [p]),
            tirx.IfThenElse(X[p] > 0, tirx.BufferStore(Z, chosen(p), [p]), None),
        ]
    ),
    "none": lambda p: tirx.BufferStore(Y, X[p] + 1, [p]),
}


@pytest.mark.short(2)
@pytest.mark.parametrize("first", [0, WIDTH])
@pytest.mark.parametrize("name", BODIES)
def test_the_same_numbers(name, first):
    function = tirx.PrimFunc([X, Y, Z], loop(BODIES[name], first))
    (apart,) = choose_apart(tvm.IRModule({"f": function})).functions.values()
    given = {
        "X": np.array([1, -2, 3, -4, -5, 6, 7, -8]),
        "Y": np.full(2 * WIDTH, 100.0),
        "Z": np.full(2 * WIDTH, 200.0),
    }
    expected, found = run_loops(function, given), run_loops(apart, given)
    assert not np.array_equal(expected["Y"], given["Y"])
    for array in "XYZ":
        np.testing.assert_array_equal(found[array], expected[array])
    assert not [each for each in loops(apart.body, tirx.ForKind.VECTORIZED) if chooses(each)]
    assert bool(loops(apart.body, tirx.ForKind.VECTORIZED)) == (name != "under a condition")


def loops(body, kind) -> list[tirx.For]:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(body, (tirx.For, found.append), order="post")
    return [each for each in found if each.kind == kind]


def chooses(body) -> bool:
    found: list[tirx.Select] = []
    tvm_ffi.structural_walk(body, (tirx.Select, found.append), order="post")
    return bool(found)
