"""How good the choice of formats is, against the best of all that there are: ``python -m benchmarks.formats``.

Matrices to which no constant was fitted, times a dense one of several widths. In every cell the time of the formats
that are taken without measuring (the rule: the cost model), of those that ``gsb.tune_format`` takes within a budget,
and of the fastest of all candidates, each of which is made, checked against float64 and timed interleaved with the
others. Regret is chosen over fastest, minus one. Candidates are those of ``gsb.tune_format``, and others that it does
not try; a mark says of how many columns the kernel accumulates together, where that is not what the rule takes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import scipy.sparse
import torch
from rich.console import Console
from torch import Tensor

from benchmarks.planner.matrices import SETS
from benchmarks.planner.regret import summarise
from benchmarks.planner.report import show_regret
from benchmarks.pruned_layers.problem import DTYPES, TOLERANCE
from benchmarks.support import cells, cli, graphs, machine, report
from benchmarks.support.budget import Budget
from benchmarks.support.cells import Unable, relative_error
from benchmarks.support.timing import Rules, interleaved
from gnn_sparse_backend import Graph, composed_linear, composed_spmm, formats, tune_format
from gnn_sparse_backend.compiler.codegen import host_target
from gnn_sparse_backend.formats.composed.spec import SEPARATOR
from gnn_sparse_backend.ops.composed.candidates import CANDIDATES
from gnn_sparse_backend.ops.composed.executables import WHOLE_ROWS, with_tile
from gnn_sparse_backend.planner.composed import DENSE, PieceCount, predicted, problem_of
from gnn_sparse_backend.planner.database import PlanDatabase, database

OPS = {"spmm": composed_spmm, "linear": composed_linear}
WIDTHS = (64, 128, 512)
OTHERS = ("dia + csr", "sr_bcrs(8, 4) + csr", "bsr(32) + bsr(8) + csr", "hyb(1, 4)")
"""Formats that ``gsb.tune_format`` does not try."""
TILE = ", tile of "
TILES = (4,)
"""Vectors of columns that a kernel may accumulate together, beside those of the rule."""
MOST = 16
"""Stored values for each non-zero beyond which a candidate cannot be the fastest, and is not made."""
HOPELESS = 8.0
"""Times as long as CSR dense is predicted to take, from which on it is not made."""
RULES = {"hopeless": 3.0, "slow": 1.3}


class Product:
    """A matrix with values times a dense one, in any formats, and the right answer."""

    def __init__(self, graph: Graph, op: str, precision: str, features: int, seed: int) -> None:
        self.graph, self.op, self.dtype = graph, op, DTYPES[precision]
        self.problem = problem_of(graph.shape, graph.num_edges, features, precision, torch.get_num_threads())
        generator = torch.Generator().manual_seed(seed)
        self.values = torch.randn(graph.num_edges, generator=generator).to(self.dtype)
        x = torch.randn(graph.shape[1], features, generator=generator).to(self.dtype)
        self.x = x.t().contiguous() if op == "linear" else x
        self.made: dict[tuple, str] = {}

    @cached_property
    def expected(self) -> Tensor:
        """In float64, by SciPy."""
        arrays = self.values.double().numpy(), self.graph.indices.numpy(), self.graph.indptr.numpy()
        matrix, x = scipy.sparse.csr_matrix(arrays, self.graph.shape), self.x.double().numpy()
        return torch.from_numpy(matrix @ x if self.op == "spmm" else (matrix @ x.T).T)

    def mismatch(self, answer: Tensor) -> str | None:
        """What is wrong with an answer; None if it is right."""
        error = relative_error(answer, self.expected)
        return None if error < TOLERANCE[self.dtype] else f"off by {error:.2g}"

    def call_of(self, name: str) -> Callable[[], Tensor]:
        """A candidate: formats as words, with the vectors of a tile behind them where these are not the rule's; or
        dense. Raises `Unable` for what is another one by another name, and for what is out of the question.
        """
        words, _, tile = name.partition(TILE)
        if words == DENSE:
            return self._dense()
        try:
            parts = formats.decompose(self.graph, words.split(SEPARATOR))
        except ValueError as error:  # the last format does not take all non-zeros
            raise Unable(str(error)) from None
        stored = parts.num_slots / max(parts.nnz, 1)
        if stored > MOST:
            raise Unable(f"stores {stored:.0f} values for each non-zero")
        alone = [piece.spec.kind for piece in parts.pieces] == ["csr"]
        if tile and alone and self.problem.features <= WHOLE_ROWS:
            raise Unable("goes through whole rows, without tiles")
        same = self.made.setdefault((tile, *((str(p.spec), p.nnz, p.num_slots) for p in parts.pieces)), name)
        if same != name:
            raise Unable(f"is the same as {same}")
        with_tile(parts, int(tile or 0))
        packed, product = parts.pack(self.values), OPS[self.op]
        return lambda: product(parts, packed, self.x, packed=True)

    def _dense(self) -> Callable[[], Tensor]:
        """PyTorch's product, zeros and all."""
        processor = host_target()
        single = predicted(self.problem, [PieceCount(1, self.graph.num_edges)], processor)
        ratio = predicted(self.problem, None, processor) / single
        if ratio > HOPELESS:
            raise Unable(f"is predicted to take {ratio:.0f} times as long as CSR")
        weight = formats.decompose(self.graph, "csr").to_dense(self.values)
        return lambda: torch.nn.functional.linear(self.x, weight) if self.op == "linear" else weight @ self.x


