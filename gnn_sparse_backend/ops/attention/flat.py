"""The softmax over a few listed edges (`ops.message.flat`)."""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING

from torch import Tensor

from ...deferred import later
from ...runtime.layout import kernel_ready
from ...runtime.type_names import type_name
from ..core.executable import OnList
from ..message.flat import Flat
from .operators import EDGE_SOFTMAX
from .programs.edge_softmax import EdgeSoftmaxSpec

if TYPE_CHECKING:
    from . import schedules_cpu
else:
    schedules_cpu = later(__name__, ".schedules_cpu")


class FlatSoftmax(Flat):
    """The softmax of scores (edges, ...) over the edges of each row, for scores of one kind."""

    operator, reads_result = EDGE_SOFTMAX, True

    def __init__(self, like: Tensor):
        self.width = prod(like.shape[1:])
        self.spec = EdgeSoftmaxSpec(self.width, type_name(like.dtype), "int64")
        self.kernel = OnList(schedules_cpu.listed_softmax_kernel(self.spec, False))

    @functools.cached_property
    def backward(self) -> OnList:
        """The gradient."""
        return OnList(schedules_cpu.listed_softmax_kernel(self.spec, True))

    def prepare_gradients(self):
        return self.backward

    def run(self, edges, operands):
        (x,), width, rows = operands, self.width, edges.shape[0]
        out = x.new_empty(x.shape)
        given = _rows(x, width), x.new_empty(rows, width), x.new_empty(rows, width)
        self.kernel.launch(edges, False, given, out if out.dim() == 2 else out.view(-1, width))
        return out, None

    def read_again(self, needed):
        return frozenset()

    def by_kernels(self, edges, saved, extra, shapes, needed, grad):
        width = self.width
        found = grad.new_empty(grad.shape)
        given = _rows(saved[0], width), _rows(grad, width), grad.new_empty(edges.shape[0], width)
        self.backward.launch(edges, False, given, found if found.dim() == 2 else found.view(-1, width))
        return [found]

    def by_operator(self, structure, saved, extra, shapes, needed, grad):
        return EDGE_SOFTMAX.gradients(structure, (), saved[:1], None, needed, grad)


def _rows(x: Tensor, width: int) -> Tensor:
    return kernel_ready(x).reshape(-1, width).contiguous()
