"""Maxima and minima over a few listed edges whose gradient goes to the one that was chosen, as DGL has it (`flat`)."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from ..calls import flat, spec_of_aggregate
from ..executables.listed import MessagesOnList
from ..message_op import MessageOp
from ..operators import AGGREGATE
from .operators import Flat


class FlatExtreme(Flat):
    """The maximum or minimum of what stands at columns, or at edges. What comes back to a number that was taken from
    nobody goes to the first of them.

    of: a copy, with ties ``first`` or ``last``.
    """

    operator = AGGREGATE

    def __init__(self, of: MessageOp, like: Tensor):
        self.kept = "column" if of.places == ("column",) else "number"
        self.features = prod(like.shape[1:])
        self.kernel = MessagesOnList(spec_of_aggregate(of, [like], "int64", (self.kept,)))

    def prepare_gradients(self):
        """Nothing: they are PyTorch's."""

    def run(self, edges, operands):
        (x,), rows = operands, edges.shape[0]
        out = x.new_empty(rows, *x.shape[1:])
        chosen = edges.row.new_empty(rows, self.features)
        self.kernel.launch(edges, False, self.kernel.given(operands), flat(out, rows, self.features), chosen)
        return out, chosen.view(out.shape)

    def read_again(self, needed):
        return frozenset()

    def by_kernels(self, edges, saved, extra, shapes, needed, grad):
        return [grad.new_zeros(shapes[0]).scatter_add_(0, extra, grad)]

    def by_operator(self, structure, saved, extra, shapes, needed, grad):
        return [torch.scatter_add(grad.new_zeros(shapes[0]), 0, extra, grad)]
