"""Aggregations and edge maps on graphs that nobody has converted: by kernels that read the edges as they are listed.

The index is checked in there. `OutOfRange` says that an edge names a node that is not there; what such a call wrote is
nothing that anybody sees.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ....compiler.codegen import host_target
from ....compiler.compile import compile_program
from ....compiler.language.types import ACCUMULATOR
from ....compiler.schedules.cpu import cpu_schedule
from ....runtime.memory import empty
from ....runtime.type_names import DTYPES
from ...core.arguments import operand_arguments
from ...core.executable import OnList
from ..programs.aggregate import AggregateSpec
from ..programs.edge_map import EdgeMapSpec
from ..programs.listed import listed_aggregate, listed_edge_map


class MessagesOnList(OnList):
    """An aggregation or an edge map over listed edges. sums: the type that it adds in. wide: the same, where the result
    has another.
    """

    __slots__ = ("degrees", "places", "strided", "sums", "wide", "widths")

    def __init__(self, spec: AggregateSpec | EdgeMapSpec):
        aggregates = isinstance(spec, AggregateSpec)
        program = listed_aggregate(spec) if aggregates else listed_edge_map(spec)
        super().__init__(compile_program(program, cpu_schedule(parallel=False), host_target()))
        self.places = tuple(operand.at for operand in spec.operands)
        self.widths = [operand.width for operand in spec.operands]
        self.strided = tuple(operand.strided for operand in spec.operands if operand.at != "number")
        accumulator = ACCUMULATOR[spec.dtype]
        self.sums = DTYPES[accumulator]
        self.wide = self.sums if aggregates and accumulator != spec.dtype else None
        self.degrees = aggregates and spec.degrees

    def given(self, operands: Sequence[Tensor | None]) -> list[Tensor]:
        """The operands as the kernel takes them."""
        given = operand_arguments(self.places, self.widths, operands, False)
        if False in self.strided:  # it was made for operands without gaps
            given = [x if strided else x.contiguous() for x, strided in zip(given, self.strided)]
        return given

    def __call__(self, graph, operands: Sequence[Tensor | None], results: Sequence[Tensor]) -> None:
        given = self.given(operands)
        if self.degrees:
            given.append(graph.listed.row.new_empty(graph.shape[0]))
            given.append(empty(results[0], graph.shape[0], dtype=self.sums))
        if self.wide is not None:
            given.append(empty(results[0], *results[0].shape, dtype=self.wide))
        super().__call__(graph, given, results)
