"""SpMM against the libraries that users have: ``python -m benchmarks.spmm``.

Sums, weighted sums, means and maxima of the neighbours of each row, forward and with the gradients. Every cell (graph, mode,
width) runs all contenders on the same operands, checks their answers against float64, and times them interleaved. The
tables show every contender in every cell.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import suite
from benchmarks.peers import contenders
from benchmarks.problem import MODES, Operands, Problem
from benchmarks.suite import Suite
from benchmarks.work import aggregation_work

SUITE = Suite(
    "spmm", __doc__.splitlines()[0], (1, 4, 32, 64, 128, 256, 512), MODES, contenders, Operands.random, Problem.of,
    lambda pattern, width, mode: aggregation_work(pattern, width, weighted=mode.weighted, backward=mode.backward))


def main(argv: Sequence[str] | None = None) -> int:
    """See ``suite.main``."""
    return suite.main(SUITE, argv)


if __name__ == "__main__":
    raise SystemExit(main())
