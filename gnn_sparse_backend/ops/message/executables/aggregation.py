"""What all executables of aggregations share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from ....compiler.cache.kernel import Kernel
from ....compiler.language.types import ACCUMULATOR
from ....planner.plan import Plan
from ....planner.problem import Problem
from ...core.executable import executable_of
from ..programs.aggregate import AggregateSpec
from ..programs.edge_map import EdgeMapSpec


def final_plan(plan: Plan, spec: AggregateSpec | EdgeMapSpec) -> Plan:
    """The plan, or what is left of it without what a spec cannot run."""
    executable = executable_of(spec, plan)
    found: Plan = final_plan(plan.otherwise, spec) if executable is None else executable.final(spec, plan)
    return found


def refuses_parts(spec: AggregateSpec, plan: Plan) -> str | None:
    """Why parts of rows cannot be reduced by themselves, or None where they can."""
    if spec.keep:
        return "the edges that a maximum chose are found in whole rows"
    if "stored" in str(spec.message) and ACCUMULATOR[spec.dtype] != spec.dtype:
        return f"parts of rows are not stored in {spec.dtype}, which this message is rounded to"
    return None


def refuses_sums(spec: AggregateSpec, plan: Plan) -> str | None:
    """Why parts of rows cannot be added up, or None where they can."""
    if spec.inner:
        return "buckets and segments have no values of their own for an edge"
    return refuses_parts(spec, plan) or (None if spec.reduction.adds else f"a {spec.reduce} is no sum of parts of rows")


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

    def __init__(self, spec: AggregateSpec, plan: Any):
        self.spec, self.plan = spec, plan
        self.places = tuple(operand.at for operand in spec.operands)
        self.widths = [operand.width for operand in spec.operands]
        self._kernels: dict = {}

    @classmethod
    def refuses(cls, spec: AggregateSpec, plan: Any) -> str | None:
        """Why an aggregation cannot run by a plan, or None where it can."""
        return None

    @classmethod
    def final(cls, spec: AggregateSpec, plan: Any) -> Plan:
        """The plan, or what runs in its place where the spec refuses it."""
        return plan if cls.refuses(spec, plan) is None else final_plan(plan.otherwise, spec)

    @classmethod
    def possible(cls, spec: AggregateSpec, plan: Plan, graph) -> Mapping[str, str]:
        """The variants that a call on a graph may take, and when."""
        return cls.variants

    @classmethod
    def offered(cls, spec: AggregateSpec, graph, problem: Problem) -> Mapping[Plan, float]:
        """Plans that a search tries on a graph, with predicted seconds, of those that the problem does not tell."""
        return {}

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
