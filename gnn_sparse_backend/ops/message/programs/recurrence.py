"""A linear recurrence along the edges of each row, in the order of the non-zeros:

    Out[e] = y,  then  y = F[e] * y + A[e]          y begins with 1, or with 0 where there is an A

Without A, Out[e] is the product of what comes before e in its row. With A it is what flows back through that product.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.program import Program
from ....frozen import dataclass
from .operands import Edges


@dataclass(frozen=True)
class RecurrenceSpec:
    """What is static in a recurrence.

    width: features of an edge. dtype: of the edge arrays, float32 or float64. index_dtype: of indptr, indices and edge
    numbers. numbered: edge arrays are in the order that E gives. added: whether there is an A.
    """

    width: int
    dtype: str = "float32"
    index_dtype: str = "int32"
    numbered: bool = False
    added: bool = False


def recurrence(spec: RecurrenceSpec) -> Program:
    """The program: parameters (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], F, [A], Out)."""
    p = ProgramBuilder("recurrence")
    edges = Edges(p, spec.index_dtype, spec.numbered)
    I, J = edges.I, edges.J
    K = edges.features(spec.width, "K")
    names = ("F", "A", "Out") if spec.added else ("F", "Out")
    F, *A, Out = (p.buffer(name, (*edges.axes("edge"), K), spec.dtype) for name in names)
    with p.iterate("rows", (I,), "S") as (i,):
        Y = p.local("Y", (K,), spec.dtype)
        with p.iterate("edges", (J, K), "RS") as (j, k):
            with p.init():
                Y[k] = 0.0 if spec.added else 1.0
            at = (*edges.at("edge", i, j), k)
            Out[at] = Y[k]
            Y[k] = F[at] * Y[k] + A[0][at] if A else F[at] * Y[k]
    return edges.grouped()
