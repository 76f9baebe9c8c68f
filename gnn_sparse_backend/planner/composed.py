"""What formats of a matrix cost in a product with a dense one: plans of composed matrices, from numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from ..compiler.codegen import host_target
from .problem import Problem

DENSE = "dense"
"""The matrix as it is, with its zeros, by PyTorch's product."""

# Nanoseconds of one thread for a multiplication of a value with a feature, in float32: of dense matrices, of blocks by
# their shorter side, and of single non-zeros. From an EPYC with AVX2 (3,072 x 768 by 512), which was shared; those of
# blocks below 8 are guesses.
DENSE_NS = 0.026
BLOCK_NS = ((32, 0.036), (16, 0.042), (8, 0.044), (4, 0.060), (2, 0.075))
SINGLE_NS = 0.100
# A row of results is stored once for each piece, and a kernel is called: guesses.
STORE_NS, CALL_NS = 0.25, 8_000.0
# Of a dense product in a half type to one in float32: with instructions for it, and where it is emulated.
HALF_NATIVE, HALF_EMULATED = 0.25, 6.0
_HALF_FEATURE = {"bfloat16": "avx512bf16", "float16": "avx512fp16"}


@dataclass(frozen=True)
class ComposedPlan:
    """The formats of a matrix, as words with " + " between them, or `DENSE`."""

    formats: str


@dataclass(frozen=True)
class PieceCount:
    """side: the rows of a block, 1 where non-zeros stand by themselves. slots: stored values, padding included."""

    side: int
    slots: int


def problem_of(
    shape: tuple[int, int], nnz: int, features: int, dtype: str, threads: int, tokens: bool = False
) -> Problem:
    """What is remembered of a product of a composed matrix; with ``tokens`` of ``composed_linear``'s."""
    return Problem("composed_linear" if tokens else "composed", *shape, nnz, features, dtype, threads)


def predicted(problem: Problem, pieces: Sequence[PieceCount] | None) -> float:
    """Seconds of a product with the matrix in these pieces, or dense where there are none."""
    scale = 2.0 if problem.dtype == "float64" else 1.0
    if pieces is None:
        work = problem.rows * problem.cols * problem.features * DENSE_NS * _dense_scale(problem.dtype)
        stored = 1
    else:
        work = sum(piece.slots * problem.features * _rate(piece.side, problem) * scale for piece in pieces)
        stored = len(pieces)
    store = stored * problem.rows * problem.features * STORE_NS * scale
    return ((work + store) / problem.threads + CALL_NS) * 1e-9


def _dense_scale(dtype: str) -> float:
    if dtype in _HALF_FEATURE:
        return HALF_NATIVE if _HALF_FEATURE[dtype] in host_target().features else HALF_EMULATED
    return 2.0 if dtype == "float64" else 1.0


def _rate(side: int, problem: Problem) -> float:
    """Of single non-zeros rows of the operand are gathered: the more of these beside rows of the result, the fewer the
    caches hold.
    """
    blocks = next((rate for least, rate in BLOCK_NS if side >= least), None)
    return SINGLE_NS * max(1.0, sqrt(problem.cols / problem.rows)) if blocks is None else blocks
