"""Numbers of float32 transposed in squares: what they are, where they lie either way, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.compile import compile_program, stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.pairs import transpose_words

SCHEDULE = cpu_schedule(transpose_words("turn", 16))


def turning(rows=32, columns=16, dtype="float32", by_rows=True, plain=True):
    """B[i, columns, rows] = A[i, rows, columns], visited by rows of A or of B."""
    p = ProgramBuilder("turning")
    I = p.dense_fixed("I", p.size("count"))
    R, C = p.dense_fixed("R", rows), p.dense_fixed("C", columns)
    A, B = p.buffer("A", (I, R, C), dtype), p.buffer("B", (I, C, R), dtype)
    with p.iterate("each", (I,), "S", ("i",)) as (i,):
        axes, names = ((R, C), ("r", "c")) if by_rows else ((C, R), ("c", "r"))
        with p.iterate("turn", axes, "SS", names) as (first, second):
            r, c = (first, second) if by_rows else (second, first)
            B[i, c, r] = A[i, r, c] if plain else A[i, r, c] + 1.0
    return p.finish()


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("rows, columns", [(16, 16), (32, 16), (16, 48)])
def test_squares_are_transposed(rows, columns, by_rows, lanes):
    """Every bit as it was, of numbers that are none and of the smallest as well."""
    torch = pytest.importorskip("torch")
    program = turning(rows, columns, by_rows=by_rows)
    a = np.random.default_rng(0).standard_normal((3, rows, columns)).astype(np.float32)
    a[0, 3, 5], a[1, 2, 1], a[2, 0, 0], a[2, 1, 0] = np.nan, np.inf, -0.0, 1e-45
    b = torch.zeros(3, columns, rows)
    given = {"count": 3, "A": torch.from_numpy(a), "B": b}
    compile_program(program, cpu_schedule(transpose_words("turn", lanes)))(
        *(given[name] for name in program.parameter_names)
    )
    np.testing.assert_array_equal(b.numpy().view(np.int32), np.swapaxes(a, 1, 2).view(np.int32))
    want = interpret(program, {"count": 3, "A": a, "B": np.zeros((3, columns, rows), np.float32)})
    np.testing.assert_array_equal(b.numpy(), want["B"])


@pytest.mark.parametrize(
    "program, words",
    [
        (turning(rows=24), "two axes of multiples of 16"),
        (turning(dtype="float64"), "more than stores to buffers of float32"),
        (turning(plain=False), "not one store of a number"),
    ],
)
def test_refuses_what_is_no_transposition(program, words):
    with pytest.raises(StageIError, match=f"transpose_words: iteration 'turn'.*{words}"):
        stage3(program, SCHEDULE)
