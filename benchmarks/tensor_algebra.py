"""Sparse tensor algebra against TACO, SciPy and PyTorch: ``python -m benchmarks.tensor_algebra``.

Products of matrices and tensors, sums and products of sparse matrices, on graphs and on tensors of the sizes and skews
of FROSTT's. Every cell runs all contenders on the same operands in float32, checks their answers against float64 and
times them interleaved; what preparing them takes (compiling, TACO's choice of a schedule, making operands) is told
apart. ``GSB_TACO`` names the folder in which TACO was built; without it TACO is not measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from rich.console import Console

from benchmarks.algebra import code, contenders, inputs, studies
from benchmarks.algebra.contenders import CONTENDERS, NOTES, OURS
from benchmarks.algebra.inputs import Input
from benchmarks.algebra.problem import KINDS, OPERATIONS, Place, Problem
from benchmarks.support import cells, cli, machine, report, roofline, summary
from benchmarks.support.reasons import duration
from benchmarks.support.timing import Rules, interleaved

MOST_PRODUCTS = 200_000_000
"""Of a product of sparse matrices; more take minutes and most of the memory."""


def measure_cell(place: Place, names: Sequence[str], limits: roofline.Roofline, budget: float) -> dict:
    """A cell as plain values. preparation: seconds until a contender's call was there."""
    problem = Problem(place)
    found = cells.answers(names, lambda name: contenders.call_of(name, problem), problem.mismatch)
    timed = interleaved(found.calls, Rules(budget_s=budget, min_rounds=3))
    timings = {name: timing.to_dict() for name, timing in timed.items()}
    built = getattr(found.calls.get("taco"), "built", None)
    return {
        "graph": place.input.name,
        "op": place.op,
        "kind": KINDS[place.op],
        "features": place.width,
        "nnz": place.input.nnz,
        **cells.rate(str(place), timings, (OURS,), limits, problem.work(), wrong=found.wrong),
        "preparation": found.prepared,
        "unable": found.unable,
        "taco_schedule": None if built is None else built.schedule or "none",
    }


def places(options: argparse.Namespace, given: Sequence[Input]) -> list[Place]:
    found = []
    for each in given:
        for name in options.ops:
            operation = OPERATIONS[name]
            if each.order in operation.expressions and not (
                name == "spgemm" and _products(each) > options.most_products
            ):
                found += [Place(name, each, width, options.seed) for width in operation.widths]
    return found


def _products(each: Input) -> int:
    """Of a matrix with itself, or with its transpose."""
    lengths = each.csr.getnnz(1) if each.shape[0] == each.shape[1] else each.csr.getnnz(0)
    return int(lengths[each.csr.indices].sum())


def series(options: argparse.Namespace, given: Sequence[Input], skipped: Mapping[str, str]) -> cells.Series:
    """All that the options name; times in seconds. skipped: inputs that are not there, and why."""
    limits = roofline.measure(options.threads, largest=256 * roofline.MiB)
    wanted = places(options, given)
    share = options.budget / max(len(wanted), 1)
    head = {
        "machine": machine.describe(options.threads),
        "roofline": limits.to_dict(),
        "contenders": {name: NOTES[name] for name in options.contenders},
        "graphs": [each.describe() for each in given],
        "skipped": skipped,
    }

    def measure(place: Place) -> dict:
        return measure_cell(place, options.contenders, limits, share)

    def summarise(measured: Sequence[dict]) -> dict:
        return summary.summarise(measured, ("kind", "op", "graph"))

    panels = "kind", "op", "graph"
    return cells.Series("tensor_algebra", head, wanted, measure, summarise, line, show, panels, "input")


def line(cell: Mapping) -> str:
    """A cell in a line."""
    times = ", ".join(f"{name} {duration(timing['median'])}" for name, timing in cell["timings"].items())
    return f"{cell['where']}: {report.ratio(cell['speedup'])} ({times})"


def show(results: Mapping, console: Console) -> None:
    """Times, what contenders cannot do, what preparing took, and the summary."""
    report.print_head(results, console)
    names = list(results["contenders"])
    times = report.table("Milliseconds", ("input", "operation"), ("width", *names, "ratio", *report.ROOFLINE_HEADINGS))
    taken = report.table("Preparation, seconds", ("input", "operation"), ("width", *names))
    for cell in results["cells"]:
        where = cell["graph"], cell["op"], str(cell["features"])
        own = [report.median(cell, name) for name in names]
        times.add_row(*where, *own, report.ratio(cell["speedup"]), *report.roofline_columns(cell))
        taken.add_row(*where, *(f"{s:.2f}" if (s := cell["preparation"].get(n)) else report.MISSING for n in names))
    console.print(times)
    console.print(report.ROOFLINE_NOTE)
    console.print(taken)
    for reason in dict.fromkeys(f"{name}: {why}" for cell in results["cells"] for name, why in cell["unable"].items()):
        console.print(f"not measured: {reason}", highlight=False)
    report.print_summary(results["summary"], console)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=240.0)
    every = [*inputs.MATRICES, *inputs.TENSORS]
    parser.add_argument("--inputs", nargs="+", choices=tuple(inputs.INPUTS), default=every, metavar="INPUT")
    parser.add_argument("--ops", nargs="+", choices=tuple(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--parts", nargs="+", choices=("operations", "studies", "code"), default=["operations"])
    parser.add_argument("--scale", type=float, default=1.0, help="of the sides of the matrices of studies")
    parser.add_argument(
        "--most-products",
        type=int,
        default=MOST_PRODUCTS,
        help="of a product of sparse matrices; larger ones are left out",
    )
    cli.add_append(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.inputs, options.budget = list(inputs.SMALL), min(options.budget, 10.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``tensor_algebra.json`` and ``.png``. 1 if an answer was wrong, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    wrong = 0
    if "studies" in options.parts:
        wrong = _studies(options, console)
    if "code" in options.parts:
        rows = code.run(options.ops)
        code.show(rows, console)
        found = {"machine": machine.describe(options.threads), "kernels": rows}
        console.print(f"written: {machine.write_json(options.out / 'tensor_algebra_code.json', found)}")
    if "operations" not in options.parts:
        return wrong
    given, skipped = inputs.load_available(options.inputs, options.seed, console)
    return max(wrong, cells.reported(series(options, given, skipped), options, console))


def _studies(options: argparse.Namespace, console: Console) -> int:
    """Write ``tensor_algebra_studies.json`` and ``.png``. 1 if an answer was wrong, else 0."""
    found = {"machine": machine.describe(options.threads), **studies.run(options.scale, options.budget, options.seed)}
    console.print(studies.markdown(found), markup=False)
    path = machine.write_json(options.out / "tensor_algebra_studies.json", found)
    drawn = report.draw_ratios(
        studies.panels(found), "input", path.with_suffix(".png"), "times as long as the fastest schedule"
    )
    console.print(f"written: {path}, {drawn}")
    return int(any(cell["wrong"] for cells in found["studies"].values() for cell in cells))


if __name__ == "__main__":
    raise SystemExit(main())
