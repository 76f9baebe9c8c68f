"""Training steps of graph attention layers: ``python -m benchmarks.attention_layers``.

GAT, GATv2 and a dot-product transformer layer: DGL's own layers and PyG's own, each as it is and with the backend. A
step is forward, and backward from a random cotangent to input and parameters; no optimiser. Answers are compared
before anything is timed; the four take turns in one process. Peak memory is measured in a fresh process for each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.layers import attention_gpu, attention_report, contenders, gpu_steps
from benchmarks.layers.layer_work import attention_work, shape_of_work
from benchmarks.layers.layers import LayerStep, disagreement
from benchmarks.support import cells, cli, graphs, machine, memory, reasons, report, roofline, summary
from benchmarks.support.budget import Budget, weight
from benchmarks.support.gpu import device as gpu
from benchmarks.support.graphs import ONE_EDGE, BenchmarkGraph
from benchmarks.support.reasons import Evidence
from benchmarks.support.turns import in_turns

LAYERS = ("gat", "gatv2", "transformer")
GRAPHS = ("wordnet", "debian", "power-law")
HEADS = (1, 4, 8)
# of a cell's time, for the same step on one edge and without edges
REST_SHARE = 0.15
# from a step of so many seconds on, a turn has one timed call
SLOW_S = 1.0


def make_steps(
    frameworks: Sequence[str], kind: str, graph: BenchmarkGraph, shape: Mapping[str, int], *, peers: bool
) -> dict[str, LayerStep]:
    """``{contender: step}``: with ``peers`` those without the backend too; each has a graph object of its own."""
    names = contenders.names(frameworks) if peers else contenders.ours(frameworks)
    return {name: LayerStep(contenders.framework_of(name), kind, graph, **shape) for name in names}


def first_calls(steps: Mapping[str, LayerStep]) -> tuple[dict[str, float], dict[str, str], dict[str, Evidence]]:
    """Seconds of each contender's first step, what is wrong with its answer, and which operators it ran where.

    With the backend it must agree with the same layer without, and PyG's output and input gradient with DGL's.
    """
    seconds, wrong, evidence, answers = {}, {}, {}, {}
    calls = contenders.switched({name: step.step for name, step in steps.items()})
    # the frameworks alone come first: the others are compared with them
    for name in sorted(calls, key=lambda name: name != contenders.framework_of(name)):
        framework = contenders.framework_of(name)
        with calls[name].context():
            begin = time.perf_counter()
            try:
                answer, ours, fallbacks = reasons.count_calls(framework, calls[name].call)
            except Exception as error:  # one contender's failure is a result, and must not cost the others theirs
                wrong[name] = f"{type(error).__name__}: {error}"
                continue
            seconds[name] = time.perf_counter() - begin
        evidence[name] = Evidence(ours=ours, fallbacks=fallbacks)
        if name == framework:
            answers[name] = answer
        if (mismatch := _mismatch(name, steps[name].results, answer, answers)) is not None:
            wrong[name] = mismatch
    return seconds, wrong, evidence


def _mismatch(name: str, results: tuple[str, ...], answer: tuple, answers: Mapping[str, tuple]) -> str | None:
    """How an answer differs from those of the frameworks alone; None if it agrees."""
    if not answers:
        return "no framework alone has an answer to compare with"
    other = contenders.framework_of(name)
    if name == other or other not in answers:
        # parameters differ between frameworks
        other, results = next(iter(answers)), results[:2]
    mismatch = disagreement(results, answer, answers[other])
    return f"unlike {other}: {mismatch}" if mismatch else None


def medians_of(steps: Mapping[str, LayerStep], budget: float) -> dict[str, float]:
    """Median seconds of a warm step of each."""
    calls = contenders.switched({name: step.step for name, step in steps.items()})
    timed = in_turns(calls, budget_s=budget, turn_s=0.01)
    return {name: turns.timing.median for name, turns in timed.items()}


def step_memory(
    contender: str, kind: str, graph: BenchmarkGraph, shapes: Sequence[Mapping[str, int]], threads: int
) -> list[dict[str, int]]:
    """``memory.of_call`` of a contender's step in each shape; for a process of its own."""
    cli.set_threads(threads)
    cli.quiet_libraries()
    measured = []
    for shape in shapes:
        step = LayerStep(contenders.framework_of(contender), kind, graph, **shape)
        with contenders.context_of(contender)():
            measured.append(memory.of_call(step.step))
    return measured


