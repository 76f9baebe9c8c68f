"""Sums whose rows have no ends: each non-zero adds its message to its row of the result, where that lies.

    C[i(e)] += message of e, for the non-zeros e of a group of rows, one after the other

A loop over the non-zeros of a row ends after a number of rounds that nobody can predict; where rows have a few
non-zeros of one or two features, the misprediction costs more than the row. Here the only loop is over all non-zeros of
a group (the non-zero-split design of Huang et al., section 3.2, cut between rows): a sum waits for the one before in
its own row alone, some cycles in memory, and the processor has several rows under way. Groups hold whole rows, so that
nothing is added by two threads, and the order of additions is that of a loop over rows: the bits are the same.
"""

from __future__ import annotations

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import cast, maximum
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from .aggregate import AggregateSpec
from .message import lower
from .operands import Edges, feature_index


def refuses(spec: AggregateSpec) -> str | None:
    """Why an aggregation cannot run so, or None."""
    if not spec.reduction.adds:
        return f"what is added up where it lies are sums and means, not a {spec.reduce}"
    if spec.inner:
        return "what is added up where it lies has no values of its own for an edge"
    if ACCUMULATOR[spec.dtype] != spec.dtype:
        return f"sums that lie in the result would be rounded to {spec.dtype} after each edge"
    return None


def scattered(spec: AggregateSpec) -> Program:
    """The program of a sum or a mean.

    Parameters: (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], [D], Row, First, X0, X1, ..., C).
    Group g has the rows from group_ptr[g], which is First[g], and their non-zeros from indptr[g] on; Row has the row of
    each.
    """
    reason = refuses(spec)
    if reason:
        raise StageIError(f"scattered: {reason}")
    p = ProgramBuilder("scattered")
    edges = Edges(p, spec.index_dtype, spec.numbered, flat=True)
    G, I, J, M = edges.G, edges.I, edges.J, edges.M
    K = edges.features(spec.features, "K")
    D = p.buffer("D", (M,), spec.index_dtype) if spec.degrees else None
    Row, First = edges.declare_rows(), p.buffer("First", (G,), spec.index_dtype)
    X = [edges.buffer(f"X{which}", operand) for which, operand in enumerate(spec.operands)]
    C = p.buffer("C", (M, K), spec.dtype)
    with p.iterate("groups", (G,), "S", ("g",)) as (g,):
        with p.iterate("clear", (I, K), "SS", ("i0", "k0")) as (i, k):
            C[First[g] + i, k] = 0
        with p.iterate("edges", (J,), "R", ("j",)) as (j,), p.iterate("add", (K,), "S", ("k",)) as (k,):
            values = [
                edges.load(x, operand, g, j, feature_index(k, spec.dims, operand.dims), spec.dtype)
                for x, operand in zip(X, spec.operands)
            ]
            at = Row[g, j], k
            C[at] = C[at] + lower(spec.message, values, spec.dtype, spec.dtype)
        if D is not None:
            with p.iterate("divide", (I, K), "SS", ("i1", "k1")) as (i, k):
                row = First[g] + i
                C[row, k] = C[row, k] / maximum(cast(spec.dtype, D[row]), 1.0)
    return p.finish()
