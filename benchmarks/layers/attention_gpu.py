"""The cells of ``python -m benchmarks.attention_layers --device cuda``: the same layers on a GPU."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence

import torch

from benchmarks.layers import contenders, gpu_steps
from benchmarks.layers.layer_work import attention_work, shape_of_work
from benchmarks.layers.layers import LayerStep, disagreement, gradient_disagreement
from benchmarks.support import graphs
from benchmarks.support.gpu import device as gpu
from benchmarks.support.gpu import timing as gpu_timing
from benchmarks.support.graphs import BenchmarkGraph
from benchmarks.support.turns import Switched


def cells_on_gpu(options: argparse.Namespace, names: Sequence[str], console) -> Iterator[gpu_steps.Cell]:
    """The cells of ``--device cuda``; the graphs are loaded where there is one."""
    for name in options.graphs:
        found = graphs.load_available([name], options.seed, console)[0] if gpu_timing.device_and_name()[0] else [None]
        for graph, kind, number in itertools.product(found, options.layers, options.heads):
            shape = {
                "features": options.features,
                "heads": number,
                "width": options.width // number,
                "seed": options.seed,
            }
            yield cell_on_gpu(name, graph, kind, shape, names, gpu.DTYPES[options.dtype])


def cell_on_gpu(
    name: str,
    graph: BenchmarkGraph | None,
    kind: str,
    shape: Mapping[str, int],
    names: Sequence[str],
    dtype: torch.dtype = torch.float32,
) -> gpu_steps.Cell:
    results: tuple[str, ...] = ()

    def make(contender: str, device: torch.device) -> Switched:
        nonlocal results
        step = LayerStep(contenders.framework_of(contender), kind, graph, **shape, device=device, dtype=dtype)
        results = step.results
        return Switched(step.step, contenders.context_of(contender))

    def mismatch(answer: tuple, expected: tuple) -> str | None:
        if dtype is torch.float32:
            return disagreement(results, answer, expected)
        # a framework rounds scores, weights and messages, and adds up in the half type: all by their norms
        return gradient_disagreement(results, answer, expected, 2 * torch.finfo(dtype).eps ** 0.5)

    def work(contender: str):
        return attention_work(
            kind, contenders.framework_of(contender), graph.pattern, **shape_of_work(shape), itemsize=dtype.itemsize
        )

    return gpu_steps.Cell({"graph": name, "layer": kind, "heads": shape["heads"]}, tuple(names), make, mismatch, work)
