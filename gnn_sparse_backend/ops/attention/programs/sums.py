"""Several sums over the edges of each row in one pass: O0[i], O1[i], ... = sums of messages that share operands.

Gradients of one operator are such sums. Apart they would each gather the operands that they share, and look every edge
up again.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, cast
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from ...message.programs.message import Message, lower
from ...message.programs.operands import Edges, Operand, feature_index


@dataclass(frozen=True)
class Output:
    """One sum.

    message: its operand n is operand ``sources[n]`` of the program, with extents ``shapes[n]`` among ``dims``, the
    feature shape of the message. dtype: of the result.
    """

    message: Message
    sources: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    dims: tuple[int, ...]
    dtype: str

    @property
    def features(self) -> int:
        return prod(self.dims)

    @property
    def run(self) -> int:
        """Neighbouring features along which every operand that has fewer of them than the sum stays the same."""
        narrow = [shape for shape in self.shapes if 1 < prod(shape) < self.features]
        run = 1
        for extents in zip(reversed(self.dims), *(reversed(shape) for shape in narrow)):
            if any(own > 1 for own in extents[1:]):
                break
            run *= extents[0]
        return run


@dataclass(frozen=True)
class SumsSpec:
    """What is static in several sums. operands: dims are their widths alone. index_dtype, numbered: as in an
    aggregation.
    """

    operands: tuple[Operand, ...]
    outputs: tuple[Output, ...]
    index_dtype: str = "int32"
    numbered: bool = False


def sums(spec: SumsSpec, stage: bool = True) -> Program:
    """The program. stage: load operands with fewer features than a sum once for each edge.

    Parameters: (num_groups, m, n, nnz, [num_edges], group_ptr, indptr, indices, [E], X0, X1, ..., O0, O1, ...).
    """
    p = ProgramBuilder("sums")
    edges = Edges(p, spec.index_dtype, spec.numbered)
    X = [edges.buffer(f"X{which}", operand) for which, operand in enumerate(spec.operands)]
    accumulator = ACCUMULATOR[spec.outputs[0].dtype]
    totals = Totals(p, edges, spec.outputs, accumulator)
    with p.iterate("rows", (edges.I,), "S") as (i,):
        totals.start()
        with p.iterate("edges", (edges.J,), "R") as (j,):
            staged = {}
            for which in _staged(spec) if stage else ():
                # loaded once for each edge: a vector of features then picks its values by a shuffle
                axis = edges.features(spec.operands[which].width)
                staged[which] = p.local(f"S{which}", (axis,), accumulator)
                with p.iterate(f"stage_{which}", (axis,), "S", (f"s{which}",)) as (feature,):
                    staged[which][feature] = edges.load(X[which], spec.operands[which], i, j, feature, accumulator)

            def load(which: int, feature: Expr) -> Expr:
                if which in staged:
                    return staged[which][feature]
                return edges.load(X[which], spec.operands[which], i, j, feature, accumulator)

            totals.add(load)
        totals.store(i)
    return edges.grouped()


def _staged(spec: SumsSpec) -> list[int]:
    """Operands that some sum reads for fewer features than it has."""
    return [
        which
        for which, operand in enumerate(spec.operands)
        if operand.at != "all"
        and any(which in output.sources and operand.width < output.features for output in spec.outputs)
    ]


class Totals:
    """The accumulators of several sums, while a program is written. Results are parameters declared here."""

    def __init__(self, p: ProgramBuilder, edges: Edges, outputs: tuple[Output, ...], accumulator: str) -> None:
        self.p, self.outputs, self.accumulator = p, outputs, accumulator
        self.axes = [p.dense_fixed(f"O{n}_features", output.features) for n, output in enumerate(outputs)]
        self.results = [
            p.buffer(f"O{n}", (edges.I, axis), output.dtype) for n, (axis, output) in enumerate(zip(self.axes, outputs))
        ]
        self.totals: list[BufferHandle] = []

    def start(self) -> None:
        """Write the beginning of a row."""
        self.totals = [self.p.local(f"Total{n}", (axis,), self.accumulator) for n, axis in enumerate(self.axes)]
        for n, (axis, total) in enumerate(zip(self.axes, self.totals)):
            with self.p.iterate(f"start_{n}", (axis,), "S", (f"start_k{n}",)) as (k,):
                total[k] = 0.0

    def add(self, load: Callable[[int, Expr], Expr]) -> None:
        """Write the visit of an edge. load(source, feature): a feature of an operand, in the type to compute in."""
        for n, (axis, total, output) in enumerate(zip(self.axes, self.totals, self.outputs)):
            with self.p.iterate(f"add_{n}", (axis,), "S", (f"add_k{n}",)) as (k,):
                operands = [
                    load(source, feature_index(k, output.dims, shape))
                    for source, shape in zip(output.sources, output.shapes)
                ]
                total[k] = total[k] + lower(output.message, operands, output.dtype, self.accumulator)

    def store(self, i: Expr) -> None:
        """Write the end of a row."""
        for n, (axis, total, result) in enumerate(zip(self.axes, self.totals, self.results)):
            with self.p.iterate(f"store_{n}", (axis,), "S", (f"store_k{n}",)) as (k,):
                result[i, k] = cast(self.outputs[n].dtype, total[k])
