"""Scorch's workloads, end to end, against the best of PyTorch and of Scorch: ``python -m benchmarks.scorch``.

A GCN, a pruned autoencoder and a Longformer, in the sizes that Scorch publishes (Yan et al., CGO 2026; ``bench/`` of
github.com/bobbyyyan/scorch), forward, on 1 and on 2 threads. Every cell runs all contenders on the same operands,
checks their answers against float64 and times them interleaved. The ratio is the fastest peer's median, whoever that
is, over ours. Scorch takes part where a checkout is given that was built in place (see ``library.py``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.paper.sheets import Sheet, write
from benchmarks.scorch import autoencoder, gcn, library, transformer
from benchmarks.scorch.autoencoder import Autoencoder
from benchmarks.scorch.gcn import GCN
from benchmarks.scorch.transformer import Transformer
from benchmarks.scorch.workload import OURS, Workload
from benchmarks.support import cells, cli, graphs, machine, report, roofline, summary
from benchmarks.support.budget import Budget
from benchmarks.support.reasons import duration
from benchmarks.support.timing import Rules, interleaved

WORKLOADS: dict[str, type[Workload]] = {"gcn": GCN, "autoencoder": Autoencoder, "transformer": Transformer}
RULES = {"long_rounds": 3, "hopeless": 4.0, "slow": 2.0}
WANTED = 1.5
"""The ratio over the best peer that is aimed at."""

ABOUT = (
    "Forward passes of the networks that Scorch (Yan et al., CGO 2026) publishes, in its sizes, on made-up weights. "
    "Contenders of a cell run interleaved, after their answers were compared; medians."
)


@dataclass(frozen=True)
class Place:
    """A cell: a workload of a size on some threads. part: what tells apart cells of one size."""

    workload: str
    size: str
    part: str
    threads: int

    def __str__(self) -> str:
        words = ", ".join(filter(None, (self.size, self.part)))
        return f"{self.workload}, {words}, {self.threads} thread{'s' * (self.threads > 1)}"

    def make(self, seed: int) -> Workload:
        """Raises graphs.Unavailable where a graph is not on this machine."""
        if self.workload == "gcn":
            return GCN(self.size, seed)
        if self.workload == "autoencoder":
            return Autoencoder(autoencoder.SIZES[self.size], float(self.part), seed)
        return Transformer(int(self.size), seed)


def measure_cell(
    place: Place, problem: Workload, limits: roofline.Roofline, budget: float, clock: Callable[[], float]
) -> dict:
    """A cell as plain values, times in seconds. format: what ``auto`` took, of the autoencoder."""
    torch.set_num_threads(place.threads)
    found = cells.answers(problem.notes, problem.call_of, problem.mismatch)
    timed = interleaved(found.calls, Rules(budget_s=0.9 * budget, **RULES), warm=False, clock=clock)
    timings = {name: timing.to_dict() for name, timing in timed.items()}
    alone = {"rest": problem.rest()}  # by itself: others would look hopeless beside it
    rest = interleaved(alone, Rules(budget_s=0.1 * budget), clock=clock)["rest"].median
    ours = [name for name in problem.notes if name.startswith(OURS)]
    rated = cells.rate(str(place), timings, ours, limits, problem.work(), wrong=found.wrong)
    return {
        "graph": place.size,
        "op": place.workload,
        "part": place.part,
        "features": place.threads,
        "threads": place.threads,
        **rated,
        "rest": rest,
        "apart": apart(rated, rest),
        "bound": bound(rated, rest),
        "unable": found.unable,
        "conversion": found.prepared,
        "format": getattr(found.calls.get(OURS), "format", None),
    }


def apart(rated: Mapping, rest: float) -> float | None:
    """The ratio of what contenders do differently; None without a peer, or where ours is as fast as the rest alone."""
    if rated["speedup"] is None:
        return None
    peer, ours = (rated["timings"][rated[name]]["median"] - rest for name in ("best_peer", "best_ours"))
    return peer / ours if ours > 0 and peer > 0 else None


def bound(rated: Mapping, rest: float) -> float | None:
    """The ratio if all that contenders do differently took us no time; None without a peer."""
    return rated["timings"][rated["best_peer"]]["median"] / rest if rated["best_peer"] and rest > 0 else None


def shortfalls(measured: Sequence[Mapping]) -> list[str]:
    """A line for each cell that misses the ratio that is aimed at: what bounds it, and how its time is shared."""
    lines = []
    for cell in measured:
        if cell["speedup"] is None or cell["speedup"] >= WANTED:
            continue
        ours, rest = cell["timings"][cell["best_ours"]]["median"], cell["rest"]
        limit = cell["bound"]
        if limit is not None and limit < WANTED:
            why = f"what all contenders do alike takes {duration(rest)}, and bounds the ratio by {limit:.2f}"
        else:
            own = duration(max(ours - rest, 0.0))
            why = f"our products take {own} of {duration(ours)}; without them the ratio would be {number(limit)}"
        lines.append(f"{cell['where']}: {cell['speedup']:.2f} over {cell['best_peer']}; {why}")
    return lines


def places(options: argparse.Namespace) -> list[Place]:
    """Those of one size follow each other, so that it is made once."""
    parts = {
        "gcn": [(name, "") for name in options.graphs],
        "autoencoder": [(name, f"{sparsity:g}") for name in options.models for sparsity in options.sparsities],
        "transformer": [(str(tokens), "") for tokens in options.tokens],
    }
    return [
        Place(workload, *each, threads)
        for workload in options.workloads
        for each in parts[workload]
        for threads in options.each_threads
    ]


def series(options: argparse.Namespace) -> cells.Series:
    """All that the options name."""
    wanted, skipped = places(options), {}
    limits = {threads: roofline.measure(threads) for threads in options.each_threads}
    shares = Budget(options.budget, dict.fromkeys(wanted, 1.0))
    made: dict[tuple, Workload] = {}

    def measure(place: Place) -> dict | None:
        share = shares.take(place, least=0.3)
        key = place.workload, place.size, place.part
        if key not in made:
            made.clear()
            try:
                made[key] = place.make(options.seed)
            except graphs.Unavailable as missing:
                skipped[place.size] = str(missing)
                return None
        return measure_cell(place, made[key], limits[place.threads], share, cli.clock(options))

    head = {
        "machine": machine.describe(options.threads),
        "roofline": limits[max(limits)].to_dict(),
        "contenders": {name: dict(WORKLOADS[name].notes) for name in options.workloads},
        "scorch": options.scorch_missing,
        "skipped": skipped,
    }
    return cells.Series("scorch", head, wanted, measure, summarise, line, show)


def summarise(measured: Sequence[dict]) -> dict:
    """``summary.summarise``, and how many cells reach the ratio that is aimed at."""
    reached = [cell["speedup"] is not None and cell["speedup"] >= WANTED for cell in measured]
    named = [cell | {"what": f"{cell['op']}, {cell['threads']} threads"} for cell in measured]
    return summary.summarise(named, ("op", "what")) | {
        "reached": sum(reached),
        "over": {
            name: summary.mean_or_none(_over(cell, name) for cell in measured)
            for name in dict.fromkeys(name for cell in measured for name in cell["timings"])
            if not name.startswith(OURS)
        },
    }


def _over(cell: Mapping, name: str) -> float | None:
    """A peer's time over ours."""
    timings = cell["timings"]
    if name not in timings or cell["best_ours"] is None:
        return None
    return timings[name]["median"] / timings[cell["best_ours"]]["median"]


