"""Messages with sums over features in one kernel, and in two: ``python -m benchmarks.fused_mm``.

    out[i] = sum over the edges (j, i) of sigmoid(x[j] . y[i]) x[j]

A sigmoid or hyperbolic tangent of the dot product of both ends, times a row, summed over neighbours, is FusedMM
(Rahman, Sujon and Azad, IPDPS 2021). Contenders: ``gsb.aggregate`` in one kernel, our SDDMM, PyTorch's sigmoid and our
SpMM, and (``--peers``) the gathers and the scatter of PyTorch, which a layer of PyG is without us. All have the same
operands, take turns, and are compared with each other before.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.support.timing import rotated

MESSAGE = "mul(sigmoid(dot(x0, x1)), x0)"


def contenders(graph, row: Tensor, col: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """By name, functions of the features, which stand at both ends."""

    def scattered(x: Tensor) -> Tensor:
        x_j = x.index_select(0, col)
        scores = (x_j * x.index_select(0, row)).sum(-1, keepdim=True).sigmoid()
        return torch.zeros_like(x).index_add(0, row, scores * x_j)

    return {
        "one kernel": lambda x: gsb.aggregate(graph, MESSAGE, [("u", x), ("v", x)]),
        "sddmm, spmm": lambda x: gsb.spmm(graph, x, gsb.sddmm(graph, x, x).sigmoid()),
        "gather, scatter": scattered,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each number of threads, width and mode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=400_000)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 64, 128, 256])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--peers", action="store_true", help="time PyTorch, too, which takes some twenty times as long")
    parser.add_argument("--rounds", type=int, default=21, help="turns of each contender")
    parser.add_argument(
        "--minima", action="store_true", help="least processor times of a busy machine, in the place of medians"
    )
    args = parser.parse_args(argv)
    generator = torch.Generator().manual_seed(0)
    row, col = (torch.randint(args.nodes, (args.edges,), generator=generator) for _ in range(2))
    graph = gsb.Graph.from_coo(row, col, (args.nodes, args.nodes))
    every = contenders(graph, row, col)
    of = min if args.minima else statistics.median
    for threads in args.threads:
        torch.set_num_threads(threads)
        clock = time.process_time if args.minima and threads == 1 else time.perf_counter
        for width in args.widths:
            x = torch.randn(args.nodes, width, generator=generator) / width**0.5
            for step in (False, True):
                runs = {}
                for name, function in every.items():
                    given = x.clone().requires_grad_(step)
                    flows = torch.ones_like(x)

                    def run(function=function, given=given, flows=flows):
                        out = function(given)
                        return torch.autograd.grad(out, given, flows)[0] if given.requires_grad else out

                    runs[name] = run
                expected = runs["gather, scatter"]()
                if not args.peers:
                    del runs["gather, scatter"]
                for run in runs.values():
                    torch.testing.assert_close(run(), expected, rtol=1e-3, atol=1e-3)
                times: dict[str, list[float]] = {name: [] for name in runs}
                for turn in range(args.rounds + 9):  # from the ninth call on rows are in the order of their lengths
                    for name in rotated(list(runs), turn):
                        start = clock()
                        runs[name]()
                        if turn >= 9:
                            times[name].append(clock() - start)
                found = {name: of(each) * 1e3 for name, each in times.items()}
                ours = found["one kernel"]
                told = "  ".join(f"{name} {value:8.2f} ({value / ours:.2f})" for name, value in found.items())
                print(
                    f"{threads} threads, {width:3d} features, {'step   ' if step else 'forward'}: {told} ms", flush=True
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
