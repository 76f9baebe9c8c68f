"""What all executables of aggregations share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from ....compiler.cache.kernel import Kernel
from ....planner.plan import Plan
from ..programs.aggregate import AggregateSpec


def at_parts(places, operands, row_of_part: Tensor) -> list:
    """The operands of parts of rows: those at rows are copied for each of a row's parts."""
    return [x.index_select(0, row_of_part) if place == "row" else x for x, place in zip(operands, places)]


class Aggregation:
    """An aggregation of one shape and type by a plan (`ops.core.executable.Executable`).

    variants: the ways that it can run which a call alone decides between, each with the words for when it is taken;
        empty where there is one way.
    places, widths: of the operands. teams: whether teams of lanes read them. kernels: those made so far, in the order
        in which they were first wanted.
    """

    variants: ClassVar[Mapping[str, str]] = {}
    teams: ClassVar[bool] = False

    def __init__(self, spec: AggregateSpec, plan: Plan):
        self.spec, self.plan = spec, plan
        self.places = tuple(operand.at for operand in spec.operands)
        self.widths = [operand.width for operand in spec.operands]
        self._kernels: dict = {}

    @classmethod
    def possible(cls, spec: AggregateSpec, plan: Plan, graph) -> Mapping[str, str]:
        """The variants that a call on a graph may take, and when."""
        return cls.variants

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(self._kernels.values())

    def kernel(self, key: Hashable, make: Callable[[], Kernel]) -> Kernel:
        """Return the kernel kept by ``key``, made when it is first wanted."""
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = make()
        return kernel

    def numbers(self, graph) -> Tensor | None:
        """The number of the edge at each position, where the kernel has to know it."""
        return graph.edge_numbers if self.spec.numbered else None

    def degrees(self, graph) -> tuple[Tensor, ...]:
        """What a mean divides by, and who has no edges."""
        return (graph.in_degrees,) if self.spec.degrees else ()

    def launch(self, structure, operands: Sequence[Tensor | None]) -> tuple[Kernel, list, str] | None:
        """(kernel, its arguments before the operands, variant) of all calls on a structure with operands like these;
        None where a call takes several launches, or may be of another variant than the next.
        """
        return None

    def before_operands(self, arguments: list) -> list:
        """The part before the operands of a kernel's arguments, which lack its results."""
        return arguments[: len(arguments) - len(self.places) + self.places.count("number")]
