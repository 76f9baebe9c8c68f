"""SpMM and SDDMM on a GPU: ``python -m benchmarks.spmm --device cuda``, ``python -m benchmarks.sddmm --device cuda``.

The modes of the CPU's benchmarks, forward and with the gradients, against PyTorch's own CSR (cuSPARSE), CuPy's, PyG's,
Triton's block-sparse product, and the gather, multiply and scatter of dense operators (``gpu_peers``). Contenders take
turns; times are medians of turns, each the median of single calls between two events on the stream, once with the
second-level cache as the call before has left it, and once with other data written over it. Every answer is checked
against float64. Beside them the best peer's time over ours, and shares of the GPU's measured limits (``gpu_ratings``).
Where there is no GPU the tables say so in every cell.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.operators import problem, sddmm_problem
from benchmarks.operators.gpu_peers import OURS, PEERS, Problem
from benchmarks.operators.work import Work, aggregation_work
from benchmarks.planner import gpu_ratings
from benchmarks.support import cli, graphs, machine, report
from benchmarks.support.gpu import timing as gpu_timing
from benchmarks.support.gpu.timing import NOT_MEASURED
from benchmarks.support.gpu.turns import in_turns, refusals
from benchmarks.support.graphs import BenchmarkGraph
from benchmarks.support.roofline import Roofline

WIDTHS = {"spmm": (1, 4, 32, 64, 128, 256, 512), "sddmm": (32, 64, 128, 256, 512)}
MODES = {
    operator: {mode.name: mode for mode in modes}
    for operator, modes in (("spmm", problem.MODES), ("sddmm", sddmm_problem.MODES))
}
DTYPES = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16")}
# Values of half types are often equal, and libraries share the gradient of a maximum differently then.
FLOAT32_ALONE = "max forward+backward"


def right(answer: torch.Tensor, exact: torch.Tensor) -> bool:
    """Within a ten-thousandth of the largest entry, of half types within four of their roundings."""
    share = max(1e-4, 4 * torch.finfo(answer.dtype).eps) if answer.is_floating_point() else 1e-4
    return bool((answer.double() - exact).abs().max() <= share * (1 + exact.abs().max())) if exact.numel() else True


def measure(operator: str, given: Problem, device: torch.device, limits: Roofline | None) -> dict:
    """``times``: of each contender (cache warm, flushed), or words; and what ``gpu_ratings.rate`` says of them."""
    try:
        exact = given.exact()
    except torch.cuda.OutOfMemoryError:
        return {
            "times": dict.fromkeys(PEERS[operator], "no reference: too large for this GPU"),
            **gpu_ratings.NO_RATINGS,
        }
    times: dict[str, tuple | str] = {}
    ready: dict[str, Callable[[], object]] = {}
    for name, make in PEERS[operator].items():
        with refusals(times, name):
            call = make(given)
            times[name] = "wrong"
            if all(right(y, expected) for y, expected in zip(call(), exact, strict=True)):
                ready[name] = call

    def turn(name: str, call: Callable[[], object]) -> dict[str, float]:
        return {cache: gpu_timing.seconds(call, device, cache == "flushed") for cache in gpu_ratings.CACHES}

    known = in_turns(ready, turn, times)
    times |= {name: tuple(found.values()) for name, found in known.items()}
    return {"times": times, **gpu_ratings.rate(known, (OURS,), {OURS: work(given)}, limits)}


def work(given: Problem) -> Work:
    """The least that must be done."""
    pattern, width, itemsize = given.graph.pattern, given.x.shape[1], given.x.element_size()
    if isinstance(given.mode, sddmm_problem.Mode):
        return sddmm_problem.work(pattern, width, given.mode, itemsize)
    return aggregation_work(
        pattern, width, weighted=given.mode.weighted, backward=given.mode.backward, itemsize=itemsize
    )


def cells(
    operator: str,
    names: Sequence[str],
    widths: Sequence[int],
    modes: Sequence[str],
    dtype: str,
    device: torch.device | None,
    seed: int,
    console: Console,
    limits: Roofline | None = None,
) -> Iterator[dict]:
    """A cell for every graph, mode and width, as of ``measure``, or ``not measured`` in it."""
    for name in names:
        found: list[BenchmarkGraph] = graphs.load_available([name], seed, console)[0] if device else []
        for mode, width in itertools.product(modes, widths):
            had = {"times": dict.fromkeys(PEERS[operator], NOT_MEASURED), **gpu_ratings.NO_RATINGS}
            for graph in found:
                had = measure(
                    operator,
                    Problem.of(graph, MODES[operator][mode], width, DTYPES[dtype], device, seed),
                    device,
                    limits,
                )
            yield {"graph": name, "mode": mode, "features": width, "dtype": dtype, **had}


def main(operator: str, argv: Sequence[str] | None = None) -> int:
    """Print the table and write ``NAME_cuda.json``. 1 if an answer of ours was wrong, else 0."""
    options = _arguments(operator, argv)
    console = cli.start(options)
    device, where = gpu_timing.device_and_name()
    limits = gpu_ratings.limits(device, DTYPES[options.dtype]) if device is not None else None
    title = f"{operator} on CUDA, {options.dtype}, ms: cache warm / flushed ({where})"
    headings = [heading for heading in gpu_ratings.HEADINGS if heading != "memory ratio"]
    table = report.table(title, ("graph", "mode"), ("F", *PEERS[operator], *headings))
    done: list[dict] = []
    name = operator if options.dtype == "float32" else f"{operator}_{options.dtype}"

    def written(**more) -> Path:
        return machine.write_json(
            options.out / f"{name}_cuda.json",
            {
                "device": where,
                "precision": options.dtype,
                "roofline": limits and limits.to_dict(),
                "cells": done,
                **more,
            },
        )

    for cell in cells(
        operator, options.graphs, options.features, options.modes, options.dtype, device, options.seed, console, limits
    ):
        done.append(cell)
        shown = [
            t if isinstance(t, str) else " / ".join(report.milliseconds(s) for s in t) for t in cell["times"].values()
        ]
        rated = dict(zip(gpu_ratings.HEADINGS, gpu_ratings.columns(cell)))
        table.add_row(
            cell["graph"], cell["mode"], str(cell["features"]), *shown, *(rated[heading] for heading in headings)
        )
        if device is not None:  # a long run that is stopped leaves what it has measured
            written()
            console.print(
                f"{cell['graph']}, {cell['mode']}, {cell['features']}: ratio {rated['ratio']}, ours {shown[0]} ms"
            )
    console.print(table)
    console.print(gpu_ratings.NOTE)
    gpu_ratings.print_limits(limits, options.dtype, console)
    summarised = gpu_ratings.summarise(done, ("mode", "graph", "features"))
    gpu_ratings.print_summary(summarised, console)
    console.print(f"written: {written(summary=summarised)}")
    return 1 if any(cell["times"][OURS] == "wrong" for cell in done) else 0


def _arguments(operator: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=600)
    parser.add_argument(
        "--graphs", nargs="+", choices=tuple(graphs.RECIPES), default=[*graphs.DEFAULT, "community"], metavar="NAME"
    )
    parser.add_argument("--features", nargs="+", type=cli.positive_int, default=list(WIDTHS[operator]), metavar="F")
    parser.add_argument(
        "--modes", nargs="+", choices=tuple(MODES[operator]), metavar="MODE", help="by default all: %(choices)s"
    )
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32")
    options = parser.parse_args(argv)
    options.modes = options.modes or [
        mode for mode in MODES[operator] if mode != FLOAT32_ALONE or options.dtype == "float32"
    ]
    options.out = Path(options.out)
    return options


def device_parser() -> argparse.ArgumentParser:
    """``--device``, to be read before the other arguments."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the contenders run")
    return parser
