"""The cells of ``python -m benchmarks.rgcn --device cuda``: the same networks on a GPU, in any precision."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Sequence

import torch

from benchmarks.layers import gpu_steps
from benchmarks.layers.layers import gradient_disagreement
from benchmarks.layers.rgcn.graphs import RelationalGraph, load_available
from benchmarks.layers.rgcn.models import TORCH, Network, context_of
from benchmarks.layers.rgcn.turns import mismatch_of
from benchmarks.layers.rgcn.work import network_work
from benchmarks.support.gpu import device as gpu
from benchmarks.support.gpu import timing as gpu_timing
from benchmarks.support.turns import Switched

TF32_ROUNDING = 2.0**-10


def cells_on_gpu(options: argparse.Namespace, names: Sequence[str], console) -> Iterable[gpu_steps.Cell]:
    """The cells of ``--device cuda``; the graphs are loaded where there is one."""
    for name in options.graphs:
        graph = next(iter(load_available([name], options.seed))) if gpu_timing.device_and_name()[0] else None
        if isinstance(graph, tuple):
            console.print(f"[yellow]{name} skipped:[/] {graph[1]}")
            continue
        for features, mode in itertools.product(options.features, options.modes):
            yield cell_on_gpu(name, graph, features, mode, names, options.seed, options.dtype, options.tf32)


def cell_on_gpu(
    name: str,
    graph: RelationalGraph | None,
    features: int,
    mode: str,
    names: Sequence[str],
    seed: int,
    dtype: str = "float32",
    tf32: bool = False,
) -> gpu_steps.Cell:
    values = gpu.DTYPES[dtype]

    def make(contender: str, device: torch.device) -> Switched:
        return Switched(getattr(Network(contender, graph, features, seed, device, values), mode), context_of(contender))

    def reference(device: torch.device) -> tuple:
        return getattr(Network(TORCH, graph, features, seed, device, torch.float64, rounded=values), mode)()

    def mismatch(answer: tuple, expected: tuple) -> str | None:
        if values is torch.float32 and not tf32:
            return mismatch_of(answer, expected)
        # all by their norms, outputs within a few roundings; a ReLU turns a rounding into a whole entry of a gradient
        # now and then
        rounding, results = TF32_ROUNDING if tf32 else torch.finfo(values).eps, Network.results
        return gradient_disagreement(results[:1], answer[:1], expected[:1], 4 * rounding) or gradient_disagreement(
            results[1:], answer[1:], expected[1:], 2 * rounding**0.5
        )

    return gpu_steps.Cell(
        {"graph": name, "F": features, "mode": mode},
        tuple(names),
        make,
        mismatch,
        lambda contender: network_work(graph, features, backward=mode == "step", itemsize=values.itemsize),
        reference,
    )


def main(options: argparse.Namespace, names: Sequence[str], console) -> int:
    """As ``gpu_steps.main``; each precision has a file of its own."""
    precision = "tf32" if options.tf32 else options.dtype
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if options.tf32 else "highest")
    try:
        return gpu_steps.main(
            gpu_steps.named("rgcn", precision),
            "relational network",
            cells_on_gpu(options, names, console),
            names,
            ("graph", "F", "mode"),
            options.out,
            console,
            gpu.DTYPES[options.dtype],
            precision,
        )
    finally:
        torch.set_float32_matmul_precision(before)
