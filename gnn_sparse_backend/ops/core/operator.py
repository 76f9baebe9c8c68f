"""Operators: everything that is true of one is said once (`Declaration`), and what PyTorch wants of it is derived from
that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from ...compiler.cache.background import BACKGROUND, PendingKernel, waits
from ...compiler.packs.errors import NoKernelError
from ...frozen import dataclass
from .batched import for_each, in_batch
from .last_run import note_operator
from .library import Attributes, Declaration, Operands, call_library, call_transformed, without_kernel
from .traced import Traced
from .transforms import as_recorded, transformed, unwatched

_in_backward, _transforms = torch._C._current_graph_task_id, torch._C._are_functorch_transforms_active


@dataclass(frozen=True, eq=False)
class Operator(Declaration):
    """One operator on a structure, some tensors and some attributes, which are no tensors that want gradients.

    Calling it runs it, and records it where a gradient may be asked for: with a structure as an autograd function, with
    what stands for one where a program is traced (`Traced`) as an operator of ``torch.library``, and where a function
    is transformed as one that knows the transforms (`Transformed`). All are derived from the declaration, and have one
    derivative. A second derivative is the first of another operator. One that has a schema is in ``torch.ops.gsb``
    (`library.NAMESPACE`). What ``precompile`` and ``explain`` know it by is said in `prepared`, and what computes it in
    a backward pass that has no kernel for it in `ops.eager`.
    """

    def __call__(self, structure: Any, operands: Operands, attributes: Attributes = ()) -> Any:
        if isinstance(structure, Traced):
            return call_library(self, structure, operands, attributes)
        if forward_ad._current_level >= 0 or _transforms():  # `transformed`, without the call
            return call_transformed(self, structure, operands, attributes)
        if _in_backward() >= 0 and in_batch(operands):  # who has such tensors has them in a backward pass
            return for_each(lambda *of_one: self(structure, of_one, attributes), operands)
        note_operator(self.name)
        if BACKGROUND.busy and not waits():
            BACKGROUND.check(_kind_of(self, operands, attributes))
        with unwatched():
            try:
                if torch.is_grad_enabled():
                    for x in operands:
                        if x is not None and x.requires_grad:
                            return Recorded.apply(self, structure, attributes, *operands)
                return self.run(structure, operands, attributes)
            except PendingKernel as pending:
                if pending.error is None:
                    _rehearse(self, structure, operands, attributes)
                pending.make = None
                raise
            except NoKernelError as error:
                if (instead := without_kernel(self)) is None:
                    raise
                return instead(str(error), structure, operands, attributes)


def _kind_of(operator: Operator, operands: Operands, attributes: Attributes) -> Hashable:
    """What calls have in common that run the same kernels, on structures that have the same plans."""
    recorded = torch.is_grad_enabled()
    kinds = [None if x is None else (x.dtype, x.shape[1:], recorded and x.requires_grad) for x in operands]
    return operator.name, repr(operator.encode(attributes, False)), tuple(kinds), torch.get_num_threads()


def _rehearse(operator: Operator, structure: Any, operands: Operands, attributes: Attributes) -> None:
    """Have a call like this, and its gradients, made in the background on zeros: then no call waits for a kernel.

    Operands are described, not held. What numbers something is zero, which is there.
    """
    recorded = torch.is_grad_enabled()
    wanted = [
        None if x is None else (x.shape, x.stride(), x.dtype, x.device, recorded and x.requires_grad) for x in operands
    ]

    def call() -> None:
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(recorded),
            torch.autograd.set_multithreading_enabled(False),
        ):
            given: list[Tensor | None] = []
            for each in wanted:
                if each is not None:
                    shape, strides, dtype, device, needed = each
                    x = torch.empty_strided(shape, strides, dtype=dtype, device=device)
                    given.append(x.zero_().requires_grad_(needed))
                else:
                    given.append(None)
            found = operator(structure, given, attributes)
            results = [x for x in ((found,) if isinstance(found, Tensor) else found) if x.requires_grad]
            if results:
                needing = [x for x in given if x is not None and x.requires_grad]
                torch.autograd.grad(results, needing, [torch.zeros_like(x) for x in results], allow_unused=True)

    BACKGROUND.start(_kind_of(operator, operands, attributes), call)


def gradients_of(by: dict[str, Callable], operands: str, result: str, known: Callable[..., dict] | None = None):
    """Make the gradients of a multilinear form differentiated by ``result``, whose place the cotangent takes.

    by: the form differentiated by each operand, from the structure and all operands by name. operands: one letter for
    each that the operator has. known: what else ``by`` is given by name, from the attributes and what was remembered.
    """

    def gradients(structure, attributes, saved, memo, needed, cotangent: torch.Tensor) -> list[torch.Tensor | None]:
        values = dict(zip(operands, saved)) | {result: cotangent}
        if known is not None:
            values |= known(attributes, memo)
        return [by[name](structure, **values) if wanted else None for name, wanted in zip(operands, needed)]

    return gradients


class Recorded(Function):
    """Every operator as an autograd function: eager calls with ordinary tensors, which passed their checks."""

    @staticmethod
    def forward(ctx, operator: Operator, structure, attributes, *operands):
        ctx.operator, ctx.structure, ctx.attributes = operator, structure, attributes
        if operator.record is not None:
            results, saved, ctx.memo = operator.record(structure, operands, attributes, ctx.needs_input_grad[3:])
        else:
            results = (operator.library or operator.run)(structure, operands, attributes)
            saved, ctx.memo = operator.saved(attributes, operands, results)
            results = results if operator.library is None else results[0]
        ctx.save_for_backward(*saved)
        return results

    @staticmethod
    def backward(ctx, *cotangents):
        saved = ctx.saved_tensors  # once: a checkpointed region unpacks each tensor a single time
        operator, structure = ctx.operator, ctx.structure
        if transformed():
            if operator.operands is not None:
                structure = operator.structure.traced(structure)
            saved = as_recorded(saved)

        def gradients(*cotangents):
            return operator.gradients(structure, ctx.attributes, saved, ctx.memo, ctx.needs_input_grad[3:], *cotangents)

        found = for_each(gradients, cotangents) if in_batch(cotangents) else gradients(*cotangents)
        return None, None, None, *found


def recorded(operator: Operator, structure: Any, operands: Operands, attributes: Attributes = ()) -> Any:
    """Record a call for autograd, and do not note it: that of a step which is no operator to users."""
    return Recorded.apply(operator, structure, attributes, *operands)


recorded_eagerly = super(Function, Recorded).apply
"""`Recorded.apply` without the handling of transforms: for callers that have none."""
