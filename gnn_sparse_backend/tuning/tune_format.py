"""``gsb.tune_format``: which formats a matrix is multiplied in fastest."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from ..formats.composed.decompose import csr_of, decompose_csr
from ..formats.composed.decomposition import Decomposition
from ..formats.composed.spec import parse_formats
from ..ops.composed.api import composed_linear, composed_spmm
from ..planner.composed import DENSE, ComposedPlan, PieceCount, predicted, problem_of
from ..planner.database import database
from ..planner.problem import Problem
from ..runtime.text import render
from ..runtime.type_names import check_dtype, type_name
from ..structures.facts import content_hash

CANDIDATES = ("csr", "bsr(32)", "bsr(16)", "bsr(8)", "bsr(32) + csr", "bsr(16) + csr", "bsr(8) + csr", "bsr(4) + csr")
"""What is tried of every matrix, beside dense."""
MOST_SLOTS = 8
"""Stored values for each non-zero beyond which a format is not made at all."""
PROMISING = 2.0
"""Candidates whose prediction is at most so many times the best one's are measured."""


@dataclass(frozen=True)
class FormatRow:
    """A candidate: formats as words, values that it stores beside non-zeros, and seconds of a product."""

    formats: str
    padding: int
    predicted: float
    measured: float | None = None


@dataclass(frozen=True)
class FormatChoice:
    """What ``tune_format`` found; prints as a table.

    formats: for ``gsb.formats.decompose``, or ``("dense",)`` where the matrix is fastest as it is. source:
    ``measured``, ``known`` from before, or ``predicted``. rows: all candidates, the fastest first.
    """

    formats: tuple[str, ...]
    source: str
    rows: tuple[FormatRow, ...]

    @property
    def dense(self) -> bool:
        """Whether no format pays."""
        return self.formats == (DENSE,)

    def __str__(self) -> str:
        table = Table(title_justify="left", title=f"Formats ({self.source})")
        for heading in ("format", "padding", "predicted, µs", "measured, µs"):
            table.add_column(heading, justify="left" if heading == "format" else "right")
        for row in self.rows:
            measured = "" if row.measured is None else f"{row.measured * 1e6:,.1f}"
            table.add_row(row.formats, f"{row.padding:,}", f"{row.predicted * 1e6:,.1f}", measured)
        return render(table)


def tune_format(
    matrix: Any, features: int, dtype: str | torch.dtype = "float32", budget: float = 1.0, *, tokens: bool = False
) -> FormatChoice:
    """Find the formats in which a matrix is multiplied fastest with a dense one of so many columns.

        choice = gsb.tune_format(weight, 512)
        print(choice)
        parts = None if choice.dense else gsb.formats.decompose(weight, choice.formats)

    The cost model orders the candidates, and those that it thinks may win are measured, the most promising first, while
    the budget lasts. What was measured is remembered for this structure, width and type, in later processes too.

    Args:
        matrix: as ``gsb.formats.decompose`` takes it.
        features: columns of the dense operand; rows with ``tokens``.
        dtype: of the values.
        budget: seconds to measure for. 0: decide at once, by what is known of the structure or by the cost model.
        tokens: products are ``composed_linear``'s.

    Raises:
        TypeError, ValueError: quoting what is no matrix, width, or budget.
    """
    if isinstance(features, bool) or not isinstance(features, int) or features < 1:
        raise ValueError(f"tune_format: features must be a whole number of at least 1, got {features!r}")
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or budget < 0:
        raise ValueError(f"tune_format: budget must be seconds, at least 0, got {budget!r}")
    dtype = check_dtype(dtype)
    given = (matrix.indptr, matrix.indices, None, matrix.shape) if hasattr(matrix, "decomposed") else csr_of(matrix)
    indptr, indices, _, shape = given
    if indices.device.type != "cpu":
        raise ValueError(
            f"tune_format: it measures products on the CPU alone, and the matrix is on {indices.device}; name "
            "formats to gsb.formats.decompose, whose products run there"
        )
    problem = problem_of(shape, indices.numel(), features, type_name(dtype), torch.get_num_threads(), tokens)

    def fingerprint() -> str:
        return content_hash(indptr, indices, None, shape)

    made = {words: _parts(given, words) for words in CANDIDATES}
    found = {words: parts for words, parts in made.items() if parts is not None}
    expected = {words: predicted(problem, _counts(parts)) for words, parts in found.items()}
    expected[DENSE] = predicted(problem, None)
    known = database().find(problem, fingerprint)
    seconds = {} if known is None else {plan.formats: time for plan, time in known.seconds}
    source = "known" if seconds else "predicted"
    if budget and not seconds:
        seconds = _measured(found, expected, problem, dtype, budget, tokens)
        source = "measured"
        database().add(problem, fingerprint(), {ComposedPlan(words): time for words, time in seconds.items()})
    rows = [
        FormatRow(words, 0 if words not in found else found[words].padding, time, seconds.get(words))
        for words, time in expected.items()
    ]
    if seconds:
        rows.sort(key=lambda row: (row.measured is None, row.measured or row.predicted))
    else:
        rows.sort(key=lambda row: row.predicted)
    return FormatChoice(tuple(rows[0].formats.split(" + ")), source, tuple(rows))


def _parts(given: Any, words: str) -> Decomposition | None:
    """The matrix in a candidate's formats; None where that stores too much."""
    indptr, indices, _, shape = given
    specs = parse_formats(words.split(" + "))
    if not all(side <= max(extent, 1) for spec in specs for side, extent in zip(spec.block, shape)):
        return None
    try:
        parts = decompose_csr(indptr, indices, None, shape, specs, 0.5, check=False)
    except ValueError:
        return None
    return parts if parts.num_slots <= MOST_SLOTS * max(parts.nnz, 1) else None


def _counts(parts: Decomposition) -> list[PieceCount]:
    return [PieceCount(min(piece.spec.block), piece.num_slots) for piece in parts.pieces]


def _measured(
    found: dict[str, Decomposition],
    expected: dict[str, float],
    problem: Problem,
    dtype: torch.dtype,
    budget: float,
    tokens: bool,
) -> dict[str, float]:
    order = sorted(expected, key=lambda words: expected[words])
    order = [words for words in order if expected[words] <= PROMISING * expected[order[0]]]
    x = torch.randn(problem.cols, problem.features).to(dtype)
    x = x.t().contiguous() if tokens else x
    clock, seconds = time.perf_counter, {}
    deadline = clock() + budget
    calls: dict[str, Callable[[], Tensor]] = {}
    for words in order:
        if calls and clock() >= deadline:
            break
        calls[words] = _call(found.get(words), x, problem, dtype, tokens)
        calls[words]()  # compiles
    # in turns, so that what else the machine does meets all of them; of each the fastest
    while not seconds or clock() < deadline:
        for words, call in calls.items():
            begin = clock()
            call()
            taken = clock() - begin
            seconds[words] = min(seconds.get(words, taken), taken)
    return seconds


def _call(
    parts: Decomposition | None, x: Tensor, problem: Problem, dtype: torch.dtype, tokens: bool
) -> Callable[[], Tensor]:
    if parts is None:
        weight = torch.randn(problem.rows, problem.cols).to(dtype)
        return lambda: torch.nn.functional.linear(x, weight) if tokens else weight @ x
    values = torch.randn(parts.num_slots).to(dtype) * parts.mask
    product = composed_linear if tokens else composed_spmm
    return lambda: product(parts, values, x, packed=True)
