"""SDDMM against the libraries that users have: ``python -m benchmarks.sddmm``.

A dot product of the ends of every edge, and their sum, forward and with the gradients to both ends. Every cell (graph,
mode, width) runs all contenders on the same operands, checks their answers against float64, and times them interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.operators import suite
from benchmarks.operators.sddmm_peers import contenders
from benchmarks.operators.sddmm_problem import MODES, Operands, Problem, work
from benchmarks.operators.suite import Suite
from benchmarks.support.gpu import device as gpu

SUITE = Suite(
    "sddmm", __doc__.splitlines()[0], (32, 64, 128, 256, 512), MODES, contenders, Operands.random, Problem.of, work
)


def main(argv: Sequence[str] | None = None) -> int:
    """See ``suite.main``."""
    parser = gpu.device_parser()
    chosen, rest = parser.parse_known_args(argv)
    return gpu.main("sddmm", rest) if chosen.device == "cuda" else suite.main(SUITE, rest, parents=[parser])


if __name__ == "__main__":
    raise SystemExit(main())
