"""Pruned linear layers, and a layer of BERT with them, against PyTorch: ``python -m benchmarks.pruned``.

Weights of 3,072 x 768, 768 x 3,072 and 768 x 768 on 512 tokens, of which blocks of 32 (7 %, with empty rows) or
single weights (6 %) are kept: forward, and forward with the gradients of input, weights and bias. Then a curve over
densities, on which the format that ``auto`` takes is held against dense and the sparse formats; and a whole encoder
layer. Every cell runs all contenders on the same operands, checks their answers against float64 and times them
interleaved.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from benchmarks.pruned_layers import bert, contenders, gpu
from benchmarks.pruned_layers.contenders import CONTENDERS, NOTES, OURS, VARIANTS
from benchmarks.pruned_layers.problem import DTYPES, OPS, PATTERNS, Place, Problem
from benchmarks.support import cells, cli, machine, report, roofline, summary
from benchmarks.support.gpu.device import device_parser
from benchmarks.support.reasons import duration
from benchmarks.support.timing import Rules, interleaved

PARTS = ("layers", "curve", "bert")
SHAPES = ("3072x768", "768x3072", "768x768")
DENSITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
CURVE_SHAPES = SHAPES[:2]
RULES = {"long_rounds": 3, "hopeless": 8.0, "slow": 8.0}


def measure_cell(
    kind: str,
    place: Place,
    names: Sequence[str],
    limits: roofline.Roofline,
    budget: float,
    length: int,
    heads: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict:
    """A cell as plain values. format: what ``auto`` took. conversion: seconds that making the layer took."""
    problem = bert.BertProblem(place, heads, length) if kind == "bert" else Problem(place)
    call_of = problem.call_of if kind == "bert" else partial(contenders.call_of, problem=problem)
    found = cells.answers(tuple(bert.NOTES) if kind == "bert" else names, call_of, problem.mismatch)
    taken = getattr(found.calls.get(OURS), "format", None)
    if kind == "bert":
        taken = ", ".join(dict.fromkeys(each.format or "dense" for each in problem.report.decisions))
    timed = interleaved(found.calls, Rules(budget_s=budget, **RULES), clock=clock)
    timings = {name: timing.to_dict() for name, timing in timed.items()}
    variants = {name: timings.pop(name) for name in list(timings) if name.startswith(f"{OURS} ")}
    cell = {
        "graph": place.pattern,
        "op": place.op,
        "precision": place.precision,
        "features": place.tokens,
        "kind": kind,
        "width": place.shape,
        "part": f"{place.density:g}",
        "density": place.density,
        **cells.rate(str(place), timings, (OURS,), limits, problem.work(), wrong=found.wrong),
        "unable": found.unable,
        "variants": variants,
        "conversion": found.prepared,
        "format": taken,
        "loss": loss(taken, timings, variants) if kind == "curve" else None,
    }
    if kind == "curve":  # is held against itself, not against peers
        cell["speedup"] = None
    return cell


def loss(taken: str | None, timings: Mapping, variants: Mapping) -> float | None:
    """By what share the format that ``auto`` took is slower than the fastest of dense and the sparse ones. It is timed
    by name, and not once more as ``auto``; nor as DBSR, which is the kernel of BSR.
    """
    named = {words: variants.get(f"{OURS} {name}") for name, words in VARIANTS.items() if name != "dbsr"}
    seconds = {words: timing["median"] for words, timing in named.items() if timing is not None}
    if "dense" in timings:
        seconds["dense"] = timings["dense"]["median"]
    if OURS in timings and taken is not None:
        seconds.setdefault(taken, timings[OURS]["median"])
    return seconds[taken] / min(seconds.values()) - 1 if taken in seconds else None


@dataclass(frozen=True)
class Cell:
    """A place in one of the parts."""

    kind: str
    place: Place

    def __str__(self) -> str:
        return f"{self.kind}: {self.place}"


def series(options: argparse.Namespace) -> cells.Series:
    """All that the options name; times in seconds."""
    limits = roofline.by_type(options.threads, {name: DTYPES[name] for name in options.precisions}, gemm=256)
    wanted = places(options)
    share = options.budget / max(len(wanted), 1)

    def measure(cell: Cell) -> dict:
        kind, place = cell.kind, cell.place
        names = options.contenders if kind == "layers" else [n for n in options.contenders if "torch" not in n]
        shape = options.length, options.heads
        return measure_cell(kind, place, names, limits[place.precision], share, *shape, cli.clock(options))

    head = {
        "machine": machine.describe(options.threads),
        "roofline": limits["float32"].to_dict(),
        "contenders": {name: NOTES[name] for name in options.contenders} | bert.NOTES,
    }
    panels = "op", "graph", "width"
    return cells.Series("pruned", head, wanted, measure, summarise, line, show, panels, "layer")


def places(options: argparse.Namespace) -> list[Cell]:

    def each(kind: str, shapes: Sequence[str], ops: Sequence[str], precisions: Sequence[str], densities) -> list:
        return [
            Cell(kind, Place(name, op, precision, *map(int, shape.split("x")), density, options.tokens, options.seed))
            for shape in shapes
            for name in options.patterns
            for op in ops
            for precision in precisions
            for density in densities or (PATTERNS[name],)
        ]

    layers = each("layers", options.shapes, options.ops, options.precisions, ())
    curve = each("curve", options.curve_shapes, ("forward",), ("float32",), options.densities)
    whole = each("bert", (f"{4 * options.width}x{options.width}",), options.ops, ("float32",), (0.06,))
    found = {"layers": layers, "curve": curve, "bert": whole}
    return [entry for part in options.parts for entry in found[part]]


def summarise(measured: Sequence[dict]) -> dict:
    """``summary.summarise`` over the best peer; DBSR over BSR; the largest loss of ``auto``."""
    rated = [cell for cell in measured if cell["kind"] != "curve"]
    named = [cell | {"what": f"{cell['kind']}, {cell['graph']}, {cell['op']} in {cell['precision']}"} for cell in rated]
    both = [
        cell["variants"]["gsb bsr"]["median"] / cell["variants"]["gsb dbsr"]["median"]
        for cell in rated
        if {"gsb bsr", "gsb dbsr"} <= cell["variants"].keys()
    ]
    losses = [cell["loss"] for cell in measured if cell["loss"] is not None]
    return summary.summarise(named, ("what", "width")) | {
        "dbsr": {"mean": summary.mean_or_none(both), "least": min(both, default=None)},
        "largest_loss": max(losses, default=None),
    }


def line(cell: Mapping) -> str:
    """A cell in a line."""
    both = {**cell["timings"], **cell["variants"]}
    times = ", ".join(f"{name} {duration(timing['median'])}" for name, timing in both.items())
    what = f"loss {report.percent(cell['loss'])}" if cell["kind"] == "curve" else report.ratio(cell["speedup"])
    return f"{cell['kind']} {cell['where']}: {what}, {cell['format']} ({times})"


def show(results: Mapping, console: Console) -> None:
    """Times of layers, the curve, and the summary."""
    report.print_head(results, console)
    left, rated = (
        ("layer", "weights", "operator", "type", "auto"),
        [c for c in results["cells"] if c["kind"] != "curve"],
    )
    names = [name for name in results["contenders"] if any(name in c["timings"] | c["variants"] for c in rated)]
    times = report.table("Milliseconds", left, (*names, "ratio", *report.ROOFLINE_HEADINGS, "conversion"))
    for cell in rated:
        name = f"BERT {cell['width']}" if cell["kind"] == "bert" else cell["width"]
        all_times = cell | {"timings": {**cell["timings"], **cell["variants"]}}
        own = [report.median(all_times, each) for each in names]
        roof, made = report.roofline_columns(cell), report.milliseconds(cell["conversion"].get(OURS))
        times.add_row(
            name,
            cell["graph"],
            cell["op"],
            cell["precision"],
            cell["format"],
            *own,
            report.ratio(cell["speedup"]),
            *roof,
            made,
        )
    console.print(times)
    console.print(report.ROOFLINE_NOTE)
    curve = [cell for cell in results["cells"] if cell["kind"] == "curve"]
    if curve:
        shown = ("dense", *(f"{OURS} {name}" for name in VARIANTS))
        table = report.table("Densities, milliseconds", ("layer", "weights", "kept", "auto"), (*shown, "loss"))
        for cell in curve:
            all_times = cell | {"timings": {**cell["timings"], **cell["variants"]}}
            own = [report.median(all_times, each) for each in shown]
            share = f"{cell['density']:.0%}"
            table.add_row(cell["width"], cell["graph"], share, cell["format"], *own, report.percent(cell["loss"]))
        console.print(table)
    report.print_summary(results["summary"], console)
    found = results["summary"]
    if found["dbsr"]["mean"] is not None:
        console.print(f"BSR over DBSR: mean {found['dbsr']['mean']:.2f}, least {found['dbsr']['least']:.2f}")
    if found["largest_loss"] is not None:
        console.print(f"Largest loss of auto on the curve: {100 * found['largest_loss']:.1f} %")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=150.0, parents=[device_parser()])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--patterns", nargs="+", choices=tuple(PATTERNS), default=list(PATTERNS))
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS))
    parser.add_argument("--precisions", nargs="+", choices=tuple(DTYPES), default=list(DTYPES))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), metavar="OUTxIN")
    parser.add_argument("--curve-shapes", nargs="+", default=list(CURVE_SHAPES), metavar="OUTxIN")
    parser.add_argument("--densities", nargs="+", type=float, default=list(DENSITIES), help="of the curve")
    parser.add_argument("--tokens", type=cli.positive_int, default=512)
    parser.add_argument("--width", type=cli.positive_int, default=768, help="of the layer of BERT")
    parser.add_argument("--heads", type=cli.positive_int, default=12)
    parser.add_argument("--length", type=cli.positive_int, default=128, help="of a sequence")
    cli.add_processor_time(parser)
    cli.add_append(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.shapes, options.curve_shapes, options.densities = ["256x128"], ["256x128"], [0.05, 0.5]
        options.tokens, options.width, options.heads, options.length = 64, 128, 4, 32
        options.budget = min(options.budget, 8.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``pruned.json`` and ``.png``. 1 if an answer was wrong, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    if options.device == "cuda":
        return gpu.main(options, console)
    return cells.reported(series(options), options, console)


if __name__ == "__main__":
    raise SystemExit(main())
