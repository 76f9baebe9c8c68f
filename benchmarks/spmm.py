"""SpMM against the libraries that users have: ``python -m benchmarks.spmm``.

Sums, weighted sums, means and maxima of the neighbours of each row, forward and with the gradients. Every cell (graph,
mode, width) runs all contenders on the same operands, checks their answers against float64, and times them interleaved.
The tables show every contender in every cell. ``--dtype bfloat16`` compares with our own kernels in float32 and with
what peers there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from benchmarks.operators import suite
from benchmarks.operators.peers import contenders, half_contenders
from benchmarks.operators.problem import MODES, Operands, Problem
from benchmarks.operators.suite import Suite
from benchmarks.operators.work import aggregation_work
from benchmarks.support.gpu import device as gpu

# Values of 8 bits are often equal, and libraries share the gradient of a maximum differently then.
HALF_MODES = tuple(
    replace(mode, dtype=torch.bfloat16) for mode in MODES if not (mode.reduce == "max" and mode.backward)
)


def _suite(name: str, modes: tuple, contestants) -> Suite:
    return Suite(
        name,
        __doc__.splitlines()[0],
        (1, 4, 32, 64, 128, 256, 512),
        modes,
        contestants,
        Operands.random,
        Problem.of,
        lambda pattern, width, mode: aggregation_work(
            pattern, width, weighted=mode.weighted, backward=mode.backward, itemsize=mode.dtype.itemsize
        ),
    )


SUITE = _suite("spmm", MODES, contenders)
HALF_SUITE = _suite("spmm_bfloat16", HALF_MODES, half_contenders)


def main(argv: Sequence[str] | None = None) -> int:
    """See ``suite.main``."""
    parser = gpu.device_parser()
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="of all values; float16 on a GPU alone",
    )
    chosen, rest = parser.parse_known_args(argv)
    if chosen.device == "cuda":
        return gpu.main("spmm", [*rest, "--dtype", chosen.dtype])
    if chosen.dtype == "float16":
        parser.error("--dtype float16 is measured with --device cuda alone: give bfloat16 on a CPU")
    return suite.main(HALF_SUITE if chosen.dtype == "bfloat16" else SUITE, rest, parents=[parser])


if __name__ == "__main__":
    raise SystemExit(main())
