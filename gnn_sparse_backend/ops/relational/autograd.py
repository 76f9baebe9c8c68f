"""Relational products as an autograd function: eager calls with ordinary tensors, which passed the checks of
``gsb.rgms``.

The same in ``torch.library`` (`rgms_library`) is for everything else, and costs several times as much to call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function

from ...structures.relational.graph import RelGraph
from . import gradients as derivatives
from .basis import run_basis_dot, run_basis_product, run_basis_sums
from .executables import run_dot, run_product, run_sum


@dataclass(frozen=True, eq=False)
class _Operator:
    """run(rel, operands..., mean, transposed, more...). gradients: as in `rgms_derivatives`."""

    run: Callable
    gradients: Callable


_PRODUCT = _Operator(run_product, derivatives.product_gradients)
_SUM = _Operator(
    lambda rel, x, g, a, mean, transposed, blocks: run_sum(rel, x, g, blocks, a, mean, transposed).contiguous(),
    derivatives.sum_gradients,
)
_DOT = _Operator(run_dot, derivatives.dot_gradients)
_BASIS_PRODUCT = _Operator(run_basis_product, derivatives.basis_product_gradients)
_BASIS_DOT = _Operator(run_basis_dot, derivatives.basis_dot_gradients)
_BASIS_SUMS = _Operator(run_basis_sums, derivatives.basis_sums_gradients)


class Recorded:
    """The operators on the edges of a graph, recorded where a gradient may be asked for."""

    __slots__ = ("rel",)

    def __init__(self, rel: RelGraph):
        self.rel = rel

    def product(self, x: Tensor, w: Tensor, a: Tensor | None, mean: bool, transposed: bool) -> Tensor:
        return self._run(_PRODUCT, (mean, transposed), x, w, a)

    def sum(self, x: Tensor, g: Tensor, a: Tensor | None, blocks: int, mean: bool, transposed: bool) -> Tensor:
        return self._run(_SUM, (mean, transposed, blocks), x, g, a)

    def dot(self, x: Tensor, w: Tensor, g: Tensor, mean: bool, transposed: bool) -> Tensor:
        return self._run(_DOT, (mean, transposed), x, w, g)

    def basis_product(
        self, x: Tensor, comp: Tensor, bases: Tensor, a: Tensor | None, mean: bool, transposed: bool
    ) -> Tensor:
        return self._run(_BASIS_PRODUCT, (mean, transposed), x, comp, bases, a)

    def basis_dot(self, x: Tensor, comp: Tensor, bases: Tensor, g: Tensor, mean: bool, transposed: bool) -> Tensor:
        return self._run(_BASIS_DOT, (mean, transposed), x, comp, bases, g)

    def basis_sums(
        self, x: Tensor, comp: Tensor, bases: Tensor, a: Tensor | None, g: Tensor, mean: bool, transposed: bool
    ) -> tuple[Tensor, Tensor]:
        return self._run(_BASIS_SUMS, (mean, transposed), x, comp, bases, a, g)

    def _run(self, operator: _Operator, marks: tuple, *operands: Tensor | None):
        if torch.is_grad_enabled() and any(y is not None and y.requires_grad for y in operands):
            return _Relational.apply(operator, self.rel, marks, *operands)
        return operator.run(self.rel, *operands, *marks)


class _Relational(Function):
    @staticmethod
    def forward(ctx, operator, rel, marks, *operands):
        ctx.operator, ctx.rel, ctx.marks = operator, rel, marks[:2]
        ctx.save_for_backward(*operands)
        return operator.run(rel, *operands, *marks)

    @staticmethod
    def backward(ctx, *cotangents):
        found = ctx.operator.gradients(
            Recorded(ctx.rel), ctx.saved_tensors, ctx.needs_input_grad[3:], *ctx.marks, *cotangents
        )
        return None, None, None, *found


__all__ = ["Recorded"]
