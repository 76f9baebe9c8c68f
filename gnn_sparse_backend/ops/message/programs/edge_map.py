"""Edge map: O[e] = a message of the row, the column and the edge, for each edge e, summed over some features.

This one program is SDDMM (the message is U[i] * V[j], summed over the width of a head), every other generalised SDDMM
of graph learning frameworks, and the gradients of edge operands.
"""

from __future__ import annotations

from math import prod

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from .inner import Inner, message_at, write_inner
from .message import Message
from .operands import Edges, Operand, flat_position


@dataclass(frozen=True)
class EdgeMapSpec:
    """What is static in an edge map.

    message, operands, dims, dtype, index_dtype, numbered, inner: as in an aggregation; the result is in the order of E
        too.
    reduced: for each feature dimension, whether the result is summed over it.
    """

    message: Message
    operands: tuple[Operand, ...]
    dims: tuple[int, ...]
    reduced: tuple[bool, ...]
    dtype: str = "float32"
    index_dtype: str = "int32"
    numbered: bool = False
    inner: tuple[Inner, ...] = ()

    @property
    def work(self) -> int:
        """Numbers that are computed for an edge, in the longest loop over them."""
        return max([self.width * self.terms, *(one.width * one.terms for one in self.inner)])

    @property
    def width(self) -> int:
        """Features of the result."""
        return prod(e for e, gone in zip(self.dims, self.reduced) if not gone)

    @property
    def terms(self) -> int:
        """Terms of one sum."""
        return prod(e for e, gone in zip(self.dims, self.reduced) if gone)


def edge_map(spec: EdgeMapSpec) -> Program:
    """The program: parameters (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], X0, X1, ..., O)."""
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("edge_map")
    edges = Edges(p, spec.index_dtype, spec.numbered)
    I, J = edges.I, edges.J
    H = edges.features(spec.width, "H")
    X = [edges.buffer(f"X{number}", operand) for number, operand in enumerate(spec.operands)]
    O = p.buffer("O", (*edges.axes("edge"), H), spec.dtype)

    def load(which: int, feature: Expr) -> Expr:
        return edges.load(X[which], spec.operands[which], i, j, feature, accumulator)

    def message(h: Expr, k: Expr) -> Expr:
        return message_at(spec, load, inner, flat_position(spec.dims, spec.reduced, h, k), accumulator)

    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("edges", (J,), "S") as (j,):
            inner = write_inner(p, spec, load, accumulator)
            if spec.terms == 1:
                with p.iterate("map", (H,), "S") as (h,):
                    O[(*edges.at("edge", i, j), h)] = cast(spec.dtype, message(h, as_expr(0)))
            else:
                K = p.dense_fixed("K", spec.terms)  # its own: operands may be as wide
                with p.iterate("heads", (H,), "S") as (h,):
                    Sum = p.local("Sum", (), accumulator)
                    with p.iterate("sum", (K,), "R") as (k,):
                        with p.init():
                            Sum[()] = 0.0
                        Sum[()] = Sum[()] + message(h, k)
                    O[(*edges.at("edge", i, j), h)] = cast(spec.dtype, Sum[()])
    return edges.grouped()
