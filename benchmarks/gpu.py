"""SpMM and SDDMM on a GPU: ``python -m benchmarks.spmm --device cuda``, ``python -m benchmarks.sddmm --device cuda``.

Forward passes against PyTorch's own CSR (cuSPARSE), CuPy's, PyG's, Triton's block-sparse product, and the gather, multiply and
scatter of dense operators (``gpu_peers``). Times are medians of single calls between two events on the stream, once with the
second-level cache as the call before has left it, and once with other data written over it. Every answer is checked against
float64. Beside them the best peer's time over ours, and which share of the GPU's measured bandwidth the bytes of a row per
edge are. Where there is no GPU the tables say so in every cell.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import cli, gpu_timing, graphs, machine, report, summary
from benchmarks.gpu_peers import OURS, PEERS, REDUCTIONS, Problem
from benchmarks.gpu_timing import NOT_MEASURED
from benchmarks.graphs import BenchmarkGraph
from benchmarks.suite import CannotDo
from benchmarks.work import sddmm_work, spmm_work

WIDTHS = {"spmm": (1, 4, 32, 64, 128, 256, 512), "sddmm": (32, 64, 128, 256, 512)}
MODES = {"spmm": REDUCTIONS, "sddmm": ("dot",)}
DTYPES = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16")}

Call = Callable[[], torch.Tensor]


def right(answer: torch.Tensor, exact: torch.Tensor) -> bool:
    """Within a ten-thousandth of the largest entry, of half types within four of their roundings."""
    share = max(1e-4, 4 * torch.finfo(answer.dtype).eps) if answer.is_floating_point() else 1e-4
    return bool((answer.double() - exact).abs().max() <= share * (1 + exact.abs().max())) if exact.numel() else True


def measure(operator: str, problem: Problem, device: torch.device, rate: float) -> dict:
    """``times``: of each contender (cache warm, flushed), or words. ``ratio``: the best peer's time over ours, of both. ``share``:
    of the bandwidth ``rate``, of both.
    """
    exact = problem.spmm_exact() if operator == "spmm" else problem.sddmm_exact()
    times: dict[str, tuple | str] = {}
    for name, make in PEERS[operator].items():
        try:
            call = make(problem)
            ok = right(call(), exact)
            times[name] = tuple(gpu_timing.seconds(call, device, flush) for flush in (False, True)) if ok else "wrong"
        except CannotDo as reason:
            times[name] = str(reason)
        except Exception as error:  # a peer's failure is a result, and must not cost the others theirs
            times[name] = f"refused: {(str(error) or type(error).__name__).splitlines()[0]}"
    pattern, width, itemsize = problem.graph.pattern, problem.x.shape[1], problem.x.element_size()
    work = (spmm_work(pattern, width, weighted=problem.reduce == "sum", itemsize=itemsize) if operator == "spmm"
            else sddmm_work(pattern, width, itemsize))
    return {"times": times, **rated(times, work.gather, rate)}


def rated(times: Mapping[str, tuple | str], moved: int, rate: float) -> dict:
    """``ratio`` and ``share`` as of ``measure``; None where we, or all peers, have no time."""
    known = {name: found for name, found in times.items() if not isinstance(found, str)}
    mine = known.pop(OURS, None)
    if mine is None:
        return {"ratio": None, "share": None}
    best = [min(found[which] for found in known.values()) / mine[which] for which in (0, 1)] if known else None
    return {"ratio": best, "share": [moved / rate / taken for taken in mine]}


def cells(operator: str, names: Sequence[str], widths: Sequence[int], modes: Sequence[str], dtype: str,
          device: torch.device | None, seed: int, console: Console) -> Iterator[dict]:
    """A cell for every graph, mode and width, as of ``measure``, or ``not measured`` in it."""
    rate = gpu_timing.bandwidth(device) if device is not None and device.type == "cuda" else float("nan")
    for name in names:
        found: list[BenchmarkGraph] = graphs.load_available([name], seed, console)[0] if device else []
        for mode, width in itertools.product(modes, widths):
            had = {"times": dict.fromkeys(PEERS[operator], NOT_MEASURED), "ratio": None, "share": None}
            for graph in found:
                had = measure(operator, Problem.of(graph, mode, width, DTYPES[dtype], device, seed), device, rate)
            yield {"graph": name, "mode": mode, "features": width, "dtype": dtype, **had}


def main(operator: str, argv: Sequence[str] | None = None) -> int:
    """Print the table and write ``NAME_cuda.json``. 1 if an answer of ours was wrong, else 0."""
    options = _arguments(operator, argv)
    console = cli.start(options)
    device, where = gpu_timing.device_and_name()
    title = f"{operator} on CUDA, forward, {options.dtype}, ms: cache warm / flushed ({where})"
    table = report.table(title, ("graph", "mode"), ("F", *PEERS[operator], "ratio", "of bandwidth"))
    done: list[dict] = []
    for cell in cells(operator, options.graphs, options.features, options.modes, options.dtype, device, options.seed, console):
        done.append(cell)
        shown = [t if isinstance(t, str) else " / ".join(report.milliseconds(s) for s in t) for t in cell["times"].values()]
        both = ["" if cell[key] is None else " / ".join(text(each) for each in cell[key])
                for key, text in (("ratio", report.ratio), ("share", report.percent))]
        table.add_row(cell["graph"], cell["mode"], str(cell["features"]), *shown, *both)
        machine.write_json(options.out / f"{operator}_cuda.json", {"device": where, "cells": done})
    console.print(table)
    for which, cache in enumerate(("cache warm", "cache flushed")):
        ratios = [cell["ratio"][which] for cell in done if cell["ratio"]]
        if ratios:
            console.print(f"best peer over ours, {cache}: geometric mean {report.ratio(summary.mean_or_none(ratios))}, least "
                          f"{report.ratio(min(ratios))}")
    return 1 if any(cell["times"][OURS] == "wrong" for cell in done) else 0


def _arguments(operator: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=600)
    parser.add_argument("--graphs", nargs="+", choices=tuple(graphs.RECIPES), default=[*graphs.DEFAULT, "community"], metavar="NAME")
    parser.add_argument("--features", nargs="+", type=cli.positive_int, default=list(WIDTHS[operator]), metavar="F")
    parser.add_argument("--modes", nargs="+", choices=MODES[operator], default=list(MODES[operator]), metavar="MODE",
                        help="by default all: %(choices)s; sums have weights")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32")
    options = parser.parse_args(argv)
    options.out = Path(options.out)
    return options


def device_parser() -> argparse.ArgumentParser:
    """``--device``, to be read before the other arguments."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the contenders run")
    return parser
