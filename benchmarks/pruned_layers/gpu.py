"""The cells of ``python -m benchmarks.pruned --device cuda``: pruned layers beside cuBLAS, and PyTorch's BSR, CSR and
2:4.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator

import torch
from rich.console import Console

from benchmarks.layers import contenders as names_of
from benchmarks.layers import gpu_steps
from benchmarks.pruned_layers import contenders
from benchmarks.pruned_layers.problem import PATTERNS, TOLERANCE, TWO_OF_FOUR, Place, Problem
from benchmarks.support.cells import relative_error
from benchmarks.support.turns import Switched

OURS = {f"auto{names_of.BACKEND}": contenders.OURS} | {
    f"{name}{names_of.BACKEND}": f"{contenders.OURS} {name}" for name in contenders.VARIANTS
}
NAMES = ("dense", "torch bsr", "torch csr", "torch 2:4", *OURS)


def cell_on_gpu(place: Place) -> gpu_steps.Cell:
    @functools.cache
    def problem_on(kind: str) -> Problem:
        return Problem(place, kind)

    def make(name: str, device: torch.device) -> Switched:
        return Switched(contenders.call_of(OURS.get(name, name), problem_on(device.type)))

    def mismatch(answer: tuple, expected: tuple) -> str | None:
        for number, (found, wanted) in enumerate(zip(answer, expected, strict=True)):
            # gradients of weights are in each format's own order, and compared by the tests of layers
            if number != 2 and not (error := relative_error(found, wanted)) < TOLERANCE[place.dtype]:
                return f"output {number} is off by {error:.2g}"
        return None

    blocks = () if place.pattern == "blocks" else ("bsr", "dbsr", "torch bsr")
    return gpu_steps.Cell(
        {"graph": place.pattern, "layer": place.shape, "mode": place.op, "tokens": place.tokens},
        tuple(name for name in NAMES if name.removesuffix(names_of.BACKEND) not in blocks),
        make,
        mismatch,
        lambda name: Problem(place).work(),
        lambda device: problem_on(device.type).expected,
    )


def main(options: argparse.Namespace, console: Console) -> int:
    """`gpu_steps.in_each_precision` with the cells that were asked for."""
    densities = {**{name: PATTERNS[name] for name in options.patterns}, TWO_OF_FOUR: 0.5}

    def cells(precision: str) -> Iterator[gpu_steps.Cell]:
        for shape in options.shapes:
            for pattern, density in densities.items():
                for op in options.ops:
                    sizes = map(int, shape.split("x"))
                    yield cell_on_gpu(Place(pattern, op, precision, *sizes, density, options.tokens, options.seed))

    headings = ("graph", "layer", "mode", "tokens")
    return gpu_steps.in_each_precision("pruned", "pruned linear layers", cells, NAMES, headings, options, console)
