"""Linear maps of features that are mostly zeros: ``python -m benchmarks.sparse_features``.

Bags of words, which stay as they are, and outputs of rectifiers, which are made anew in each step. Contenders:
``gsb.linear``, PyTorch's dense product, and its sparse CSR tensors; all have the same operands and take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

import gnn_sparse_backend as gsb
from benchmarks.support.timing import rotated

WARM = 9
"""Calls before measuring, in which non-zeros are found."""
SEEN = 64
"""Calls of ours before all take turns: then the non-zeros are found, and made into rows."""


class Features(NamedTuple):
    """rows, columns and the share of non-zeros. stays: it is the same tensor in each step."""

    rows: int
    columns: int
    share: float
    stays: bool


FEATURES = {
    "Cora": Features(2708, 1433, 0.013, True),
    "Citeseer": Features(3327, 3703, 0.009, True),
    "dense": Features(2708, 1433, 1.0, True),
    "rectified, 50 %": Features(20_000, 256, 0.5, False),
    "rectified, 10 %": Features(20_000, 256, 0.1, False),
}


def contenders(x: Tensor, stays: bool) -> dict[str, Callable[[Tensor], Tensor]]:
    """By name, functions of the matrix."""
    sparse = x.to_sparse_csr()
    return {
        "gsb.linear": lambda matrix: gsb.linear(x if stays else x.clone(), matrix),
        "dense": lambda matrix: functional.linear(x if stays else x.clone(), matrix),
        "torch.sparse": lambda matrix: (sparse if stays else x.clone().to_sparse_csr()) @ matrix.t(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each kind of features, number of threads, width and mode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", nargs="+", default=list(FEATURES), choices=list(FEATURES))
    parser.add_argument("--hidden", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--minima", action="store_true", help="least times of a busy machine, in the place of medians")
    args = parser.parse_args(argv)
    generator = torch.Generator().manual_seed(0)
    of = min if args.minima else statistics.median
    for name in args.features:
        rows, columns, share, stays = FEATURES[name]
        x = torch.rand(rows, columns, generator=generator)
        x = torch.where(torch.rand(rows, columns, generator=generator) < share, x, 0)
        every = contenders(x, stays)
        for threads in args.threads:
            torch.set_num_threads(threads)
            clock = time.process_time if args.minima and threads == 1 else time.perf_counter
            for hidden in args.hidden:
                flows = torch.randn(rows, hidden, generator=generator)
                for step in (False, True):
                    matrix = torch.randn(hidden, columns, generator=generator).requires_grad_(step)

                    def run(function, matrix=matrix, flows=flows, step=step):
                        out = function(matrix)
                        return torch.autograd.grad(out, matrix, flows)[0] if step else out

                    for _ in range(SEEN):
                        run(every["gsb.linear"])
                    times: dict[str, list[float]] = {each: [] for each in every}
                    for turn in range(args.rounds + WARM):
                        for each in rotated(list(every), turn):
                            start = clock()
                            run(every[each])
                            if turn >= WARM:
                                times[each].append(clock() - start)
                    found = {each: of(taken) * 1e3 for each, taken in times.items()}
                    ours = found["gsb.linear"]
                    told = "  ".join(f"{each} {value:8.2f} ({value / ours:.2f})" for each, value in found.items())
                    mode = "step   " if step else "forward"
                    print(f"{name}, {threads} threads, {hidden:3d} features, {mode}: {told} ms", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
