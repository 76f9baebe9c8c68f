"""``gsb.explain``: which plan an operator runs by on a graph, what else there was, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..compiler.language.reduction import REDUCTIONS
from ..compiler.own_schedules import OwnSchedule, in_force, in_words
from ..frozen import dataclass
from ..ops.core.plans import database_of, structure_fingerprint
from ..ops.core.plans_cuda import gpu_of
from ..ops.core.prepared import KINDS, PREPARED, Prepared, Width
from ..planner import cost
from ..planner.choose import Choice, choose
from ..planner.cost import compulsory_bytes, provenance
from ..planner.cpu.listed import told
from ..planner.cuda import cost as cuda_cost
from ..planner.database import database
from ..planner.plan import Plan
from ..planner.problem import CudaProblem, Problem
from ..planner.records import Record
from ..planner.words import size
from ..runtime import devices
from ..runtime.text import render
from ..runtime.type_names import check_dtype, type_name
from ..structures.graph import Graph
from ..structures.statistics import GraphStatistics
from ..system import architecture
from .precompile_operators import operators_named
from .tune import problem_of_task
from .tuning_tasks import check_features, tasks_of

LISTED = 8
"""Measured plans of a kernel in a table, the fastest first."""
# Kinds of problems that explanations of messages are of.
_OF_MESSAGES = tuple(f"{name}:" for name in ("map", *REDUCTIONS))
# What follows a source that is none of measurements.
_HOW_TO_MEASURE = " (nothing was measured on this structure: gsb.precompile or `gsb tune` would do that)"


@dataclass(frozen=True)
class Explanation:
    """A plan and its reasons; ``str()`` is the text for people.

    op: the operator's name. problem: what the planner is told. statistics: of the rows. choice: the plan, its reasons,
    and the other candidates with their predicted and measured seconds. bound: seconds that the bytes which any plan
    moves take at least, at the machine's rate of ordered reads and writes. machine: what all that is of, in words.
    degrees: (rows,) non-zeros of each row. variants: the ways that the plan can run, between which a call decides, each
    with the words for when it is taken; empty where there is one way. schedules: of users, which are in force.
    """

    op: str
    dtype: str
    problem: Problem
    statistics: GraphStatistics
    choice: Choice
    bound: float
    machine: str
    degrees: np.ndarray = field(repr=False, compare=False)
    variants: Mapping[str, str] = field(default_factory=dict)
    schedules: tuple[OwnSchedule, ...] = ()

    @property
    def plan(self) -> Plan:
        return self.choice.plan

    @property
    def threads(self) -> str:
        """What runs the kernels, in words."""
        p = self.problem
        return f"a GPU of {p.arch}" if type(p) is CudaProblem else f"{p.threads} threads"

    def candidates(self) -> list[tuple[Plan, float | None, float | None]]:
        """(plan, predicted seconds, measured seconds) of every plan that was predicted or measured, best known
        first.
        """
        predicted = {plan: cost.seconds for plan, cost in self.choice.predicted}
        measured = dict(self.choice.measured)
        rows = [(plan, predicted.get(plan), measured.get(plan)) for plan in {**measured, **predicted}]
        return sorted(rows, key=lambda row: (row[2] is None, row[2] or 0.0, row[1] or 0.0))

    def plot(self, path: str | Path) -> Path:
        """Draw the degrees in their buckets, and the candidates against the roofline, as a PNG. Returns the path."""
        from ..planner.plot import draw

        title = f"{self.op}, {self.problem.features} features, {self.dtype}, {self.threads}"
        return draw(Path(path), title, self.degrees, self.candidates(), self.plan, self.bound)

    def __str__(self) -> str:
        why = (Padding(Text(reason), (0, 0, 0, 2)) for reason in self.choice.reasons)
        variants = (f"variant: {name}: {when}" for name, when in self.variants.items())
        own = in_words(self.schedules)
        return render(
            self._plan_in_words(), *why, *variants, *own, "", self._facts(), "", self._table(), self._legend()
        )

    def _plan_in_words(self) -> str:
        p, how = self.problem, "" if self.choice.source == "measured" else _HOW_TO_MEASURE
        return (
            f"{self.op} of {p.features} features ({self.dtype}) on {p.rows:,} x {p.cols:,} with {p.nnz:,} edges, "
            f"{self.threads}\n"
            f"plan: {self.plan}\n"
            f"source: {self.choice.source}{how}"
        )

    def _facts(self) -> str:
        s, p = self.statistics, self.problem
        quantiles = ", ".join(
            f"{share} at most {degree}"
            for share, degree in zip(("half of the rows have", "90%", "99%"), s.degree_quantiles)
        )
        reach = f"; neighbouring edges reach over about {p.reach:,} of {p.cols:,} columns" if p.reach else ""
        new = "" if type(p) is CudaProblem else f"{told(p.rows, p.nnz, p.features, p.threads)}\n"
        return (
            f"structure: degrees {s.min_degree} to {s.max_degree}, mean {s.mean_degree:.2f} (standard deviation "
            f"{s.std_degree:.2f}); {quantiles}; Gini {s.gini:.2f}; {s.empty_rows:,} rows without edges\n"
            f"gathered rows: {size(p.row_bytes)} each, {size(p.table_bytes)} in all{reach}\n"
            f"{new}lower bound: {_micro(self.bound)} µs, to move {size(compulsory_bytes(p))} once and in order\n"
            f"machine: {self.machine}"
        )

    def _table(self) -> Table:
        rows, costs = self.candidates(), dict(self.choice.predicted)
        table = Table(title="candidates (* is the plan)", title_justify="left")
        some_measured = any(measured is not None for _, _, measured in rows)
        for heading in ("plan", "predicted, µs", *["measured, µs"] * some_measured, "largest predicted terms, µs"):
            table.add_column(heading, justify="right" if heading.endswith("d, µs") else "left")
        for plan, predicted, measured in rows:
            terms = costs[plan].largest() if plan in costs else ()
            times = [_micro(predicted), *[_micro(measured)] * some_measured]
            table.add_row(
                f"{'*' if plan == self.plan else ' '} {plan}",
                *times,
                ", ".join(f"{name} {_micro(seconds)}" for name, seconds in terms),
            )
        return table

    def _legend(self) -> str:
        """What the words and the terms in the table stand for."""
        terms = cuda_cost.MEANINGS if type(self.problem) is CudaProblem else cost.MEANINGS
        words = {word: meaning for plan, _, _ in self.candidates() for word, meaning in plan.legend().items()}
        plans = " ".join(str(plan) for plan, _, _ in self.candidates())
        met = {name for _, predicted in self.choice.predicted for name, _ in predicted.largest()}
        lines = {
            "what plans say": {word: meaning for word, meaning in words.items() if word in plans},
            "what the terms count": {name: meaning for name, meaning in terms.items() if name in met},
        }
        return "\n".join(
            f"{heading}: " + "; ".join(f"{name}: {meaning}" for name, meaning in said.items())
            for heading, said in lines.items()
            if said
        )


@dataclass(frozen=True)
class OnePlan:
    """Explanation of an operator that has one plan, by rules; prints as text. on: the structure, in words. schedules:
    of users, which are in force.
    """

    op: str
    features: Width
    dtype: str
    backward: bool
    on: str
    schedules: tuple[OwnSchedule, ...] = ()

    def __str__(self) -> str:
        return render(
            f"{self.op}{' and backward' * self.backward} of {self.features} features ({self.dtype}) on {self.on}\n"
            "plan: by rules, unless gsb.precompile(..., search=True) has measured a faster one",
            *in_words(self.schedules),
            "after a call gsb.last_run() says what it ran, and shows the kernels",
        )


@dataclass(frozen=True)
class WithMeasurements:
    """An explanation of what rules say, and below what a search has measured on the structure, by which it runs.

    Attributes are those of ``explanation``. records: of all kernels of the structure, whatever their widths.
    """

    explanation: Any
    records: tuple[Record, ...]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # which copies ask for before there is an explanation
            raise AttributeError(name)
        return getattr(self.explanation, name)

    def __str__(self) -> str:
        table = Table(title="measured on this structure; the fastest plan of a kernel is taken", title_justify="left")
        for heading in ("kernel", "features", "type", "threads", "plan", "measured, µs"):
            table.add_column(heading, justify="left" if heading in ("kernel", "type", "plan") else "right")
        for record in sorted(self.records, key=lambda record: (record.problem.kind, record.problem.features)):
            p = record.problem
            above = p.kind, str(p.features), p.dtype, str(p.threads)
            for number, (plan, seconds) in enumerate(record.seconds[:LISTED]):
                table.add_row(*(above if number == 0 else ("",) * 4), str(plan), _micro(seconds))
            if len(record.seconds) > LISTED:
                table.add_row("", "", "", "", f"{len(record.seconds) - LISTED} more", "")
        return str(self.explanation) + render("", table)


def explain_structure(
    structure: Any, op: str | None = None, features: Any = 64, *, dtype: Any = "float32", backward: bool = False
) -> Any:
    """``gsb.explain`` on a structure of this package, of the operator ``op`` or the kind's own (`Kind.default`)."""
    kind = KINDS[type(structure)]
    operator = named(kind.default if op is None else op)
    if operator.on is not kind.on:
        raise ValueError(
            f"{operator.name} runs on {KINDS[operator.on].words}, got {kind.words}: choose from "
            + ", ".join(call.name for call in PREPARED.values() if call.on is kind.on)
        )
    own = in_force.of(*operator.scheduled)
    if operator.form is not None and operator.explain is None:
        found = explain_graph(structure, operator.name, features, dtype=dtype, backward=backward)
        return replace(found, schedules=own)
    if operator.explain is not None:
        explanation = replace(operator.explain(structure, features, dtype=dtype, backward=backward), schedules=own)
    else:
        widths = operator.widths(features)
        if len(widths) > 1:
            raise ValueError(f"explain takes one width, got {features!r}")
        name = kind.name(structure)
        explanation = OnePlan(operator.name, widths[0], type_name(check_dtype(dtype)), backward, name, own)
    if devices.arch_of(structure.device):
        return explanation
    records = database().records_of(kind.fingerprints(structure))
    records = [record for record in records if not record.problem.kind.startswith(_OF_MESSAGES)]
    return WithMeasurements(explanation, tuple(records)) if records else explanation