def measure_memory(
    names: Sequence[str], kind: str, graph: BenchmarkGraph, shapes: Sequence[Mapping[str, int]], threads: int
) -> list[dict[str, dict]]:
    """For each shape ``{contender: {"step": bytes, "held": bytes}}``, or ``{"error": reason}`` where it could not be
    measured.
    """
    measured: list[dict[str, dict]] = [{} for _ in shapes]
    for name in names:
        try:
            found = memory.in_child(step_memory, name, kind, graph, shapes, threads)
        except memory.CannotMeasure as reason:
            found = [{"error": str(reason)}] * len(shapes)
        for cell, entry in zip(measured, found):
            cell[name] = entry
    return measured


def by_framework(costs: Mapping[str, float], frameworks: Sequence[str]) -> dict[str, float | None]:
    """A framework's own cost over the same framework's with the backend, for each framework."""
    result = {}
    for framework in frameworks:
        pair = {name: costs[name] for name in (framework, framework + contenders.BACKEND) if name in costs}
        result[framework] = summary.speedup(pair, contenders.ours(frameworks))
    return result


def measure_cell(
    graph: BenchmarkGraph,
    kind: str,
    shape: Mapping[str, int],
    frameworks: Sequence[str],
    limits: roofline.Roofline,
    budget: float,
) -> dict:
    """One cell without its memory, as plain values."""
    steps = make_steps(frameworks, kind, graph, shape, peers=True)
    first, wrong, evidence = first_calls(steps)
    right = {name: step.step for name, step in steps.items() if name not in wrong}
    slow = max(first.values(), default=0.0) > SLOW_S
    timed = in_turns(
        contenders.switched(right), budget_s=(1 - REST_SHARE) * budget, calls=1 if slow else 2, min_turns=3
    )
    timings = {
        name: turns.timing.to_dict() | {"first_call": first[name], "opening": turns.opening}
        for name, turns in timed.items()
    }
    del steps, right
    ours = contenders.ours(frameworks)
    # after the first calls of the whole graph, which are to show the kernels' compilation
    overhead, rest = (
        medians_of(make_steps(frameworks, kind, part, shape, peers=False), REST_SHARE / 2 * budget)
        for part in (ONE_EDGE, graph.without_edges())
    )
    evidence = {
        name: Evidence(overhead.get(name), rest.get(name), found.ours, found.fallbacks)
        for name, found in evidence.items()
    }
    work = {
        contenders.name(framework, True): attention_work(kind, framework, graph.pattern, **shape_of_work(shape))
        for framework in frameworks
    }
    where = f"{graph.name}, {kind}, heads = {shape['heads']}"
    rated = cells.rate(
        where,
        timings,
        ours,
        limits,
        work,
        wrong=wrong,
        evidence={name: evidence.get(name, Evidence()) for name in ours},
    )
    return {
        "graph": graph.name,
        "layer": kind,
        **shape,
        "edges": graph.num_edges,
        **rated,
        "ratios": by_framework({name: timing["median"] for name, timing in timings.items()}, frameworks),
    }


def with_memory(cell: dict, measured: Mapping[str, dict], frameworks: Sequence[str]) -> dict:
    """The cell with its memory: the ratio of the best peer's peak to that of the best of ours, and by framework."""
    peaks = {name: entry["step"] for name, entry in measured.items() if "step" in entry}
    return cell | {
        "memory": dict(measured),
        "memory_ratio": summary.speedup(peaks, contenders.ours(frameworks)),
        "memory_ratios": by_framework(peaks, frameworks),
    }


