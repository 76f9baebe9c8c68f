"""Choose the plan that a convolution runs by on a CPU: what was measured of a map, else that of the rules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from torch import Tensor

from ...frozen import dataclass
from ...planner.cpu.convolution import ORDERS
from ...planner.cpu.products import ConvPlan, conv_plans
from ...planner.database import database
from ...planner.decisions import Decision, listeners, measured_plan
from ...planner.plan import Plan
from ...planner.problem import Problem
from ...runtime.threads import planned_threads
from ...runtime.type_names import type_name
from ...structures.derived import fact
from ...structures.facts import content_hash
from ...structures.kernel_map import KernelMap, RelGraphOf
from ..relational.executables import run_product, run_sum
from . import executables_cpu

Call = Callable[[Tensor, Tensor], Tensor]
# Multiply-adds at a time, and how much longer sums take by the panels of RGMS.
_LANES, _PANELS = 8, 1.5


@dataclass(frozen=True)
class _Pass:
    """Products, or sums of outer products where ``sums``, of one shape and type. described: groups, channels of a group
    of x and of the result, type, threads.
    """

    sums: bool
    described: tuple

    def problem(self, kernel_map: KernelMap) -> Problem:
        """What the planner is told."""
        groups, wide_in, wide_out, dtype, threads = self.described
        what = f"conv_{'sum' if self.sums else 'product'} of {kernel_map.num_offsets} offsets"
        kind = f"{what}, {groups} x {wide_in} x {wide_out}"
        size = *kernel_map.shape, kernel_map.num_pairs
        return Problem(kind, *size, groups * wide_out, type_name(dtype), threads)

    def costs(self, kernel_map: KernelMap) -> dict[str, float]:
        """What each dataflow takes, in multiply-adds."""
        groups, wide_in, wide_out, *_ = self.described
        whole = float(kernel_map.num_pairs * groups * wide_in * wide_out)
        if self.sums:
            return {"sums": whole, "rgms": _PANELS * whole}
        if groups > 1 and wide_in == wide_out == 1:
            return {"depthwise": whole}
        return executables_cpu.predicted(kernel_map, *self.described[:-1])

    def predicted(self, kernel_map: KernelMap) -> Mapping[Plan, float]:
        """Seconds of each plan, the rules' own first."""
        costs = self.costs(kernel_map)
        each = database().units["vector"] / _LANES / self.described[-1]
        return {plan: costs[plan.dataflow] * each for plan in conv_plans(tuple(sorted(costs, key=costs.__getitem__)))}

    def make(self, kernel_map: KernelMap, plan: ConvPlan) -> Call:
        """What runs by a plan; it does not hold the map."""
        if plan.dataflow != "rgms":
            make = executables_cpu.sums if self.sums else executables_cpu.product
            if found := make(kernel_map, plan, *self.described):
                return found
        return sum_by_panels(kernel_map, self.described[0]) if self.sums else product_by_panels(kernel_map)

    def made(self, kernel_map: KernelMap) -> Call:
        """What runs by the plan that was measured, else by rules."""
        costs = self.costs(kernel_map)
        rule = ConvPlan(min(costs, key=costs.__getitem__))
        return self.make(kernel_map, measured_plan(self.problem(kernel_map), lambda: content_of(kernel_map), rule))


def product(kernel_map: KernelMap, order: str | None, *described) -> Call:
    """What runs products of one shape and type. order: one of ``planner.cpu.convolution.ORDERS``, which no plan
    decides then.
    """
    of = _Pass(False, described)
    if order is None:
        return of.made(kernel_map)
    if order not in (*ORDERS, "depthwise"):
        raise ValueError(f"order must be one of {ORDERS}, got {order!r}")
    return of.make(kernel_map, ConvPlan(order))


def sums(kernel_map: KernelMap, *described) -> Call:
    """What runs sums of outer products of one shape and type."""
    return _Pass(True, described).made(kernel_map)


def tell(kernel_map: KernelMap, summed: bool, described: tuple, a: Tensor, b: Tensor) -> None:
    """Tell whoever listens of a call that ran."""
    of, made = _Pass(summed, (*described, planned_threads())), dict[ConvPlan, Call]()

    def run(plan: ConvPlan) -> Tensor:
        if plan not in made:
            made[plan] = of.make(kernel_map, plan)
        return made[plan](a, b)

    def fingerprint() -> str:
        return content_of(kernel_map)

    predicted, problem = of.predicted(kernel_map), of.problem(kernel_map)
    plan = measured_plan(problem, fingerprint, next(iter(predicted)))
    what = "sum of the convolution" if summed else "convolution"
    assert listeners.told is not None
    listeners.told.append(Decision(what, plan, problem, fingerprint, lambda: predicted, run))


def product_by_panels(kernel_map: KernelMap) -> Call:
    """Products as those of relations, of which each offset is one."""
    rel = kernel_map.derived(RelGraphOf())
    return lambda x, w: run_product(rel, x, w, None, False, False)


def sum_by_panels(kernel_map: KernelMap, groups: int) -> Call:
    """Sums as those of relations."""
    rel = kernel_map.derived(RelGraphOf())
    return lambda x, g: run_sum(rel, x, g, groups, None, False, False).contiguous()


@fact
def content_of(kernel_map: KernelMap) -> str:
    """32 hex digits of the pairs."""
    whole = content_hash(kernel_map.indptr, kernel_map.inputs, kernel_map.outputs, kernel_map.shape)
    return hashlib.blake2b(f"kernel map {whole}".encode(), digest_size=16).hexdigest()