def line(cell: Mapping) -> str:
    """A cell in a line."""
    times = ", ".join(f"{name} {duration(timing['median'])}" for name, timing in cell["timings"].items())
    return f"{cell['where']}: {report.ratio(cell['speedup'])} ({times})"


def sheets(results: Mapping) -> list[Sheet]:
    """A table for each workload, and the means."""
    found = []
    for workload, notes in results["contenders"].items():
        mine = [cell for cell in results["cells"] if cell["op"] == workload]
        rows = []
        for cell in mine:
            where = f"{cell['graph']} {cell['part']}".strip(), str(cell["threads"])
            times = [report.median(cell, name) for name in notes]
            rated = (
                cell["best_peer"] or report.MISSING,
                number(cell["speedup"]),
                number(cell["bound"]),
                number(cell["apart"]),
            )
            rows.append([*where, *times, *rated, report.percent(cell["roofline_compulsory"])])
        headings = ["", "threads", *notes, "best peer", "ratio", "at most", "of what differs", "roofline"]
        said = ["; ".join(f"{name}: {note}" for name, note in notes.items()) + "."]
        unable = {f"{name}: {why}" for cell in mine for name, why in cell["unable"].items()}
        said += [f"{report.MISSING} {why}" for why in sorted(unable)]
        formats = {f"{cell['graph']} {cell['part']}": cell["format"] for cell in mine if cell["format"]}
        said += ["Formats that auto takes: " + "; ".join(f"{at}: {words}" for at, words in formats.items())] * bool(
            formats
        )
        said += [f"Below {WANTED:g}: {each}." for each in shortfalls(mine)]
        found.append(Sheet(f"{workload.capitalize()}, milliseconds", headings, rows, notes=said))
    summary_of = results["summary"]
    by = {"all": summary_of["geometric_mean"], **summary_of["by_op"], **summary_of["by_what"]}
    rows = [[name, number(value)] for name, value in by.items()]
    rows += [[f"over {name} alone", number(value)] for name, value in summary_of["over"].items()]
    note = (
        f"{summary_of['reached']} of {summary_of['cells']} cells reach {WANTED:g}. Ratio: the best peer over our best. "
        "Of what differs: of both times, what all contenders do alike is left out: dense layers, softmax, activations. "
        "At most: the ratio if all but these took us no time."
    )
    found.append(Sheet("Geometric means of the ratio", ["cells", "ratio"], rows, notes=[note]))
    return found


