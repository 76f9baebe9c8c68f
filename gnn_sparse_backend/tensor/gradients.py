"""Gradients of expressions in the values of their operands: each is an expression of the same operands.

Of a product the gradient with respect to one factor is the product of the others and of the gradient of the result,
summed over what the factor has not. With respect to a sparse operand that is a sampled product: it is wanted where the
operand has elements, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from .expressions.kernel import TensorKernel, kernel_of
from .expressions.notation import Access, Call, Expression, Number, Statement, accesses, product
from .expressions.specs import extents_of, same_structure
from .expressions.terms import Term
from .storage.stored import Stored, of_dense
from .storage.values import spread, to_dtype

GRADIENT, PATTERN, ONES = "gradient_", "pattern_", "ones_"


def run_recorded(kernel: TensorKernel, operands: Mapping[str, Stored]) -> Stored:
    """The result of a kernel, whose values remember how they came about.

    Raises NotImplementedError for what has no gradient here: functions, divisors, and an index twice in one operand.
    """
    _check(kernel)
    found: list[Stored] = []
    values = _Recorded.apply(kernel, operands, found, *(each.values for each in operands.values()))
    return Stored(found[0].structure, values)


def _check(kernel: TensorKernel) -> None:
    for term in kernel.plan.terms:
        for factor in term.factors:
            if isinstance(factor.of, Call) or factor.inverse:
                raise NotImplementedError(
                    f"{kernel.expression} has no gradient through functions and divisors; apply them to the operands"
                )
            if len(set(factor.of.indices)) < len(factor.of.indices):
                raise NotImplementedError(f"{factor.of} has no gradient, since an index occurs twice in it")


class _Recorded(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is not read
    @staticmethod
    def forward(
        ctx: Any, kernel: TensorKernel, operands: Mapping[str, Stored], found: list[Stored], *values: Any
    ) -> Any:
        result = kernel.computed(operands)
        found.append(result)
        ctx.kernel, ctx.result = kernel, result.structure
        ctx.operands = {name: each.structure for name, each in operands.items()}
        ctx.others = [None if isinstance(each, torch.Tensor) else each for each in values]
        ctx.save_for_backward(*(each for each in values if isinstance(each, torch.Tensor)))
        return result.values

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        values = [next(saved) if each is None else each for each in ctx.others]
        operands = {name: Stored(structure, each) for (name, structure), each in zip(ctx.operands.items(), values)}
        above = Stored(ctx.result, gradient.contiguous())
        asked = zip(operands, ctx.needs_input_grad[3:])
        found = [_gradient(ctx.kernel, name, operands, above) if needed else None for name, needed in asked]
        return None, None, None, *found


def _gradient(kernel: TensorKernel, name: str, operands: Mapping[str, Stored], above: Stored) -> Any:
    """What flows back to the values of one operand: the sum over the places where it is read."""
    plan, own = kernel.plan, operands[name]
    total = None
    for term in plan.terms:
        for at, factor in enumerate(term.factors):
            if isinstance(factor.of, Access) and factor.of.name == name:
                found = _of_place(kernel, term, at, factor.of, operands, above)
                total = found if total is None else total + found
    return None if total is None else to_dtype(total, own.dtype)


def _of_place(
    kernel: TensorKernel, term: Term, at: int, access: Access, operands: Mapping[str, Stored], above: Stored
) -> Any:
    """What flows back through one factor of one product."""
    plan, own = kernel.plan, operands[access.name]
    known = dict(operands)
    result = plan.statement.result.indices
    if plan.kept is not None and plan.kept.levels == len(operands[plan.kept.access.name].structure.levels):
        # stored as the sparse operand is, whose indices may stand in another order
        result, above = plan.kept.access.indices, Stored(operands[plan.kept.access.name].structure, above.values)
    elif plan.kept is not None:
        above = above.to("dense")
    known[GRADIENT] = above
    factors: list[Expression] = [Number(term.coefficient), Access(GRADIENT, result)]
    factors += [factor.of for n, factor in enumerate(term.factors) if n != at]
    patterns: frozenset[str] = frozenset()
    if not own.format.is_dense:
        known[PATTERN] = own
        patterns = frozenset([PATTERN])
        factors.append(Access(PATTERN, access.indices))
    sizes = extents_of(plan.statement, operands)
    bound = {index for factor in factors for each in accesses(factor) for index in each.indices}
    for index in access.indices:
        if index not in bound:  # it was summed over by itself
            known[ONES + index] = of_dense(above.values.new_ones(sizes[index]))
            factors.append(Access(ONES + index, (index,)))
    statement = Statement(Access("R", access.indices), product(factors))
    shown = Statement(statement.result, statement.expression, str(statement))
    read = {each.name for each in accesses(shown.expression)}
    given = {each: stored for each, stored in known.items() if each in read}
    flowing, walked = kernel_of(shown, given, own.format if own.format.is_dense else None, patterns)
    found = flowing.run(walked)
    return found.values if own.format.is_dense or same_structure(found.structure, own.structure) else _at(own, found)


def _at(own: Stored, found: Stored) -> Any:
    """Values for the positions of `own`, whose elements those of `found` are a part of; zeros elsewhere."""
    where, positions = own.structure.coordinates()
    at, values = found.coordinates()
    places, wanted = (np.ravel_multi_index(tuple(each), own.shape) for each in (where, at))
    order = np.argsort(places)
    to = positions[order[np.searchsorted(places[order], wanted)]]
    return spread(values, to, own.structure.positions)