def run(
    selected: Sequence[BenchmarkGraph],
    layers: Sequence[str],
    heads: Sequence[int],
    *,
    features: int,
    total: int,
    frameworks: Sequence[str],
    budget: float,
    threads: int,
    seed: int = 0,
    limits: roofline.Roofline | None = None,
    begin: Callable[[str], None] = lambda cell: None,
    done: Callable[[dict, dict], None] = lambda cell, so_far: None,
) -> dict:
    """Measure every cell; return the report as plain values, times in seconds, memory in bytes.

    features, total: the layer's inputs, and its outputs over all heads. ``begin`` is called at the beginning of each
    cell, ``done`` at its end with the cell and the report of all cells so far.
    """
    description = machine.describe(threads)
    limits = limits or roofline.measure(threads)
    shapes = {
        number: {"features": features, "heads": number, "width": total // number, "seed": seed} for number in heads
    }
    shares = Budget(
        budget,
        {
            (graph.name, kind, number): weight(graph.num_edges, 3 * total)
            for graph in selected
            for kind in layers
            for number in heads
        },
    )
    names = contenders.names(frameworks)
    measured: list[dict] = []

    def so_far() -> dict:
        return {
            "machine": description,
            "roofline": limits.to_dict(),
            "contenders": names,
            "graphs": [graph.describe() for graph in selected],
            "cells": list(measured),
            "summary": summarise(measured, frameworks),
        }

    for graph in selected:
        for kind in layers:
            start = time.perf_counter()
            peaks = measure_memory(names, kind, graph, list(shapes.values()), threads)
            shares.pause(time.perf_counter() - start)
            for (number, shape), found in zip(shapes.items(), peaks):
                begin(f"{graph.name}, {kind}, heads = {number}")
                share = shares.take((graph.name, kind, number))
                cell = measure_cell(graph, kind, shape, frameworks, limits, share)
                measured.append(with_memory(cell, found, frameworks))
                done(measured[-1], so_far())
    return so_far()


def summarise(measured: Sequence[dict], frameworks: Sequence[str]) -> dict:
    """``summary.summarise``, and the geometric means of the memory ratios and of both by framework."""

    def means(key: str) -> dict[str, float | None]:
        return {framework: summary.mean_or_none(cell[key][framework] for cell in measured) for framework in frameworks}

    return summary.summarise(measured, ("layer", "graph", "heads")) | {
        "frameworks": means("ratios"),
        "memory": summary.mean_or_none(cell["memory_ratio"] for cell in measured),
        "memory_frameworks": means("memory_ratios"),
    }


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=900.0, parents=[gpu.device_parser()])
    parser.add_argument("--graphs", nargs="+", choices=tuple(graphs.RECIPES), help=f"by default {' '.join(GRAPHS)}")
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--heads", nargs="+", type=cli.positive_int, help=f"by default {' '.join(map(str, HEADS))}")
    parser.add_argument("--features", type=cli.positive_int, default=64, help="inputs of the layer")
    parser.add_argument("--width", type=cli.positive_int, default=64, help="outputs of the layer, over all heads")
    parser.add_argument("--frameworks", nargs="+", choices=tuple(cli.FRAMEWORKS), default=list(cli.FRAMEWORKS))
    parser.add_argument(
        "--dtype", choices=tuple(gpu.DTYPES), default="float32", help="of all values, with --device cuda"
    )
    options = parser.parse_args(argv)
    if options.dtype != "float32" and options.device != "cuda":
        parser.error(f"--dtype {options.dtype} is measured with --device cuda alone")
    options.graphs = options.graphs or (["pubmed"] if options.quick else list(GRAPHS))
    options.heads = options.heads or ([4] if options.quick else list(HEADS))
    if options.quick:
        options.budget = min(options.budget, 30.0)
    if any(options.width % number for number in options.heads):
        parser.error(f"--width {options.width} must be a multiple of every --heads {options.heads}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``attention_layers.json`` and ``.png``. 1 if nothing ran or an answer was wrong,
    else 0.
    """
    options = arguments(argv)
    console = cli.start(options)
    frameworks = cli.installed(options.frameworks, console)
    if options.device == "cuda":
        names = contenders.names(frameworks)
        return gpu_steps.main(
            "attention_layers",
            "training step of a layer",
            attention_gpu.cells_on_gpu(options, names, console),
            names,
            ("graph", "layer", "heads"),
            options.out,
            console,
            gpu.DTYPES[options.dtype],
        )
    selected, skipped = graphs.load_available(options.graphs, options.seed, console)
    if not selected or not frameworks:
        console.print("[red]nothing to run[/]")
        return 1

    def done(cell: dict, so_far: dict) -> None:
        # a long run that is stopped leaves what it has measured
        machine.write_json(options.out / "attention_layers.json", so_far)
        console.print(
            f"{cell['where']}: time {report.ratio(cell['speedup'])}, peak memory "
            f"{report.ratio(cell['memory_ratio'])} ({attention_report.times(cell)})",
            highlight=False,
        )

    with report.progress(console, len(selected) * len(options.layers) * len(options.heads)) as begin:
        results = run(
            selected,
            options.layers,
            options.heads,
            features=options.features,
            total=options.width,
            frameworks=frameworks,
            budget=options.budget,
            threads=options.threads,
            seed=options.seed,
            begin=begin,
            done=done,
        )
    results["skipped"] = skipped
    attention_report.show(results, console)
    panels = report.panels_of(results["cells"], "layer", "graph", "heads")
    memory_panels = report.panels_of(results["cells"], "layer", "graph", "heads", "memory_ratio")
    panels |= {f"{layer}, peak memory": lines for layer, lines in memory_panels.items()}
    report.finish(results, panels, "attention_layers", "heads", options.out, console)
    return 1 if results["summary"]["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