def number(value: float | None) -> str:
    return report.MISSING if value is None else f"{value:.2f}"


def show(results: Mapping, console: Console) -> None:
    """The tables, and the worst cells."""
    report.print_head(results, console)
    for sheet in sheets(results):
        sheet.show(console)
    report.print_summary(results["summary"], console)
    for name, why in results["skipped"].items():
        console.print(f"[yellow]{name} skipped:[/] {why}")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=240.0)
    parser.add_argument("--scorch", type=Path, metavar="CHECKOUT", help="of Scorch, built in place")
    parser.add_argument("--workloads", nargs="+", choices=tuple(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument(
        "--graphs", nargs="+", choices=tuple(gcn.SIZES), default=[n for n in gcn.SIZES if n != "reddit"]
    )
    parser.add_argument("--models", nargs="+", choices=tuple(autoencoder.SIZES), default=list(autoencoder.SIZES))
    parser.add_argument("--sparsities", nargs="+", type=float, default=list(autoencoder.SPARSITIES))
    parser.add_argument("--tokens", nargs="+", type=cli.positive_int, default=list(transformer.TOKENS))
    parser.add_argument(
        "--each-threads", nargs="+", type=cli.positive_int, metavar="N", help="by default 1 and --threads"
    )
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="for a page of the tables; by default none")
    cli.add_processor_time(parser)
    cli.add_append(parser)
    cli.add_reuse_memory(parser)
    options = parser.parse_args(argv)
    if any(not 0 <= sparsity < 1 for sparsity in options.sparsities):
        parser.error(f"--sparsities are shares of zeros below 1, got {options.sparsities}")
    if options.quick:
        options.graphs, options.models, options.sparsities = ["pubmed"], ["small"], [0.9, 0.99]
        options.tokens, options.budget = [512], min(options.budget, 10.0)
    options.each_threads = options.each_threads or sorted({1, options.threads})
    options.threads = max(options.each_threads)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``scorch.json``. 1 if an answer was wrong, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    options.scorch_missing = library.use(options.scorch)
    if options.scorch_missing:
        console.print(f"[yellow]Scorch takes no part:[/] {options.scorch_missing}")
    before = torch.get_num_threads()
    try:
        with torch.no_grad():
            failed = cells.reported(series(options), options, console)
    finally:
        torch.set_num_threads(before)
    if options.pages is not None:
        results = json.loads((options.out / "scorch.json").read_text())
        given = "Beside Scorch", "python -m benchmarks.scorch --scorch CHECKOUT", ABOUT, results["machine"]
        console.print(f"written: {write(options.pages / 'scorch.md', *given, sheets(results), None)}")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
