"""SpMM and SDDMM on a GPU: ``python -m benchmarks.spmm --device cuda``, ``python -m benchmarks.sddmm --device cuda``.

Forward passes against PyTorch's own: cuSPARSE behind CSR tensors, which are made beforehand, and the gather, multiply and
scatter of dense operators. Times are medians of single calls between two events on the stream, once with the second-level
cache as the call before has left it, and once with other data written over it. Every answer is checked against float64.
Where there is no GPU the tables say so in every cell.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import cli, graphs, machine, report
from benchmarks.graphs import BenchmarkGraph

OURS = "gnn_sparse_backend"
NOT_MEASURED = "not measured"
WIDTHS = {"spmm": (1, 4, 32, 64, 128, 256, 512), "sddmm": (32, 64, 128, 256, 512)}
PEERS = {"spmm": (OURS, "torch CSR", "gather and scatter"), "sddmm": (OURS, "torch sampled_addmm", "gather and multiply")}
SAMPLES = 30
FLUSHED_BYTES = 256 << 20  # more than any second-level cache

Call = Callable[[], torch.Tensor]


def contenders(operator: str, graph: BenchmarkGraph, width: int, device: torch.device,
               seed: int) -> tuple[dict[str, Call], torch.Tensor]:
    """({name: a call of one pass}, the answer in float64)."""
    import gnn_sparse_backend as gsb

    generator = torch.Generator().manual_seed(seed)
    rows, columns = graph.shape
    x, u = (torch.randn(n, width, generator=generator).to(device) for n in (columns, rows))
    weight = (torch.rand(graph.num_edges, generator=generator) + 0.5).to(device)
    indptr, indices = (torch.from_numpy(a).to(device) for a in (graph.indptr, graph.indices))
    source, destination = torch.from_numpy(graph.edge_index).to(device)
    ours = gsb.Graph.from_csr(indptr, indices, graph.shape)
    matrix = torch.sparse_csr_tensor(indptr, indices, weight, size=graph.shape)
    if operator == "spmm":
        terms = weight.double()[:, None] * x.double()[source]
        exact = terms.new_zeros(rows, width).index_add_(0, destination, terms)
        return {
            OURS: lambda: gsb.spmm(ours, x, weight),
            "torch CSR": lambda: matrix @ x,
            "gather and scatter": lambda: x.new_zeros(rows, width).index_add_(0, destination, weight[:, None] * x[source]),
        }, exact
    pattern = torch.sparse_csr_tensor(indptr, indices, torch.zeros_like(weight), size=graph.shape)
    exact = (u.double()[destination] * x.double()[source]).sum(1)
    return {
        OURS: lambda: gsb.sddmm(ours, u, x),
        "torch sampled_addmm": lambda: torch.sparse.sampled_addmm(pattern, u, x.T, beta=0.0).values(),
        "gather and multiply": lambda: (u[destination] * x[source]).sum(1),
    }, exact


def seconds(call: Call, device: torch.device, flush: bool) -> float:
    """The median time of a call on the current stream."""
    buffer = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=device) if flush else None
    found = []
    for _ in range(SAMPLES):
        if buffer is not None:
            buffer.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(found)


def right(answer: torch.Tensor, exact: torch.Tensor) -> bool:
    return bool((answer.double() - exact).abs().max() <= 1e-4 * (1 + exact.abs().max())) if exact.numel() else True


def cells(operator: str, names: Sequence[str], widths: Sequence[int], device: torch.device | None, seed: int,
          console: Console) -> Iterator[dict]:
    """A cell for every graph and width; ``times`` are of each contender: (warm, flushed), or words."""
    for name in names:
        found = graphs.load_available([name], seed, console)[0] if device else []
        for width in widths:
            times: dict[str, tuple | str] = dict.fromkeys(PEERS[operator], NOT_MEASURED)
            for graph in found:
                calls, exact = contenders(operator, graph, width, device, seed)
                for peer, call in calls.items():
                    try:
                        ok = right(call(), exact)
                        times[peer] = (seconds(call, device, False), seconds(call, device, True)) if ok else "wrong"
                    except (RuntimeError, NotImplementedError) as error:
                        times[peer] = f"refused: {str(error).splitlines()[0]}"
            yield {"graph": name, "features": width, "times": times}


def main(operator: str, argv: Sequence[str] | None = None) -> int:
    """Print the table and write ``NAME_cuda.json``. 1 if an answer of ours was wrong, else 0."""
    options = _arguments(operator, argv)
    console = cli.start(options)
    device = torch.device("cuda") if torch.cuda.is_available() else None
    where = torch.cuda.get_device_name(device) if device else f"no GPU at hand: {NOT_MEASURED}"
    title = f"{operator} on CUDA, forward, float32, ms: cache warm / flushed ({where})"
    table = report.table(title, ["graph"], ["F", *PEERS[operator]])
    done = []
    for cell in cells(operator, options.graphs, options.features, device, options.seed, console):
        done.append(cell)
        shown = [t if isinstance(t, str) else " / ".join(report.milliseconds(s) for s in t) for t in cell["times"].values()]
        table.add_row(cell["graph"], str(cell["features"]), *shown)
    console.print(table)
    machine.write_json(options.out / f"{operator}_cuda.json", {"device": where, "cells": done})
    return 1 if any(cell["times"][OURS] == "wrong" for cell in done) else 0


def _arguments(operator: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=600)
    parser.add_argument("--graphs", nargs="+", choices=tuple(graphs.RECIPES), default=list(graphs.DEFAULT), metavar="NAME")
    parser.add_argument("--features", nargs="+", type=cli.positive_int, default=list(WIDTHS[operator]), metavar="F")
    options = parser.parse_args(argv)
    options.out = Path(options.out)
    return options


def device_parser() -> argparse.ArgumentParser:
    """``--device``, to be read before the other arguments."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the contenders run")
    return parser
