"""``gsb.tune_format``: which formats a matrix is multiplied in fastest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from ..compiler.codegen import host_target
from ..formats.composed.decompose import FILL, csr_of, decompose_csr
from ..formats.composed.decomposition import Decomposition
from ..formats.composed.spec import SEPARATOR, FormatSpec, parse_formats, plain, readable
from ..frozen import dataclass
from ..ops.composed.api import composed_linear, composed_spmm
from ..ops.composed.candidates import CANDIDATES, counted, named, registered, tiles
from ..ops.composed.executables import with_tile
from ..planner.composed import DENSE, ComposedPlan, PieceCount, predicted, problem_of
from ..planner.database import database
from ..planner.problem import Problem
from ..runtime.text import render
from ..runtime.type_names import check_dtype, type_name
from ..structures.facts import content_hash
from .report import micro

PROMISING = 2.0
"""Candidates whose prediction is at most this multiple of the best one's are measured."""


@dataclass(frozen=True)
class FormatRow:
    """A candidate: formats as words, values that it stores beside non-zeros, and seconds of a product. padding,
    predicted: None where they were not worked out, as the structure is known. tile: of its schedule, how many vectors
    of columns are accumulated together; 0: as many as the rule has.
    """

    formats: str
    padding: int | None
    predicted: float | None
    measured: float | None = None
    tile: int = 0

    @property
    def name(self) -> str:
        """Formats and, where it is not the rule's, tile in words."""
        return f"{self.formats}, tile of {self.tile}" if self.tile else self.formats


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

    @property
    def reason(self) -> str:
        """Which is taken and why, in words."""
        known = "predicted" if self.rows[0].measured is None else "measured"
        taken, *others = [(row.name, seconds) for row in self.rows if (seconds := getattr(row, known)) is not None]
        margin = f", {others[0][1] / taken[1]:.2f} times faster than {others[0][0]}, the next" if others else ""
        hint = "" if known == "measured" else "; nothing was measured on this structure, as gsb.tune_format would"
        return f"taken: {taken[0]}, {known} to be the fastest{margin}{hint}"

    def __str__(self) -> str:
        table = Table(title_justify="left", title=f"Formats ({self.source}; * is taken)")
        for heading in ("format", "padding", "predicted, µs", "measured, µs"):
            table.add_column(heading, justify="left" if heading == "format" else "right")
        for row in self.rows:
            padding = "" if row.padding is None else f"{row.padding:,}"
            mark = "* " if row is self.rows[0] else "  "
            table.add_row(mark + row.name, padding, micro(row.predicted), micro(row.measured))
        return render(table, self.reason)


def tune_format(
    matrix: Any,
    features: int,
    dtype: str | torch.dtype = "float32",
    budget: float = 1.0,
    *,
    tokens: bool = False,
    candidates: Sequence[str | Sequence[str]] = (),
) -> FormatChoice:
    """Find the formats in which a matrix is multiplied fastest with a dense one of ``features`` columns.

        choice = gsb.tune_format(weight, 512)
        print(choice)
        parts = None if choice.dense else gsb.formats.decompose(weight, choice.formats)

    The cost model orders the candidates, which are formats and schedules of their kernels, and those that it thinks may
    win are measured, the most promising first, while the budget lasts. What was measured is remembered for this
    structure, width and type, in later processes too, and ``composed_spmm`` takes the schedule from there.

    Args:
        matrix: as ``gsb.formats.decompose`` takes it.
        features: columns of the dense operand; rows with ``tokens``.
        dtype: of the values.
        budget: seconds to measure for. 0: decide at once, by what is known of the structure or by the cost model.
        tokens: products are ``composed_linear``'s.
        candidates: formats to try beside its own and those that are registered (``gsb.formats.register``), each as
            ``gsb.formats.decompose`` takes them, or one word such as ``"bitmap(8) + csr"``.

    Raises:
        TypeError, ValueError: quoting what is no matrix, width, budget, or format.
    """
    return _tuned(matrix, features, dtype, budget, tokens, _users(candidates), table=False)


def explain_format(matrix: Any, features: Any = 64, *, dtype: Any = "float32", tokens: bool = False) -> FormatChoice:
    """``gsb.explain(matrix, "format")``: all candidates with what is predicted and what was measured. Nothing is
    measured.
    """
    return _tuned(matrix, features, dtype, 0, tokens, _users(()), table=True)


