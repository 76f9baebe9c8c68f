"""A kernel run on its operands, and recorded where a gradient may be asked for."""

from __future__ import annotations

from collections.abc import Mapping

from .expressions.kernel import TensorKernel
from .storage.stored import Stored
from .storage.values import is_recorded


def run(kernel: TensorKernel, operands: Mapping[str, Stored]) -> Stored:
    """The result of a kernel, differentiable in the values of the operands that ask for it."""
    if not any(is_recorded(each.values) for each in operands.values()):
        return kernel.run(operands)
    from .gradients import run_recorded

    return run_recorded(kernel, operands)
