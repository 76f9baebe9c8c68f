"""Aggregations of one slice of the features after the other, each of which is packed before it is gathered from.

A wide row of the dense operand takes many cache lines, and all rows together more than any cache holds, so that a
gather goes to memory however often a row is gathered. A slice of all rows, packed side by side, is held by the last
level, and on few pages. Every feature is reduced over the same edges in the same order: results are the same bits.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ....compiler.cache.kernel import Kernel
from ....planner.cpu.slices import SlicePlan
from ....runtime.memory import empty
from ...core.executable import builds
from ...core.last_run import note
from ..programs.aggregate import AggregateSpec
from .aggregation import Aggregation
from .one_pass import OnePass


@builds(AggregateSpec, SlicePlan)
class Slices(Aggregation):
    """An aggregation by a plan with slices of features."""

    @classmethod
    def refuses(cls, spec: AggregateSpec, plan: SlicePlan) -> str | None:
        if plan.width >= spec.features or not any(x.at == "column" and x.width > 1 for x in spec.operands):
            return f"{spec.features} features have no slices of {plan.width} that would be gathered"
        if spec.inner:
            return "sums over features are over all of them"
        if any(1 < x.width < spec.features for x in spec.operands):
            return "weights of heads are loaded once for all features of an edge"
        if spec.dtype == "bfloat16" and spec.features % 2:
            return "slices of an odd number of bfloat16 features do not begin at words of two"
        return None

    def __init__(self, spec: AggregateSpec, plan: SlicePlan):
        super().__init__(spec, plan)
        self.cuts = [(at, min(at + plan.width, spec.features)) for at in range(0, spec.features, plan.width)]
        # operands at the edges are read once for each slice: in the order of the edges, which they are put in once
        self.sorted = spec.numbered and "number" not in (*spec.keep, *spec.places)
        if self.sorted:
            spec = replace(spec, numbered=False)
        self.by_width = {last - first: OnePass(spec.sliced(last - first), plan.otherwise) for first, last in self.cuts}

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for one in self.by_width.values() for kernel in one.kernels)

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        wide = [
            x if x is None or width == 1 else x.reshape(width) if place == "all" else x.reshape(x.shape[0], width)
            for x, place, width in zip(operands, self.places, self.widths)
        ]
        if self.sorted:
            for which, place in enumerate(self.places):
                if place == "edge":
                    wide[which] = wide[which].index_select(0, graph.edge_numbers)
        # one after the other in the same memory, which the caches hold from the slice before
        packed = {
            which: empty(wide[which], graph.shape[1] * self.plan.width)
            for which, place in enumerate(self.places)
            if place == "column" and self.widths[which] > 1
        }
        note(self, "")
        for first, last in self.cuts:
            given = [x if x is None or w == 1 else x[..., first:last] for x, w in zip(wide, self.widths)]
            for which, buffer in packed.items():
                x = given[which]
                given[which] = buffer[: x.numel()].view(x.shape).copy_(x)
            self.by_width[last - first].run(graph, given, [out[:, first:last] for out in results], None, True)