def _users(candidates: Any) -> dict[str, tuple[FormatSpec, ...]]:
    """The candidates of users, registered and given, by the words under which they are kept."""
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise TypeError(f'tune_format: candidates must be a list such as ["bitmap(8) + csr"], got {candidates!r}')
    return named((*registered(), *candidates))


def _tuned(
    matrix: Any,
    features: Any,
    dtype: Any,
    budget: Any,
    tokens: bool,
    users: dict[str, tuple[FormatSpec, ...]],
    table: bool,
) -> FormatChoice:
    """table: of all candidates, where the structure is known, too."""
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

    known = database().find(problem, fingerprint)
    # a user's format that was registered with another definition is another one
    seconds = {} if known is None else {plan: taken for plan, taken in known.seconds if _in_table(plan)}
    untried = set(users) - {plan.formats for plan in seconds} if budget else set()
    if seconds and not table and not untried:
        measured = [FormatRow(plain(plan.formats), None, None, taken, plan.tile) for plan, taken in seconds.items()]
        return _choice("known", measured)
    count, stored = counted(indptr, indices, shape, named(CANDIDATES) | users)
    pieces: dict[str, list[PieceCount] | None] = {**stored, DENSE: None}
    processor = host_target()
    expected = {}
    for words, counts in pieces.items():
        taking = predicted(problem, counts, processor)
        expected |= dict.fromkeys((ComposedPlan(words, tile) for tile in tiles(words, problem)), taking)
    source = "known" if seconds else "predicted"
    if budget and (not seconds or untried & set(pieces)):
        seconds |= _measured(given, expected, problem, dtype, budget, tokens)
        source = "measured"
        database().add(problem, fingerprint(), seconds)
    rows = []
    for plan in {**expected, **seconds}:
        counts = pieces.get(plan.formats)
        padding = sum(piece.slots for piece in counts) - count if counts else 0
        rows.append(FormatRow(plain(plan.formats), padding, expected.get(plan), seconds.get(plan), plan.tile))
    return _choice(source, rows)


def _choice(source: str, rows: list[FormatRow]) -> FormatChoice:
    rows.sort(key=lambda row: (row.measured is None, row.measured or row.predicted or 0.0))
    return FormatChoice(tuple(rows[0].formats.split(SEPARATOR)), source, tuple(rows))


def _in_table(plan: ComposedPlan) -> bool:
    """Whether the formats of a plan are there, in the definition that was measured."""
    return plan.formats == DENSE or readable(plan.formats)


def _measured(
    given: Any,
    expected: dict[ComposedPlan, float],
    problem: Problem,
    dtype: torch.dtype,
    budget: float,
    tokens: bool,
) -> dict[ComposedPlan, float]:
    order = sorted(expected, key=lambda plan: expected[plan])
    order = [plan for plan in order if expected[plan] <= PROMISING * expected[order[0]]]
    x = torch.randn(problem.cols, problem.features).to(dtype)
    x = x.t().contiguous() if tokens else x
    clock, seconds = time.perf_counter, dict[ComposedPlan, float]()
    deadline = clock() + budget
    calls: dict[ComposedPlan, Callable[[], Tensor]] = {}
    for plan in order:
        if calls and clock() >= deadline:
            break
        calls[plan] = _call(_parts(given, plan), x, problem, dtype, tokens)
        calls[plan]()  # compiles
    # in turns, so that what else the machine does meets all of them; of each the fastest
    while not seconds or clock() < deadline:
        for plan, call in calls.items():
            begin = clock()
            call()
            taken = clock() - begin
            seconds[plan] = min(seconds.get(plan, taken), taken)
    return seconds


def _parts(given: Any, plan: ComposedPlan) -> Decomposition | None:
    if plan.formats == DENSE:
        return None
    indptr, indices, _, shape = given
    specs = parse_formats(plan.formats.split(SEPARATOR))
    return with_tile(decompose_csr(indptr, indices, None, shape, specs, FILL, check=False), plan.tile)


def _call(
    parts: Decomposition | None, x: Tensor, problem: Problem, dtype: torch.dtype, tokens: bool
) -> Callable[[], Tensor]:
    if parts is None:
        weight = torch.randn(problem.rows, problem.cols).to(dtype)
        return lambda: torch.nn.functional.linear(x, weight) if tokens else weight @ x
    values = torch.randn(parts.num_slots).to(dtype) * parts.mask
    product = composed_linear if tokens else composed_spmm
    return lambda: product(parts, values, x, packed=True)
