"""What flows back through a choice: G[At[i, k], k] += Y[i, k], for every row i and feature k that chose a column.

A maximum that copies takes each number of its result from one column, which it can keep: its gradient is then a sum
over rows and features, and not over edges. Columns are chosen feature by feature, so neighbouring features go to rows
that lie far apart, but no two features to the same number: blocks of features are independent, and the order of
additions is that of the rows whatever the number of threads.
"""

from __future__ import annotations

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass


@dataclass(frozen=True)
class ArgmaxScatterSpec:
    """What is static: features of a row, of them in a block, the type of Y (G has that of its sums), and of At."""

    features: int
    block: int
    dtype: str = "float32"
    index_dtype: str = "int32"

    def __post_init__(self) -> None:
        if not 1 <= self.block <= self.features:
            raise StageIError(
                f"argmax_scatter: a block must have 1 to {self.features} of the features, got {self.block}"
            )


def argmax_scatter(spec: ArgmaxScatterSpec) -> Program:
    """The program, which adds to what G holds. Where At is negative nothing was chosen.

    Parameters: (m, n, At, Y, G), of (m, features), (m, features) and (n, features).
    """
    p = ProgramBuilder("argmax_scatter")
    accumulator = ACCUMULATOR[spec.dtype]
    m, n = p.sizes("m", "n")
    I, N = p.dense_fixed("I", m), p.dense_fixed("N", n)
    K = p.dense_fixed("K", spec.features)
    At = p.buffer("At", (I, K), spec.index_dtype)
    Y = p.buffer("Y", (I, K), spec.dtype)
    G = p.buffer("G", (N, K), accumulator)

    def add(i: Expr, k: Expr) -> None:
        at = At[i, k]
        p.where(at >= as_expr(0))
        G[at, k] = G[at, k] + cast(accumulator, Y[i, k])

    blocks, rest = divmod(spec.features, spec.block)
    B, W = p.dense_fixed("B", blocks), p.dense_fixed("W", spec.block)
    with p.iterate("blocks", (B,), "S", ("b",)) as (b,), p.iterate("rows", (I, W), "RR", ("i", "w")) as (i, w):
        add(i, b * spec.block + w)
    if rest:
        R = p.dense_fixed("R", rest)
        with p.iterate("rest", (I, R), "RR", ("i1", "r")) as (i, r):
            add(i, blocks * spec.block + r)
    return p.finish()
