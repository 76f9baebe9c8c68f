"""Aggregations and edge maps over edges as they are listed: COO, in the user's order, unsorted and unchecked.

    C[row(e)] = reduce over the edges e a message of row(e), col(e) and e

One loop goes over all edges; what a row has so far lies in the result. Nothing is made of the structure beforehand: a
graph that is seen once is read once. Each index is checked as it is read: one that is out of range is counted in
``Wrong``, and another row stands in for it, so that nothing outside of the arrays is read or written. Edges are taken
in their order, so sums are the same bits at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from ....compiler.language.axes import Axis, given
from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast, differ, either, equal, maximum, minimum, number, select
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR, FLOATS
from .aggregate import SEVERAL, AggregateSpec
from .edge_map import EdgeMapSpec
from .inner import Load, message_at, write_inner
from .message import operators_of
from .operands import Edges, Operand, flat_position

Buffers: TypeAlias = Sequence[BufferHandle | None]
LoadFeature: TypeAlias = Callable[[Expr], Expr]

_ALWAYS = frozenset(("arg", "const", "add", "sub", "mul", "div", "neg"))
"""Operators that need all of their operands."""


class ListedEdges(Edges):
    """The axes of edges that are listed. Parameters, in order: m, n, num_edges, Row, Col; last: Wrong."""

    def __init__(self, p: ProgramBuilder, index_dtype: str) -> None:
        self.p, self.index_dtype = p, index_dtype
        m, n, count = p.sizes("m", "n", "num_edges")
        self.M, self.N, self.J = p.dense_fixed("M", m), p.dense_fixed("N", n), p.dense_fixed("J", count)
        self.bounds = {"row": as_expr(m), "column": as_expr(n)}
        self.lists = {
            "row": p.buffer("Row", (self.J,), index_dtype),
            "column": p.buffer("Col", (self.J,), index_dtype),
        }
        self._features = {}

    def axes(self, at: str) -> tuple[Axis, ...]:
        return {"edge": (self.J,), "row": (self.M,), "column": (self.N,), "all": ()}[at]

    def at(self, place: str, i: Expr, j: Expr | None) -> tuple[Expr, ...]:
        if place == "edge":
            return (i,)
        if place == "all":
            return ()
        return (maximum(minimum(self.lists[place][i], self.bounds[place] - 1), as_expr(0)),)

    def load(
        self, handle: BufferHandle | None, operand: Operand, i: Expr, j: Expr, feature: Expr, accumulator: str
    ) -> Expr:
        return i if operand.at == "number" else super().load(handle, operand, i, j, feature, accumulator)

    def loads(self, buffers: Buffers, spec: AggregateSpec | EdgeMapSpec, j: Expr, accumulator: str) -> Load:
        """Return the function from an operand and a feature to its value at edge j.

        What a message chooses between is loaded before: a load that only one choice makes would be a branch.
        """
        ahead = bool(spec.inner) or not _ALWAYS.issuperset(operators_of(spec.message))
        loaded = [
            self._ahead(which, buffer, operand, j, accumulator)
            if ahead and operand.at != "number" and operand.dtype in FLOATS
            else partial(self._load, buffer, operand, j, accumulator)
            for which, (buffer, operand) in enumerate(zip(buffers, spec.operands))
        ]
        return lambda which, feature: loaded[which](feature)

    def _load(self, buffer: BufferHandle | None, operand: Operand, j: Expr, accumulator: str, feature: Expr) -> Expr:
        return self.load(buffer, operand, j, j, feature, accumulator)

    def _ahead(
        self, which: int, buffer: BufferHandle | None, operand: Operand, j: Expr, accumulator: str
    ) -> LoadFeature:
        axis = self.features(operand.width)
        held = self.p.local(f"S{which}", (axis,), accumulator)
        with self.p.iterate(f"stage_{which}", (axis,), "S", (f"s{which}",)) as (feature,):
            held[feature] = self.load(buffer, operand, j, j, feature, accumulator)
        return held.__getitem__

    def check(self) -> None:
        """Count the ends of edges that are out of range."""
        Once = self.p.dense_fixed("Once", 1)
        Wrong = self.p.buffer("Wrong", (Once,), "int64")
        with self.p.iterate("check", (Once,), "S", ("o",)) as (o,):
            Count = self.p.local("Count", (), "int64")
            with self.p.iterate("checked", (self.J,), "R", ("jc",)) as (j,):
                with self.p.init():
                    Count[()] = 0
                for place, values in self.lists.items():  # a sum of both, which vectors have
                    outside = differ(values[j], self.at(place, j, None)[0])
                    Count[()] = Count[()] + select(outside, as_expr(1), as_expr(0))
            Wrong[o] = Count[()]


def listed_aggregate(spec: AggregateSpec) -> Program:
    """The program of an aggregation.

    Parameters: (m, n, num_edges, Row, Col, X0, ..., [Degree, Scale], [Total], C, [kept...], Wrong). Degree and Scale,
    (m,), are results, of a mean and where rows without edges are 0: the edges of each row, and 1 over them, or 1 of
    none. Total, (m, features) in the type of sums, where C has another.
    """
    accumulator, reduction = ACCUMULATOR[spec.dtype], spec.reduction
    p = ProgramBuilder("listed_aggregate")
    edges = ListedEdges(p, spec.index_dtype)
    J, M = edges.J, edges.M
    K = edges.features(spec.features, "K")
    X = [edges.buffer(f"X{which}", operand) for which, operand in enumerate(spec.operands)]
    Degree = p.buffer("Degree", (M,), spec.index_dtype) if spec.degrees else None
    Scale = p.buffer("Scale", (M,), accumulator) if spec.degrees else None
    rounded = accumulator != spec.dtype
    Total = p.buffer("Total", (M, K), accumulator) if rounded else None
    C = p.buffer("C", (M, K), spec.dtype)
    best = C if Total is None else Total
    kept = {what: p.buffer(what.capitalize(), (M, K), spec.index_dtype) for what in spec.keep}
    edges.check()
    with p.iterate("clear", (M,), "S", ("m0",)) as (i,), p.iterate("cleared", (K,), "S", ("k0",)) as (k,):
        best[i, k] = reduction.start(accumulator)
        for buffer in kept.values():
            buffer[i, k] = as_expr(spec.fill)
    if Degree is not None and Scale is not None:
        with p.iterate("none", (M,), "S", ("m1",)) as (i,):
            Degree[i] = 0
        with p.iterate("count", (J,), "R", ("j1",)) as (j,):
            row = edges.at("row", j, None)
            Degree[row] = Degree[row] + 1
        with p.iterate("scale", (M,), "S", ("m3",)) as (i,):
            Scale[i] = 1.0 / maximum(cast(accumulator, Degree[i]), 1.0)
    with p.iterate("edges", (J,), "R", ("j",)) as (j,):
        load = edges.loads(X, spec, j, accumulator)
        inner = write_inner(p, spec, load, accumulator)
        with p.iterate("add", (K,), "S", ("k",)) as (k,):
            at = *edges.at("row", j, None), k
            term = message_at(spec, load, inner, k, accumulator)
            if reduction.chooses:
                _choose(spec, best, kept, at, term, {"number": j, "column": edges.at("column", j, None)[0]})
            else:
                best[at] = reduction.combine(best[at], term)
    if rounded or spec.degrees:
        with p.iterate("finish", (M,), "S", ("m2",)) as (i,), p.iterate("finished", (K,), "S", ("k2",)) as (k,):
            value: Expr = best[i, k]
            if reduction.divides:
                value = value / maximum(cast(accumulator, given(Degree)[i]), 1.0)
            elif spec.empty:
                value = select(equal(given(Degree)[i], as_expr(0)), number(0.0, accumulator), value)
            C[i, k] = cast(spec.dtype, value)
    return p.finish()


def _choose(
    spec: AggregateSpec,
    best: BufferHandle,
    kept: dict[str, BufferHandle],
    at: tuple[Expr, ...],
    term: Expr,
    found: dict[str, Expr],
) -> None:
    """Take a message in where it is the better one (`aggregate` has the rules)."""
    accumulator, reduction = ACCUMULATOR[spec.dtype], spec.reduction
    if accumulator != spec.dtype:
        term = cast(accumulator, cast(spec.dtype, term))
    nan = differ(term, term)
    if not kept:
        value = select(reduction.beats(term, best[at]), term, best[at])
        infinity = number(float("inf"), accumulator)
        best[at] = select(nan, infinity - infinity, value) if spec.propagate else value
        return
    better = (reduction.beats if spec.first else reduction.matches)(term, best[at])
    better = either(better, nan) if spec.propagate else better
    for what, buffer in kept.items():
        if what == "unique":
            stays = select(reduction.beats(best[at], term), buffer[at], as_expr(SEVERAL))
            buffer[at] = select(reduction.beats(term, best[at]), found["column"], stays)
        else:
            buffer[at] = select(better, found[what], buffer[at])
    best[at] = select(better, term, best[at])


def listed_edge_map(spec: EdgeMapSpec) -> Program:
    """The program of an edge map: parameters (m, n, num_edges, Row, Col, X0, ..., O, Wrong)."""
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("listed_edge_map")
    edges = ListedEdges(p, spec.index_dtype)
    H = edges.features(spec.width, "H")
    X = [edges.buffer(f"X{which}", operand) for which, operand in enumerate(spec.operands)]
    O = p.buffer("O", (edges.J, H), spec.dtype)
    edges.check()

    def message(h: Expr, k: Expr) -> Expr:
        return message_at(spec, load, inner, flat_position(spec.dims, spec.reduced, h, k), accumulator)

    with p.iterate("edges", (edges.J,), "S", ("j",)) as (j,):
        load = edges.loads(X, spec, j, accumulator)
        inner = write_inner(p, spec, load, accumulator)
        if spec.terms == 1:
            with p.iterate("map", (H,), "S", ("h",)) as (h,):
                O[j, h] = cast(spec.dtype, message(h, as_expr(0)))
        else:
            K = p.dense_fixed("K", spec.terms)
            with p.iterate("heads", (H,), "S", ("h",)) as (h,):
                Sum = p.local("Sum", (), accumulator)
                with p.iterate("sum", (K,), "R", ("k",)) as (k,):
                    with p.init():
                        Sum[()] = 0.0
                    Sum[()] = Sum[()] + message(h, k)
                O[j, h] = cast(spec.dtype, Sum[()])
    return p.finish()
