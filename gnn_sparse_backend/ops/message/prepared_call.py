"""An aggregation like one before: what its calls would look up, kept from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...planner.plan import Plan
from ...runtime.memory import empty
from ..core.arguments import operand_arguments
from ..core.executable import Executable, settle_list
from ..core.last_run import note
from ..core.plans import plan_key
from .calls import Call, aggregation_of, flat, run_aggregate, run_call
from .message_op import MessageOp
from .thin import gathered, is_thin


class _Bound(NamedTuple):
    """A kernel with all of its arguments but operands and results, while a graph has this plan under this key."""

    threads: int
    key: tuple
    plan: Plan
    executable: Executable
    variant: str
    entry: Any
    arguments: Sequence[Any]


class PreparedAggregate:
    """``run_aggregate`` of one message on one structure, for operands of one shape, type and layout.

    It does not hold the structure, which may keep it. What it has found is looked up again where the structure has
    another plan.

    keep, fill: as in ``run_aggregate``. recorded: what its operator knows of calls that are recorded.
    """

    __slots__ = ("_bound", "_listed", "call", "fill", "keep", "of", "recorded")

    def __init__(self, of: MessageOp, keep: tuple[str, ...] = (), fill: int = 0):
        self.of, self.keep, self.fill = of, keep, fill
        self.call: Call | None = None
        self.recorded: Any = None
        self._bound: _Bound | None = None
        self._listed = False

    def __call__(self, graph, operands: Sequence[Tensor | None]):
        if is_thin(graph) and not self.keep and gathered(graph, self.of.places, operands) is not None:
            return run_aggregate(self.of, graph, operands, self.keep, self.fill)
        if graph.listed is not None:
            settle_list(graph, operands)
        listed = graph.listed is not None
        bound, call = self._bound, self.call
        # the first call, which may be the only one: a batch has a graph of its own; or the first one over rows
        if call is None or self._listed is not listed:
            call = self.call = aggregation_of(self.of, graph, operands, self.keep, self.fill)
            self._listed = listed
            return run_call(call, graph, operands)
        if listed:
            return run_call(call, graph, operands)
        if bound is None or bound[0] != torch.get_num_threads() or graph.plans.get(bound[1]) is not bound[2]:
            bound = self._bound = _bind(call, graph, operands)
            if bound is None:
                return run_call(call, graph, operands)
        _, _, _, executable, variant, entry, arguments = bound
        rows, dims = graph.shape[0], call.dims
        given = operand_arguments(executable.places, executable.widths, operands, executable.teams)
        out = empty(operands[0], rows, *dims)
        note(executable, variant)
        if not self.keep:
            entry(*arguments, *given, flat(out, rows, call.features))
            return out
        results = [out, *(empty(graph.some_index, rows, *dims) for _ in self.keep)]
        entry(*arguments, *given, *(flat(x, rows, call.features) for x in results))
        return results


def _bind(call: Call, graph, operands: Sequence[Tensor | None]) -> _Bound | None:
    """None where a call is more than one launch, may choose another variant than the last, or has nothing to do."""
    if graph.num_edges == 0 or call.features == 0:
        return None
    key = plan_key(call.of.kind, call.work, operands[0].dtype, call.in_order)
    plan = graph.plans.get(key)
    if plan is None:
        return None
    executable = call.executable(plan)
    found = executable.launch(graph, operands)
    if found is None:
        return None
    kernel, arguments, variant = found
    return _Bound(torch.get_num_threads(), key, plan, executable, variant, kernel.entry, arguments)
