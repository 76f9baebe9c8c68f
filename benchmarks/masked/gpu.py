"""The cells of ``python -m benchmarks.sparse_attention --device cuda``: attention on masks beside FlexAttention, SDPA,
and dense and block-sparse products.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator
from itertools import product

import torch
from rich.console import Console

from benchmarks.layers import gpu_steps
from benchmarks.masked import contenders
from benchmarks.masked.problem import MASKS, Place, Problem
from benchmarks.support.turns import Switched

OURS = "masks+gsb"
NAMES = ("sdpa", "flex", "dense", "bsr", OURS)


def cell_on_gpu(place: Place, names: tuple[str, ...] = NAMES) -> gpu_steps.Cell:
    @functools.cache
    def problem_on(kind: str) -> Problem:
        return Problem(place, kind)

    def make(name: str, device: torch.device) -> Switched:
        return Switched(contenders.call_of(contenders.OURS if name == OURS else name, problem_on(device.type)))

    def reference(device: torch.device) -> tuple:
        problem_on(device.type)  # which has the answer itself
        return ()

    return gpu_steps.Cell(
        {"graph": place.mask_name, "layer": place.op, "tokens": place.tokens},
        names,
        make,
        lambda answer, expected: problem_on(answer[0].device.type).mismatch(answer),
        lambda name: Problem(place).work(),
        reference,
    )


def main(options: argparse.Namespace, console: Console) -> int:
    """`gpu_steps.in_each_precision` with the cells that were asked for."""
    names = tuple(name for name in NAMES if name == OURS or name in options.contenders)

    def cells(precision: str) -> Iterator[gpu_steps.Cell]:
        for tokens, mask, op in product(options.tokens, options.masks, options.ops):
            if mask in MASKS:
                yield cell_on_gpu(Place(mask, op, precision, tokens, options.heads, options.width, options.seed), names)

    headings = ("graph", "layer", "tokens")
    return gpu_steps.in_each_precision(
        "sparse_attention", "attention on masks", cells, names, headings, options, console
    )
