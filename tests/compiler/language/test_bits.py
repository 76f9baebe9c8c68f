"""Sets of small numbers in words: every stage against Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler import ProgramBuilder, StageIError
from gnn_sparse_backend.compiler.language import bits
from gnn_sparse_backend.compiler.language.expr import number
from tests.compiler.lowering.test_bounds import every_stage

WORDS = [1, 2, 3, 0b1010_0000, 2**31, 2**32 - 1, 2**40 + 2**20, 2**62, 2**63 - 1]


def lowest(word: int) -> int:
    return next(n for n in range(64) if word >> n & 1)


FOUND = {
    "bit_count": (bits.bit_count, lambda x: bin(x).count("1")),
    "trailing_zeros": (bits.trailing_zeros, lowest),
    "without_lowest": (bits.without_lowest, lambda x: x - 2 ** lowest(x)),
    "bit": (lambda x: bits.bit(bits.trailing_zeros(x)), lambda x: 2 ** lowest(x)),
    "bit_and": (lambda x: bits.bit_and(x, 0b1110_0011), lambda x: x & 0b1110_0011),
    "bit_or": (lambda x: bits.bit_or(x, 2**33 + 5), lambda x: x | 2**33 + 5),
}


@pytest.mark.short(8)
@pytest.mark.parametrize("name", FOUND)
def test_every_stage_means_the_same(name):
    expression, wanted = FOUND[name]
    p = ProgramBuilder("words")
    i_axis = p.dense_fixed("I", p.size("m"))
    x, y = (p.buffer(name, (i_axis,), "int64") for name in "xy")
    with p.iterate("each", (i_axis,), "S") as (i,):
        y[i] = expression(x[i])
    given = {"m": len(WORDS), "x": np.array(WORDS), "y": np.zeros(len(WORDS), np.int64)}
    for found in every_stage(p.finish(), given, "y"):
        assert found.tolist() == [wanted(word) for word in WORDS]


def test_numbers_with_a_point_are_no_sets():
    half = number(0.5, "float32")
    with pytest.raises(StageIError, match="bit_count wants an integer, not float32"):
        bits.bit_count(half)
    with pytest.raises(StageIError, match="'&' wants integer operands, not float32"):
        bits.bit_and(half, half)
