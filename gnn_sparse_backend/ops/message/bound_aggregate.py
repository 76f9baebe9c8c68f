"""An aggregation that is part of another operator on a GPU: what its calls would look up, kept from one to the next."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.plans import plan_of
from ..core.ran import note
from .calls import one_launch, run_aggregate
from .message_op import MessageOp


class BoundAggregate:
    """``run_aggregate`` of one message on one graph, for operands of one shape and type: the kernel, and its arguments
    but for the operands.

    They are those of the plan that the graph has, and looked up again where that is another one.
    """

    def __init__(self, of: MessageOp, graph):
        self.of, self.graph, self.plan, self.launch = of, graph, None, None

    def __call__(self, *operands: Tensor) -> Tensor:
        """(rows, F), of the type of the first operand, which has F features. Operands: (n, features), compact."""
        graph, first = self.graph, operands[0]
        plan = plan_of(graph, self.of.kind, first.shape[1], first.dtype)
        if plan is not self.plan:
            self.launch, self.plan = one_launch(self.of, graph, operands), plan
        if self.launch is None:
            return run_aggregate(self.of, graph, list(operands))
        executable, kernel, structure = self.launch
        out = torch.empty((graph.shape[0], first.shape[1]), dtype=first.dtype, device=first.device)
        note(executable, "")
        kernel.entry(*structure, *operands, out)
        return out