def candidates(tiles: Sequence[int]) -> list[str]:
    """All that are measured, by name."""
    return [DENSE, *CANDIDATES, *OTHERS, *(f"{words}{TILE}{tile}" for words in CANDIDATES for tile in tiles)]


def measure_cell(
    name: str, graph: Graph, place: tuple[str, str, int], options: argparse.Namespace, budget: float, pause
) -> dict:
    """A cell as plain values, times in seconds. place: operator, type and width. pause: is told what preparing took."""
    begin = time.perf_counter()
    op, precision, features = place
    product = Product(graph, op, precision, features, options.seed)
    names = candidates(options.tiles if op == "spmm" else ())
    found = cells.answers(names, product.call_of, product.mismatch)
    pause(time.perf_counter() - begin)
    timed = interleaved(found.calls, Rules(budget_s=budget, **RULES), warm=False, clock=cli.clock(options))
    begin = time.perf_counter()
    asked = {"features": features, "dtype": DTYPES[precision], "tokens": op == "linear"}
    rule, tuned = (tune_format(graph, budget=share, **asked) for share in (0, options.tuning))
    pause(time.perf_counter() - begin)
    seconds = {each: timing.median for each, timing in timed.items()}
    best = min(seconds, key=seconds.__getitem__)
    by_rule, planned = (choice.rows[0].name for choice in (rule, tuned))
    return {
        "graph": name,
        "kind": SETS[options.set][name].kind,
        "op": op,
        "precision": precision,
        "features": features,
        "width": f"{features} in {precision}",
        "where": f"{name}, {op}, {features}, {precision}",
        "shape": list(graph.shape),
        "nnz": graph.num_edges,
        "wrong": found.wrong,
        "unable": found.unable,
        "complete": not found.wrong and {by_rule, planned} <= seconds.keys(),
        "planned": planned,
        "rule": by_rule,
        "best": best,
        "planned_seconds": seconds.get(planned),
        "rules_seconds": seconds.get(by_rule),
        "best_seconds": seconds[best],
        "regret": seconds[planned] / seconds[best] - 1 if planned in seconds else None,
        "regret_of_rule": seconds[by_rule] / seconds[best] - 1 if by_rule in seconds else None,
        "single_seconds": {words: seconds[words] for words in (*CANDIDATES, DENSE) if words in seconds},
        "seconds": seconds,
        "predicted": {row.formats: row.predicted for row in rule.rows},
        "uncertainty": {each: timing.uncertainty for each, timing in timed.items()},
    }


@dataclass(frozen=True)
class Cell:
    """A matrix, and what is done with it."""

    matrix: str
    op: str
    precision: str
    features: int

    def __str__(self) -> str:
        return f"{self.matrix}: {self.op}, {self.precision}, {self.features}"


def places(options: argparse.Namespace) -> list[Cell]:
    """Of every cell: linear layers have the weights alone."""
    recipes = SETS[options.set]
    return [
        Cell(name, op, precision, width)
        for name in options.matrices
        for op in options.ops
        if op == "spmm" or recipes[name].weight
        for precision in options.precisions
        for width in options.widths
    ]


def series(options: argparse.Namespace) -> cells.Series:
    """All that the options name; times in seconds."""
    wanted = places(options)
    skipped: dict[str, str] = {}
    budget = Budget(options.budget, dict.fromkeys(wanted, 1.0))
    loaded: dict[str, Graph] = {}

    def measure(cell: Cell) -> dict | None:
        share = budget.take(cell)
        if cell.matrix in skipped:
            return None
        if cell.matrix not in loaded:
            start = time.perf_counter()
            loaded.clear()  # one at a time
            try:
                loaded[cell.matrix] = Graph.from_scipy(SETS[options.set][cell.matrix].make(options.seed))
            except graphs.Unavailable as missing:
                skipped[cell.matrix] = str(missing)
                return None
            budget.pause(time.perf_counter() - start)
        place = cell.op, cell.precision, cell.features
        return measure_cell(cell.matrix, loaded[cell.matrix], place, options, share, budget.pause)

    head = {"machine": machine.describe(options.threads), "tuning": options.tuning, "skipped": skipped}
    return cells.Series("formats", head, wanted, measure, summarise_all, line, show)


