"""Depthwise sparse convolution on a GPU: a team of lanes for each row of the result, or for each part of the pairs.

    O[i] = sum over offsets k and pairs (j, i) of k of X[j] * W[k]        W[part] = sum over its pairs of X[j] * G[i]

The lanes share the channels, each with a few vectors of them in registers while the pairs take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, Var, cast
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass


@dataclass(frozen=True)
class DepthwiseSpec:
    """What is static. width: channels. lanes: of a team, with ``part`` neighbouring channels each, which divides the
    width, in ``turns`` turns, which cover the channels of an element of the grid."""

    width: int
    lanes: int
    part: int
    turns: int
    dtype: str = "float16"
    index_dtype: str = "int32"

    @property
    def accumulator(self) -> str:
        return ACCUMULATOR[self.dtype]

    @property
    def covered(self) -> int:
        """Channels that a team has at a time."""
        return self.lanes * self.part * self.turns

    @property
    def grid(self) -> int:
        return -(-self.width // self.covered)


class _Channels:
    """The channels of a team."""

    def __init__(self, p: ProgramBuilder, spec: DepthwiseSpec) -> None:
        self.p, self.spec = p, spec
        self.grid, self.lane = p.role_axis("B", spec.grid, "grid"), p.role_axis("W", spec.lanes, "lane")
        self.turn, self.part = p.role_axis("C", spec.turns, "turn"), p.role_axis("C", spec.part, "part")

    def visit(self, name: str) -> AbstractContextManager[tuple[Var, ...]]:
        axes = self.turn, self.lane, self.part
        return self.p.iterate(name, axes, "SSS", tuple(f"{n}_{name}" for n in "sle"))

    def channel(self, b: Expr, s: Expr, l: Expr) -> Expr:
        """The first channel that lane l has in turn s, of those that there are."""
        first = b * self.spec.covered + (s * self.spec.lanes + l) * self.spec.part
        if self.spec.grid * self.spec.covered != self.spec.width:
            self.p.where(first < self.spec.width)
        return first

    def sum(
        self, b: Expr, pairs, variable: str, left: Callable, right: Callable, put: Callable[[Expr, Expr], None]
    ) -> None:
        """put(channel, value) of the sums of left(pair, channel) * right(pair, channel) over an axis of pairs."""
        p, spec = self.p, self.spec
        Sum: BufferHandle = p.local("Sum", (self.lane, self.turn, self.part), spec.accumulator)
        with self.visit("zero") as (s, l, e):
            Sum[l, s, e] = 0.0
        with p.iterate("pairs_of", (pairs,), "R", (variable,)) as (j,):
            with self.visit("add") as (s, l, e):
                channel = self.channel(b, s, l) + e
                product = cast(spec.accumulator, left(j, channel)) * cast(spec.accumulator, right(j, channel))
                Sum[l, s, e] = Sum[l, s, e] + product
        with self.visit("put") as (s, l, e):
            put(self.channel(b, s, l) + e, Sum[l, s, e])


def depthwise_rows(spec: DepthwiseSpec) -> Program:
    """Parameters: (rows, cols, pairs, offsets, row_ptr, Offset, In, X, W, O). X is (cols, width), W (offsets, width), O
    (rows, width); row i has the pairs from row_ptr[i] on."""
    p = ProgramBuilder("depthwise_rows")
    rows, cols, pairs, offsets = p.sizes("rows", "cols", "pairs", "offsets")
    of = _Channels(p, spec)
    I = p.dense_fixed("I", rows)
    J = p.dense_variable("J", I, (pairs, pairs), "row_ptr", spec.index_dtype)
    Offset, In = p.buffer("Offset", (I, J), spec.index_dtype), p.buffer("In", (I, J), spec.index_dtype)
    C = p.dense_fixed("C", spec.width)
    X = p.buffer("X", (p.dense_fixed("NX", cols), C), spec.dtype)
    W = p.buffer("W", (p.dense_fixed("NW", offsets), C), spec.dtype)
    O = p.buffer("O", (I, C), spec.dtype)
    with p.iterate("rows_of_grid", (I, of.grid), "SS", ("i", "b")) as (i, b):

        def put(channel: Expr, value: Expr) -> None:
            O[i, channel] = cast(spec.dtype, value)

        of.sum(b, J, "j", lambda j, c: X[In[i, j], c], lambda j, c: W[Offset[i, j], c], put)
    return p.finish()


def depthwise_parts(spec: DepthwiseSpec) -> Program:
    """Parameters: (parts, cols, rows, pairs, part_ptr, In, Out, X, G, W). Part t has the pairs from part_ptr[t] on, all
    of one offset; X is (cols, width), G (rows, width), W (parts, width) in the accumulation type."""
    p = ProgramBuilder("depthwise_parts")
    parts, cols, rows, pairs = p.sizes("parts", "cols", "rows", "pairs")
    of = _Channels(p, spec)
    T = p.dense_fixed("T", parts)
    N = p.dense_variable("N", T, (pairs, pairs), "part_ptr", spec.index_dtype)
    In, Out = p.buffer("In", (T, N), spec.index_dtype), p.buffer("Out", (T, N), spec.index_dtype)
    C = p.dense_fixed("C", spec.width)
    X = p.buffer("X", (p.dense_fixed("NX", cols), C), spec.dtype)
    G = p.buffer("G", (p.dense_fixed("NG", rows), C), spec.dtype)
    W = p.buffer("W", (T, C), spec.accumulator)
    with p.iterate("parts_of_grid", (T, of.grid), "SS", ("t", "b")) as (t, b):

        def put(channel: Expr, value: Expr) -> None:
            W[t, channel] = value

        of.sum(b, N, "n", lambda n, c: X[In[t, n], c], lambda n, c: G[Out[t, n], c], put)
    return p.finish()
