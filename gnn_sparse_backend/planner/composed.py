"""What formats of a matrix cost in a product with a dense one: plans of composed matrices, from numbers alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import pow

from .problem import Problem

LINEAR = "composed_linear"
DENSE = "dense"
"""The matrix as it is, with its zeros, by PyTorch's product."""

# Nanoseconds of one thread for a multiplication of a value with a feature, in float32: of dense matrices, of blocks by
# their shorter side, and of single non-zeros, the second in a linear layer by slices of tokens. Fitted to 3,072 x 768,
# 768 x 3,072 and 768 x 768 by 512 on an EPYC with AVX2, which was shared; those of blocks below 8 are guesses.
DENSE_NS = 0.028
BLOCK_NS = ((32, 0.034), (16, 0.055), (8, 0.055), (4, 0.100), (2, 0.100))
SINGLE_NS, SLICED_NS = 0.100, 0.075
# A row of results is stored once for each piece; single non-zeros of a linear layer want slices of its input
# transposed; a kernel is called (a guess).
STORE_NS, TRANSPOSE_NS, CALL_NS = 1.0, 0.5, 8_000.0
# Of blocks in a half type to blocks in float32, which are widened again and again.
HALF_BLOCKS = 2.0
# Of a dense product in a half type to one in float32: with instructions for it, and where it is emulated.
HALF_NATIVE, HALF_EMULATED = 0.25, 5.5
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
    return Problem(LINEAR if tokens else "composed", *shape, nnz, features, dtype, threads)


def predicted(problem: Problem, pieces: Sequence[PieceCount] | None, processor: Collection[str]) -> float:
    """Seconds of a product with the matrix in these pieces, or dense where there are none. processor: its features, in
    LLVM's spelling.
    """
    if pieces is None:
        work = problem.rows * problem.cols * problem.features * DENSE_NS * _dense_scale(problem.dtype, processor)
        return (work / problem.threads + CALL_NS) * 1e-9
    scale = 2.0 if problem.dtype == "float64" else 1.0
    work = sum(piece.slots * problem.features * _rate(piece.side, problem) for piece in pieces)
    work += len(pieces) * problem.rows * problem.features * STORE_NS
    if problem.kind == LINEAR and any(piece.side == 1 for piece in pieces):
        work += problem.cols * problem.features * TRANSPOSE_NS
    return (work * scale / problem.threads + CALL_NS) * 1e-9


def _dense_scale(dtype: str, processor: Collection[str]) -> float:
    if dtype in _HALF_FEATURE:
        return HALF_NATIVE if _HALF_FEATURE[dtype] in processor else HALF_EMULATED
    return 2.0 if dtype == "float64" else 1.0


def _rate(side: int, problem: Problem) -> float:
    """Of single non-zeros rows of the operand are gathered: the more of these beside rows of the result, the fewer the
    caches hold, though slices are held better.
    """
    for least, rate in BLOCK_NS:
        if side >= least:
            return rate * (HALF_BLOCKS if problem.dtype in _HALF_FEATURE else 1.0)
    wide = max(1.0, problem.cols / max(problem.rows, 1))
    return SLICED_NS * pow(wide, 0.15) if problem.kind == LINEAR else SINGLE_NS * pow(wide, 0.4)