def summarise_all(measured: Sequence[dict]) -> dict:
    """``regret.summarise`` of all, and means of both by kind of matrix, operator and type."""

    def means(key: str) -> dict:
        groups = dict.fromkeys(cell[key] for cell in measured)
        found = {each: summarise([cell for cell in measured if cell[key] == each]) for each in groups}
        names = "cells", "mean_regret_of_rules", "worst_regret_of_rules", "mean_regret", "worst_regret"
        return {each: {name: summary[name] for name in names} for each, summary in found.items()}

    wrong = [{"where": cell["where"], "reason": cell["wrong"]} for cell in measured if cell["wrong"]]
    keys = ("kind", "op", "precision", "features")
    return summarise(measured) | {"wrong": wrong} | {f"by_{key}": means(key) for key in keys}


def line(cell: Mapping) -> str:
    """A cell in a line."""
    best = f"best {cell['best']} {report.milliseconds(cell['best_seconds'])} ms"
    rule = f"rule {cell['rule']} {report.percent(cell['regret_of_rule'])}"
    return f"{cell['where']}: {best}; {rule}; tuned {cell['planned']} {report.percent(cell['regret'])}"


def show(results: Mapping, console: Console) -> None:
    """Every cell, then the regrets."""
    console.print(machine.one_line(results["machine"]))
    if (warning := machine.busy(results["machine"])) is not None:
        console.print(f"[yellow]{warning}[/]")
    left = ("matrix", "operator", "type", "best", "rule", "tuned")
    table = report.table("Milliseconds and regrets", left, ("width", "best", "rule", "tuned", "of rule", "of tuned"))
    for cell in results["cells"]:
        words = [cell["best"], *("same" if cell[key] == cell["best"] else cell[key] for key in ("rule", "planned"))]
        times = [report.milliseconds(cell[f"{key}_seconds"]) for key in ("best", "rules", "planned")]
        regrets = [report.percent(cell[key]) for key in ("regret_of_rule", "regret")]
        names = cell["graph"], cell["op"], cell["precision"]
        table.add_row(*names, *words, str(cell["features"]), *times, *regrets)
    console.print(table)
    summary = results["summary"]
    for key in (key for key in summary if key.startswith("by_")):
        for each, found in summary[key].items():
            shown = [report.percent(found[name]) for name in found if name != "cells"]
            rule, tuned = " and ".join(shown[:2]), " and ".join(shown[2:])
            console.print(f"{each} ({found['cells']} cells): rule mean and worst {rule}, tuned {tuned}")
    show_regret(summary, "candidate", console)
    for cell in summary["wrong"]:
        for name, reason in cell["reason"].items():
            console.print(f"[red]WRONG: {cell['where']}: {name}: {reason}[/]")
    for name, reason in results["skipped"].items():
        console.print(f"[yellow]{name} skipped:[/] {reason}")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=150.0)
    parser.add_argument("--set", choices=tuple(SETS), default="held-out", help="of matrices")
    parser.add_argument("--matrices", nargs="+", metavar="NAME", help="of the set; by default all")
    parser.add_argument("--ops", nargs="+", choices=tuple(OPS), default=list(OPS))
    parser.add_argument("--precisions", nargs="+", choices=tuple(DTYPES), default=list(DTYPES))
    parser.add_argument("--widths", nargs="+", type=cli.positive_int, default=list(WIDTHS))
    parser.add_argument("--tiles", nargs="*", type=cli.positive_int, default=list(TILES), help="vectors of columns")
    parser.add_argument("--tuning", type=float, default=0.3, metavar="SECONDS", help="budget of gsb.tune_format")
    cli.add_processor_time(parser)
    cli.add_append(parser)
    options = parser.parse_args(argv)
    options.matrices = options.matrices or list(SETS[options.set])
    if options.quick:
        options.matrices, options.widths, options.ops = options.matrices[:2], [64], ["spmm"]
        options.budget = min(options.budget, 8.0)
    if unknown := [name for name in options.matrices if name not in SETS[options.set]]:
        parser.error(f"no matrix {unknown[0]!r} is {options.set}; there are {', '.join(SETS[options.set])}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``formats.json``. 1 if an answer was wrong, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    # knowing nothing that was measured before
    with tempfile.TemporaryDirectory() as scratch, database.using(PlanDatabase(Path(scratch) / "plans.json")):
        return cells.reported(series(options), options, console)


if __name__ == "__main__":
    raise SystemExit(main())
