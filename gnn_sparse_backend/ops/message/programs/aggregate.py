"""Aggregation: C[i] = reduce over the edges of row i of a message of the row, the column and the edge.

This one program is SpMM (the message is A[i, j] * B[j], or B[j] alone), every other generalised SpMM of graph learning
frameworks, its gradients, and segment reduction.
Rows come in groups (a ragged axis over a dense one), so that a parallel loop over groups of equal cost is balanced
whatever the degrees are. Results are accumulated in local buffers of at least float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import HALVES, Expr, as_expr, call, cast, differ, either, equal, maximum, number, select
from ....compiler.language.program import Program
from ....compiler.language.reduction import REDUCTIONS, Reduction
from ....compiler.language.types import ACCUMULATOR, FLOATS
from ....frozen import dataclass
from .inner import Inner, message_at, write_inner
from .message import Message, arg, operands_of
from .operands import Edges, Operand

SEVERAL = -2
"""Stands for the column where several messages were the result."""


@dataclass(frozen=True)
class AggregateSpec:
    """What is static in an aggregation.

    message: of ``operands``, by number. dims: feature shape of the message. dtype: of the result.
    index_dtype: of indptr, indices and edge numbers.
    numbered: edge arrays are in the order that E gives.
    reduce: the name of a `Reduction`.
    keep: with max and min, what else to store of the edge that was chosen: ``number``, ``column``.
        The last of equal messages in the order of the non-zeros is chosen, or the first. ``unique``, alone: the column
        if one message alone was the result, and `SEVERAL` if several were, or NaN.
    fill: what is stored of a row without a choice.
    propagate: with max and min, a NaN among the messages is the result; otherwise NaN is never chosen.
    empty: with max and min, the result of a row without edges is 0; otherwise it is the neutral element.
    first: of equal messages the first is chosen. The neutral element is then no choice.
    mapped: the rows of the structure are in an order of their own, and Row has the row of each.
    bf16x2: the result, and the operands in `packed`, are given as words of two neighbouring bfloat16 features each. A
        vector of words becomes two of float32 by a shift and a mask, which takes fewer instructions than widening each
        number by itself.
    strided: rows of the results may lie further apart than they are long, as slices of features do.
    inner: values that the message is made of, whose numbers follow those of the operands. Operands that they alone read
        have their features in one dimension.
    """

    message: Message
    operands: tuple[Operand, ...]
    dims: tuple[int, ...]
    dtype: str = "float32"
    index_dtype: str = "int32"
    numbered: bool = False
    reduce: str = "sum"
    keep: tuple[str, ...] = ()
    fill: int = 0
    propagate: bool = False
    empty: bool = False
    first: bool = False
    mapped: bool = False
    bf16x2: bool = False
    strided: bool = False
    inner: tuple[Inner, ...] = ()

    def __post_init__(self) -> None:
        if "unique" in self.keep and len(self.keep) > 1:
            raise StageIError(
                f"aggregate: of equal messages nobody is chosen, so that ``unique`` goes alone; got {self.keep}"
            )
        if self.bf16x2 and not self.fits_bf16x2:
            raise StageIError(
                f"aggregate: words of two bfloat16 features are for even rows of them, of sums, means, and maxima "
                f"whose edges nobody asks for, in one pass; this is {replace(self, bf16x2=False)}"
            )

    @property
    def packed(self) -> tuple[int, ...]:
        """Operands with all features of the message."""
        return tuple(
            which
            for which, operand in enumerate(self.operands)
            if operand.at != "number" and operand.width == self.features
        )

    @property
    def fits_bf16x2(self) -> bool:
        """Whether it can run on words of two features."""
        if self.inner or self.dtype != "bfloat16" or self.dims[-1] % 2 or self.keep or not self.packed:
            return False
        if any(operand.at == "number" for operand in self.operands):
            return False
        return all(
            operand.dtype == "bfloat16" and operand.at != "all" and not (operand.strided and operand.at != "edge")
            if which in self.packed
            else operand.dims[-1] == 1
            for which, operand in enumerate(self.operands)
        )

    @property
    def features(self) -> int:
        return prod(self.dims)

    @property
    def places(self) -> tuple[str, ...]:
        """Where the operands stand."""
        return tuple(operand.at for operand in self.operands)

    @property
    def staged(self) -> tuple[int, ...]:
        """Operands with fewer features than the message, but more than one, as the weights of heads.

        They are loaded into registers once for each edge: then a vector of features picks its weights by a shuffle
        and not by a gather.
        """
        read = operands_of(self.message)
        return tuple(
            which
            for which, operand in enumerate(self.operands)
            if 1 < operand.width < self.features and operand.dtype in FLOATS and which in read
        )

    @property
    def work(self) -> int:
        """Numbers that are computed for an edge, in the longest loop over them."""
        return max([self.features, *(one.width * one.terms for one in self.inner)])

    @property
    def reduction(self) -> Reduction:
        """What ``reduce`` names."""
        return REDUCTIONS[self.reduce]

    @property
    def degrees(self) -> bool:
        """Whether the kernel wants the number of edges of each row."""
        return self.reduction.divides or self.empty

    def sliced(self, features: int) -> AggregateSpec:
        """Return the spec for a slice of the features of all operands that vary along them: gathered ones are packed,
        and the others and the results lie within longer rows.
        """
        operands = tuple(
            replace(x, dims=(features if x.width > 1 else 1,), strided=x.strided if x.width == 1 else x.at != "column")
            for x in self.operands
        )
        return replace(self, operands=operands, dims=(features,), strided=True)

    def in_parts(self) -> tuple[AggregateSpec, AggregateSpec]:
        """This aggregation as two: over the edges of each part of a row, and over the results of the parts of each row.

        Results of parts are kept in the type of sums, and reduced like messages.
        """
        kept = self.dtype if self.reduction.chooses else ACCUMULATOR[self.dtype]
        first = replace(self, dtype=kept, reduce=self.reduction.of_parts, empty=False)
        wide, ties = (self.features,), (self.propagate, self.empty, self.first)
        of, types = (Operand("column", wide, kept),), (self.dtype, self.index_dtype)
        return first, AggregateSpec(arg(0), of, wide, *types, False, self.reduce, (), 0, *ties)


def aggregate(spec: AggregateSpec, stage: bool = True, grouped: bool = True) -> Program:
    """The program. stage: load the operands in `staged` once for each edge. grouped: rows come in groups.

    Parameters: (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], [D], [Row], X0, X1, ..., C,
    [Number], [Column]); X is the buffer of an operand. Without groups there are no num_groups and group_ptr.
    """
    accumulator = ACCUMULATOR[spec.dtype]
    halves = len(HALVES) if spec.bf16x2 else 1
    reduction = spec.reduction
    p = ProgramBuilder("aggregate")
    edges = Edges(p, spec.index_dtype, spec.numbered, mapped=spec.mapped)
    I, J = edges.I, edges.J
    K = edges.features(spec.features // halves, "K")
    if spec.degrees:
        D = p.buffer("D", edges.axes("row"), spec.index_dtype)
    if spec.mapped:
        edges.declare_rows()
    given = list(spec.operands)
    if spec.bf16x2:
        for which in spec.packed:
            given[which] = replace(given[which], dims=(spec.features // halves,), dtype="uint32")
    X = [edges.buffer(f"X{which}", operand) for which, operand in enumerate(given)]
    C = p.buffer("C", (*edges.axes("row"), K), "uint32" if spec.bf16x2 else spec.dtype, strided=spec.strided)
    copied = spec.message in [arg(which) for which, operand in enumerate(given) if operand.dtype == spec.dtype]
    kept = {
        what: p.buffer(what.capitalize(), (*edges.axes("row"), K), spec.index_dtype, strided=spec.strided)
        for what in spec.keep
    }

    def row(i: Expr) -> Expr:
        return edges.at("row", i, None)[0]

    def load(which: int, i: Expr, j: Expr, feature: Expr) -> Expr:
        return edges.load(X[which], given[which], i, j, feature, accumulator)

    def reset(k: Expr) -> None:
        for Total in totals:
            Total[k] = reduction.start(accumulator)
        for buffer in at.values():
            buffer[k] = as_expr(spec.fill)

    def add(i: Expr, j: Expr, k: Expr, staged: Mapping[int, BufferHandle], inner: Sequence[BufferHandle] = ()) -> None:
        """Reduce the message of an edge; ``staged`` holds the operands that were loaded beforehand, and ``inner`` the
        values that were computed.
        """
        for half, Total in enumerate(totals):
            reduce(i, j, k, half, Total, staged, inner)

    def reduce(
        i: Expr,
        j: Expr,
        k: Expr,
        half: int,
        Total: BufferHandle,
        staged: Mapping[int, BufferHandle],
        inner: Sequence[BufferHandle],
    ) -> None:
        def read(which: int, feature: Expr) -> Expr:
            if spec.bf16x2 and which in spec.packed:
                return call(HALVES[half], load(which, i, j, k))
            return staged[which][feature] if which in staged else load(which, i, j, feature)

        term = message_at(spec, read, inner, k * halves + half if spec.bf16x2 else k, accumulator)
        if not reduction.chooses:
            Total[k] = reduction.combine(Total[k], term)
            return
        # compared as it would be stored: frameworks store messages
        if not copied:
            term = cast(accumulator, cast(spec.dtype, term))
        if not at:
            Total[k] = _extreme(spec, Total[k], term)
            return
        if "unique" in at:
            # neither better nor worse is equal, or NaN
            stays = select(reduction.beats(Total[k], term), at["unique"][k], as_expr(SEVERAL))
            at["unique"][k] = select(reduction.beats(term, Total[k]), j, stays)
            Total[k] = _extreme(spec, Total[k], term)
            return
        better = _better(spec, Total[k], term)
        for what, buffer in at.items():
            buffer[k] = select(better, j if what == "column" else edges.E[i, j], buffer[k])
        Total[k] = select(better, term, Total[k])

    with p.iterate("rows", (I,), "S") as (i,):
        totals = [p.local(name, (K,), accumulator) for name in (("Low", "High") if spec.bf16x2 else ("Total",))]
        at = {what: p.local(f"At{what.capitalize()}", (K,), spec.index_dtype) for what in spec.keep}
        loaded = spec.staged if stage else ()
        if not (loaded or spec.inner):
            with p.iterate("edges", (J, K), "RS") as (j, k):
                with p.init():
                    reset(k)
                add(i, j, k, {})
        else:
            with p.iterate("reset", (K,), "S", ("r",)) as (r,):
                reset(r)
            with p.iterate("edges", (J,), "R") as (j,):
                staged = {}
                for which in loaded:
                    axis = edges.features(spec.operands[which].width)
                    staged[which] = p.local(f"S{which}", (axis,), accumulator)
                    with p.iterate(f"stage_{which}", (axis,), "S", (f"s{which}",)) as (feature,):
                        staged[which][feature] = load(which, i, j, feature)
                inner = write_inner(p, spec, lambda which, at: load(which, i, j, at), accumulator)
                with p.iterate("add", (K,), "S") as (k,):
                    add(i, j, k, staged, inner)
        with p.iterate("out", (K,), "S", ("f",)) as (f,):
            results: list[Expr] = [Total[f] for Total in totals]
            if reduction.divides:
                results = [total / maximum(cast(accumulator, D[row(i)]), 1.0) for total in results]
            elif spec.empty:
                results = [select(equal(D[row(i)], as_expr(0)), number(0, accumulator), total) for total in results]
            if spec.bf16x2:
                low, high = (call("bfloat16_bits", total) for total in results)
                C[row(i), f] = low + high * 65536
            else:
                C[row(i), f] = cast(spec.dtype, results[0])
            for what, buffer in kept.items():
                buffer[row(i), f] = at[what][f]
    return edges.grouped() if grouped else p.finish()


def _extreme(spec: AggregateSpec, best: Expr, term: Expr) -> Expr:
    """The better of the two alone, in fewer instructions than it takes to know which one it was: a processor's maximum,
    and a NaN of its own where ``term`` is one.
    """
    value = select(spec.reduction.beats(term, best), term, best)
    if not spec.propagate:
        return value
    infinity = number(float("inf"), best.dtype)
    return select(differ(term, term), infinity - infinity, value)


def _better(spec: AggregateSpec, best: Expr, term: Expr) -> Expr:
    """Whether ``term`` takes the place of ``best``."""
    # a comparison with NaN never holds
    better = (spec.reduction.beats if spec.first else spec.reduction.matches)(term, best)
    if not spec.propagate:
        return better
    return either(better, differ(term, term))
