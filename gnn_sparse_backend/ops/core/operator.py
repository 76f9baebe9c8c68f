"""Operators: everything that is true of one is said once, and what PyTorch wants of it is derived from that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from .batched import for_each, in_batch
from .library import Attributes, Operands, call_library, call_transformed, operands_alone
from .ran import note_operator
from .traced import NO_STRUCTURE, StructureKind, Traced
from .transforms import as_recorded, transformed, unwatched

_in_backward, _transforms = torch._C._current_graph_task_id, torch._C._are_functorch_transforms_active


def _as_they_are(attributes: Attributes, transposed: bool) -> Attributes:
    return attributes


def _as_they_came(*values: Any) -> tuple[Attributes, bool]:
    return values, False


def _unchecked(structure: Any, operands: Operands, attributes: Attributes) -> Operands:
    return operands


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator on a structure, some tensors and some attributes, which are no tensors that want gradients.

    Calling it runs it, and records it where a gradient may be asked for: with a structure as an autograd function, with
    what stands for one where a program is traced (`Traced`) as an operator of ``torch.library``, and where a function
    is transformed as one that knows the transforms (`Transformed`). All are derived from what stands here, and have one
    derivative. A second derivative is the first of another operator. What ``precompile``
    and ``explain`` know it by is said in `prepared`.

    Attributes:
        name: in ``torch.ops.gsb``.
        structure: what it runs on, and how that enters ``torch.library``.
        run: (structure, operands, attributes) to the result or results, without autograd.
        gradients: (structure, attributes, saved, memo, needed, cotangents...) to the gradient of each operand, None for
            those that are not ``needed``: calls of operators on the structure or its transpose. None: has none.
        record: (structure, operands, attributes, needed) to (result or results, tensors to save, memo), where ``run``
            with all operands saved is not the way to record it.
        operands, attributes, results: the schema of ``torch.library``, in its language. "" for attributes: none.
            ``operands`` of None: not in ``torch.library``.
        encode, decode: attributes, and whether the structure is the transpose, to the values of the schema, and back.
        like: (arguments of the structure, operands, attributes, transposed) to empty results, with fake operands too.
        check: (structure, operands, attributes) to the operands as plain tensors, or an error that quotes them.
        library: as ``run``, for the results of the schema where these are more.
        saved: (attributes, operands, results of the schema) to (tensors to save, memo), as ``record`` has them.
        given: (attributes, tensors of the schema) to the operands, where some of these are no tensors, and ``sent`` the
            reverse.
    """

    name: str
    run: Callable[[Any, Operands, Attributes], Any]
    gradients: Callable[..., Sequence[Tensor | None]] | None = None
    record: Callable[..., tuple[Any, Operands, Any]] | None = None
    structure: StructureKind = NO_STRUCTURE
    operands: str | None = None
    attributes: str = ""
    results: str = "Tensor"
    encode: Callable[[Attributes, bool], Attributes] = _as_they_are
    decode: Callable[..., tuple[Attributes, bool]] = _as_they_came
    like: Callable[..., Any] | None = None
    check: Callable[[Any, Operands, Attributes], Operands] = _unchecked
    library: Callable[[Any, Operands, Attributes], Any] | None = None
    saved: Callable[[Attributes, Operands, Any], tuple[Operands, Any]] = operands_alone
    given: Callable[[Attributes, Operands], Operands] | None = None
    sent: Callable[[Attributes, Operands], Operands] | None = None

    def __call__(self, structure: Any, operands: Operands, attributes: Attributes = ()) -> Any:
        if isinstance(structure, Traced):
            return call_library(self, structure, operands, attributes)
        if forward_ad._current_level >= 0 or _transforms():  # `transformed`, without the call
            return call_transformed(self, structure, operands, attributes)
        if _in_backward() >= 0 and in_batch(operands):  # who has such tensors has them in a backward pass
            return for_each(lambda *of_one: self(structure, of_one, attributes), operands)
        note_operator(self.name)
        with unwatched():
            if torch.is_grad_enabled():
                for x in operands:
                    if x is not None and x.requires_grad:
                        return Recorded.apply(self, structure, attributes, *operands)
            return self.run(structure, operands, attributes)


class Recorded(Function):
    """Every operator as an autograd function: eager calls with ordinary tensors, which passed their checks."""

    @staticmethod
    def forward(ctx, operator: Operator, structure, attributes, *operands):
        ctx.operator, ctx.structure, ctx.attributes = operator, structure, attributes
        if operator.record is None:
            results, saved, ctx.memo = operator.run(structure, operands, attributes), operands, None
        else:
            results, saved, ctx.memo = operator.record(structure, operands, attributes, ctx.needs_input_grad[3:])
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
