"""Taking an axis inside: the meaning stays, and what cannot be taken inside is refused."""

import numpy as np
import pytest

from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.transforms.dense_axes.sink import sink_axis


def product(width=3):
    """Rows of dense blocks: Y[io * width + ii] = sum over j of A[io, j, ii] * X[j]."""
    p = ProgramBuilder("blocks")
    rows, terms = p.sizes("rows", "terms")
    IO, II, J = p.dense_fixed("IO", rows), p.dense_fixed("II", width), p.dense_fixed("J", terms)
    A = p.buffer("A", (IO, J, II), "float32")
    X, Y = p.buffer("X", (J,), "float32"), p.buffer("Y", (IO, II), "float32")
    with p.iterate("rows_of", (IO, II), "SS") as (io, ii):
        S = p.local("S", (), "float32")
        with p.iterate("sum", (J,), "R") as (j,):
            with p.init():
                S[()] = 0.0
            S[()] = S[()] + A[io, j, ii] * X[j]
        Y[io, ii] = S[()]
    return p.finish()


def test_the_meaning_stays():
    rng = np.random.default_rng(0)
    given = {"rows": 2, "terms": 4, "A": rng.normal(size=(2, 4, 3)).astype("f4"), "X": rng.normal(size=4).astype("f4")}
    given["Y"] = np.full((2, 3), np.nan, "f4")
    sunk = sink_axis(product(), "rows_of", "II")
    assert [a.name for a in sunk.iteration("rows_of").axes] == ["IO"]
    assert [a.name for a in sunk.iteration("sum").axes] == ["J", "II"]
    np.testing.assert_allclose(interpret(sunk, given)["Y"], np.einsum("bji,j->bi", given["A"], given["X"]), rtol=1e-5)


def test_refusals():
    for name, axis, words in (
        ("rows_of", "IO", "axis 'IO' is not dense-fixed with a static length"),
        ("sum", "II", "'sum' does not visit axis 'II' as a spatial one"),
    ):
        with pytest.raises(StageIError, match=words):
            sink_axis(product(), name, axis)
    with pytest.raises(StageIError, match="'rows_of' visits no other axis"):
        sink_axis(alone(), "rows_of", "II")


def alone():
    p = ProgramBuilder("alone")
    II = p.dense_fixed("II", 3)
    Y = p.buffer("Y", (II,), "float32")
    with p.iterate("rows_of", (II,), "S") as (ii,):
        Y[ii] = 1.0
    return p.finish()
