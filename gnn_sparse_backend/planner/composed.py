"""What formats of a matrix cost in a product with a dense one: plans of composed matrices, from numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import pow
from typing import ClassVar

from ..compiler.codegen import Target
from ..compiler.language.types import BYTES
from ..frozen import dataclass
from .plan import Plan
from .problem import Problem

LINEAR = "composed_linear"
SPMM = "composed"
DENSE = "dense"
"""The matrix as it is, with its zeros, by PyTorch's product."""


@dataclass(frozen=True)
class Rates:
    """Nanoseconds of one thread, in float32.

    blocks: for a multiplication of a value with a feature, of blocks by their shorter side. single: of single
    non-zeros, for which rows of the operand are gathered; it grows with the bytes over ``cached`` to the power of
    ``growth``, up to ``MOST_GROWTH`` times. together: how many features of the operand the gathers go to at a time,
    all where None. store: for an element of the result, of each piece. transpose: for an element of the operand,
    where pieces go by slices: single non-zeros and blocks of a side below ``sliced``. half: what blocks of a half
    type are to those of float32, as they are widened again and again. half_single: of single non-zeros likewise.
    dense: for a multiplication of a dense product.
    """

    blocks: tuple[tuple[int, float], ...]
    single: float
    cached: float
    growth: float
    together: int | None
    store: float
    transpose: float
    half: float
    half_single: float
    dense: float = 0.028
    read: float = 0.0
    sliced: int = 2


# Fitted on an EPYC with AVX2, two threads: linear layers to 3,072 x 768, 768 x 3,072 and 768 x 768 by 512 (blocks below
# 8 are guesses), where single non-zeros go by slices of tokens; other products to a set of benchmarks/formats.py.
RATES = {
    LINEAR: Rates(
        ((32, 0.034), (8, 0.055), (2, 0.100)), 0.075, 96 * 2**10, 0.15, 32, 1.0, 0.33, 2.0, 1.0, 0.031, sliced=32
    ),
    SPMM: Rates(((8, 0.067), (2, 0.065)), 0.070, 1.5 * 2**20, 0.72, None, 0.4, 0.0, 1.6, 1.5),
}
# Likewise of two cores of a Xeon with AVX-512 and AMX, whose rows of 32 tokens are held by 2 MiB of cache.
# Products `A x` are fitted to logarithms of times and to regret together, on the same set.
WITH_AVX512 = {
    LINEAR: Rates(
        ((32, 0.018), (16, 0.021), (8, 0.024), (2, 0.05)), 0.046, 2**19, 0.15, 32, 0.8, 1.1, 1.2, 1.0, 0.0154, sliced=16
    ),
    SPMM: Rates(((8, 0.038), (2, 0.043)), 0.046, 855 * 2**10, 0.18, None, 1.3, 0.0, 1.14, 1.14, 0.0144, 0.08),
}
TILE, TILE_STORE = 16, 0.3
"""Fewest rows and columns of blocks of bfloat16 on tiles; nanoseconds of one thread for an element of the result."""
TILE_RATE, PAIRS_RATE = 0.004, 0.013
"""Nanoseconds for a multiplication: on tile registers, on the same Xeon, or two at a time, on a Zen 4."""
MOST_GROWTH = 3.0
"""Where nothing is held by the caches (a guess)."""
ALIKE = 0.92
"""Time of single non-zeros of which rows have equally many, relative to others: 0.84 to 0.97 from 64 features on, of
nm(2, 4) and csr on the same Xeon, which other work shared."""
CALL_NS = 8_000.0
"""A kernel is called (a guess)."""
PACK_NS = 1.3
"""The number of an edge is put into its slot, in one thread (0.7 in order to 1.8 at random, of a million)."""
LOOK_NS = 0.05
"""An element of the operand is looked at, where it must be finite to be multiplied by padding (a guess)."""
# Time of a dense product in a half type relative to float32: with instructions for it, by pairs on a Zen 4, and where
# it is emulated.
HALF_NATIVE, HALF_IN_PAIRS, HALF_EMULATED = 0.25, 0.7, 5.5
_HALF_FEATURE = {"bfloat16": "avx512bf16", "float16": "avx512fp16"}


@dataclass(frozen=True)
class ComposedPlan(Plan, strategy="composed"):
    """The formats of a matrix, as words with " + " between them, or `DENSE`. tile: vectors of columns that its kernel
    accumulates together, 0 for as many as the rule has.
    """

    formats: str
    tile: int = 0

    def __str__(self) -> str:
        return self.formats + (f", {self.tile} vectors of columns together" if self.tile else "")


