"""A sum over neighbours with a linear map of it, and a map of the own row, by chunks of rows.

    y = S x W^T + x V^T + b,    S = diag(left) A diag(right) + diag(own)

In the backward pass u = S^T dy is summed chunk by chunk, of which all gradients are products: that of x is u W + dy V,
and that of W is u^T x. So the sum of the forward pass is neither kept nor computed again, and beside x, y and their
gradients nothing is as large as they are. Where x wants no gradient and is narrower than y, S x is summed again
instead; but features in a file (`sampling.features`) are mapped before they are summed, for a sum reads them at random,
and are read in their order, the next chunk ahead.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ...structures.graph import Graph
from ..message.message_op import message_op
from .slices import Slice, mapped, read_ahead, slices_of, summed

_COPY = message_op("x0", ("column",), "sum")
_SCALED = message_op("mul(x1, x0)", ("column", "column"), "sum")


class Neighbours(NamedTuple):
    """The matrix S on a square graph. left, right, own: (rows, 1) each in the type of features; None: ones, of the last
    zeros.
    """

    graph: Graph
    left: Tensor | None = None
    right: Tensor | None = None
    own: Tensor | None = None

    def transpose(self) -> Neighbours:
        return Neighbours(self.graph.transpose(), self.right, self.left, self.own)

    def sums(self, rows: Slice, x: Tensor) -> Tensor:
        """The rows of S x that are those of a slice."""
        if self.right is None:
            out = summed(_COPY, rows.graph, (x,))
        else:
            out = summed(_SCALED, rows.graph, (x, self.right))
        if self.left is not None:
            out *= rows.of(self.left)
        if self.own is not None:
            out.addcmul_(rows.of(x), rows.of(self.own))
        return out


def mapped_sum(
    of: Neighbours,
    x: Tensor,
    weight: Tensor,
    root: Tensor | None = None,
    bias: Tensor | None = None,
    stored: torch.dtype | None = None,
) -> Tensor:
    """The y of this file, with first gradients.

    Args:
        of: S, on the CPU.
        x: (n, F_in), float32 or float64.
        weight, root: (F_out, F_in), W and V; without a root there is no map of the own row.
        bias: (F_out,) or None.
        stored: the type that x is rounded to, and kept in, where it has a gradient.
    """
    out: Tensor = _MappedSum.apply(of, stored, x, weight, root, bias)
    return out


class _MappedSum(Function):
    @staticmethod
    def forward(ctx, of: Neighbours, dtype: torch.dtype | None, x, weight, root, bias):
        stored = x if dtype is None or not ctx.needs_input_grad[2] else x.to(dtype)
        ctx.of, ctx.has_bias = of, bias is not None
        ctx.save_for_backward(stored, weight, root)
        if stored is not x:
            x = stored.to(x.dtype)
        wide_out, wide_in = weight.shape
        y = x.new_empty(x.shape[0], wide_out)
        chunks, file = _chunks(of, weight, x.dtype), mapped(x)
        first = x if wide_in <= wide_out and file is None else torch.empty_like(y)
        for rows in chunks if first is not x else ():
            read_ahead(file, rows)
            torch.mm(rows.of(x), weight.t(), out=rows.of(first))
            if root is not None and file is not None:
                torch.mm(rows.of(x), root.t(), out=rows.of(y))
        for rows in chunks:
            sums, out = of.sums(rows, first), rows.of(y)
            if root is not None and file is not None:
                out += sums
            elif first is x:
                torch.mm(sums, weight.t(), out=out)
            else:
                out.copy_(sums)
            if root is not None and file is None:
                out.addmm_(rows.of(x), root.t())
            if bias is not None:
                out += bias
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        of, (x, weight, root) = ctx.of, ctx.saved_tensors
        _, _, of_x, of_weight, of_root, of_bias = ctx.needs_input_grad
        grad = grad.contiguous()
        file = mapped(x)
        again = not of_x and weight.shape[1] <= weight.shape[0] and file is None
        to_x = grad.new_empty(x.shape) if of_x else None
        to_weight = torch.zeros_like(weight) if of_weight else None
        to_root = torch.zeros_like(root) if of_root else None
        side = of if again else of.transpose()
        for rows in _chunks(side, weight, grad.dtype) if of_x or of_weight or of_root else ():
            read_ahead(file, rows)
            own, back = rows.of(x).to(grad.dtype), rows.of(grad)
            if of_x or of_weight:
                sums = side.sums(rows, x if again else grad)
            if of_weight:
                to_weight.addmm_(*((back.t(), sums) if again else (sums.t(), own)))
            if of_root:
                to_root.addmm_(back.t(), own)
            if of_x:
                out = torch.mm(sums, weight, out=rows.of(to_x))
                if root is not None:
                    out.addmm_(back, root)
        return None, None, to_x, to_weight, to_root, grad.sum(0) if of_bias else None


def _chunks(of: Neighbours, weight: Tensor, dtype: torch.dtype) -> tuple[Slice, ...]:
    return slices_of(of.graph, max(weight.shape), dtype)