def named(op: str) -> Prepared:
    """The operator of this name; ValueError that lists those there are."""
    return operators_named(op)[0]


def explain_graph(
    graph: Graph, op: str = "sum", features: int = 64, *, dtype="float32", backward: bool = False
) -> Explanation:
    """``gsb.explain`` on a ``Graph``. On a GPU it waits for the sizes that rules look at, and makes blocks where they
    may pay.
    """
    if not isinstance(features, int):
        raise ValueError(f"features must be one positive whole number, got {features!r}")
    task = tasks_of(graph, (op,), check_features(features), check_dtype(dtype), backward)[-1]
    problem = problem_of_task(task)
    known, gpu = database_of(graph.device), gpu_of(graph.device)
    choice = choose(problem, lambda: structure_fingerprint(task.graph), known)
    bound = compulsory_bytes(problem) * known.units["stream"] / problem.threads
    machine = known.machine
    if gpu is None and not known.calibrated:
        machine += f"; its constants are {provenance(architecture())}"
    if gpu is not None:
        source = "measured" if known.calibrated else gpu.source
        machine += f"; memory moves {1e-9 / known.units['stream']:,.0f} GB a second ({source})"
    return Explanation(
        task.name,
        type_name(task.dtype),
        problem,
        task.graph.statistics,
        choice,
        bound,
        machine,
        task.graph.in_degrees.cpu().numpy(),
        task.variants(choice.plan),
    )


def _micro(seconds: float | None) -> str:
    """Microseconds, to two digits at least."""
    if seconds is None:
        return ""
    return f"{seconds * 1e6:,.1f}" if seconds >= 1e-6 else f"{seconds * 1e6:.2g}"