@dataclass(frozen=True)
class FormatsPlan(ComposedPlan, strategy="formats"):
    """The formats of a graph in which its sums are products of composed matrices. Only a search tries them: what they
    cost depends on how full blocks are, of which a `Problem` says nothing.
    """

    meanings: ClassVar[Mapping[str, str]] = {
        "bsr": "blocks of that side, stored whole, of which zeros are multiplied, too",
        "csr": "non-zeros one by one, after all that stands before",
        "hyb": "rows by their lengths, filled up to a power of two (SparseTIR, section 4.2.1)",
        "nm": "as many non-zeros of each group of neighbouring columns at most",
        "vectors of columns together": "are accumulated at once",
    }
    late: ClassVar[str] = "formats"
    counted: ClassVar[bool] = False

    otherwise: Plan = field(kw_only=True)


@dataclass(frozen=True)
class PieceCount:
    """side: the rows of a block, 1 where non-zeros stand by themselves. slots: stored values, padding included. alike:
    rows have equally many, so that kernels visit several together.
    """

    side: int
    slots: int
    alike: bool = False


def problem_of(
    shape: tuple[int, int], nnz: int, features: int, dtype: str, threads: int, tokens: bool = False
) -> Problem:
    """What is remembered of a product of a composed matrix; with ``tokens`` of ``composed_linear``'s."""
    return Problem(LINEAR if tokens else SPMM, *shape, nnz, features, dtype, threads)


def predicted(problem: Problem, pieces: Sequence[PieceCount] | None, processor: Target) -> float:
    """Seconds of a product with the matrix in these pieces, or dense where there are none."""
    rates, scale = _rates(problem.kind, processor), 2.0 if problem.dtype == "float64" else 1.0
    if pieces is None:
        work = problem.rows * problem.cols * problem.features * rates.dense * _dense_scale(problem.dtype, processor)
        work += problem.rows * problem.cols * BYTES[problem.dtype] * rates.read
        return (work / problem.threads + CALL_NS) * 1e-9
    if _on_tiles(problem, pieces, processor):
        (piece,) = pieces
        rate = TILE_RATE if processor.has_amx_bf16 else PAIRS_RATE
        work = piece.slots * problem.features * rate + problem.rows * problem.features * TILE_STORE
        return (work / problem.threads + CALL_NS) * 1e-9
    work = sum(piece.slots * problem.features * _rate(rates, piece, problem) for piece in pieces)
    work += len(pieces) * problem.rows * problem.features * rates.store
    if any(piece.side < rates.sliced for piece in pieces):
        work += problem.cols * problem.features * rates.transpose
    return (work * scale / problem.threads + CALL_NS) * 1e-9


def predicted_on_graph(problem: Problem, pieces: Sequence[PieceCount], processor: Target, weighted: bool) -> float:
    """Seconds of a sum over a graph in these pieces. weighted: values stand at the edges, in their order."""
    work = sum(piece.slots for piece in pieces) * PACK_NS if weighted else 0.0
    if any(piece.side > 1 for piece in pieces):
        work += problem.cols * problem.features * LOOK_NS / problem.threads
    return predicted(problem, pieces, processor) + work * 1e-9


def _on_tiles(problem: Problem, pieces: Sequence[PieceCount], processor: Target) -> bool:
    return (
        problem.kind == LINEAR
        and problem.dtype == "bfloat16"
        and processor.has_bf16_tiles
        and len(pieces) == 1
        and pieces[0].side % TILE == 0
    )


def _rates(kind: str, processor: Target) -> Rates:
    return WITH_AVX512.get(kind, RATES[kind]) if "avx512f" in processor.features else RATES[kind]


def _dense_scale(dtype: str, processor: Target) -> float:
    if dtype in _HALF_FEATURE:
        if _HALF_FEATURE[dtype] not in processor.features:
            return HALF_EMULATED
        return HALF_IN_PAIRS if dtype == "bfloat16" and processor.has_fast_bf16_pairs else HALF_NATIVE
    return 2.0 if dtype == "float64" else 1.0


def _rate(rates: Rates, piece: PieceCount, problem: Problem) -> float:
    half = problem.dtype in _HALF_FEATURE
    for least, rate in rates.blocks:
        if piece.side >= least:
            return rate * (rates.half if half else 1.0)
    size = 4 if rates.together else BYTES[problem.dtype]
    held = problem.cols * min(problem.features, rates.together or problem.features) * size
    growth = min(pow(max(1.0, held / rates.cached), rates.growth), MOST_GROWTH)
    return rates.single * growth * (rates.half_single if half else 1.0) * (ALIKE if piece.alike else 1.0)
