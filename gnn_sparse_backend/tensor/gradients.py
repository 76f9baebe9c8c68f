"""Gradients of expressions in the values of their operands: each is an expression of the same operands.

The gradient of a product with respect to one factor is the product of the others and of the gradient of the result,
summed over what the factor has not. With respect to a sparse operand that is a sampled product: it is wanted where the
operand has elements, and nowhere else. It is recorded as any expression is, so that it has gradients too. Functions and
divisors are applied before, to the values of tensors, by PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..compiler.language.types import ACCUMULATOR
from .expressions.kernel import TensorKernel, in_formats, kernel_of
from .expressions.notation import Access, Call, Expression, Number, Operation, Statement, accesses, product
from .expressions.specs import extents_of, same_structure
from .expressions.terms import Factor, Term
from .storage.stored import Stored, of_dense
from .storage.structure import numbered
from .storage.values import dtype_name, is_recorded, spread, to_dtype

GRADIENT, PATTERN, ONES, APPLIED = "gradient_", "pattern_", "ones_", "applied_"
FUNCTIONS = {name: getattr(torch, name) for name in ("exp", "log", "sqrt", "tanh", "sigmoid", "abs", "relu")}


def run_recorded(kernel: TensorKernel, operands: Mapping[str, Stored]) -> Stored:
    """The result of a kernel, whose values remember how they came about where a gradient of an operand is asked for.

    Raises NotImplementedError for what has no gradient here: an index twice in one operand, another semiring.
    """
    if not any(is_recorded(x.values) for x in operands.values()):
        return kernel.run(operands)
    semiring = kernel.plan.statement.semiring
    if not semiring.is_ordinary:
        raise NotImplementedError(
            f"{kernel.expression}: there are no gradients under the semiring {semiring.name}; give operands whose "
            "values are detached"
        )
    return _recorded(kernel, in_formats(operands, kernel.plan.converted)).with_all(kernel.format)


def _recorded(kernel: TensorKernel, operands: Mapping[str, Stored]) -> Stored:
    _check(kernel)
    if any(
        not isinstance(factor.of, Access) or factor.inverse for term in kernel.plan.terms for factor in term.factors
    ):
        return _applied(kernel, operands)
    found: list[Stored] = []
    values = _Recorded.apply(kernel, operands, found, *(each.values for each in operands.values()))
    return Stored(found[0].structure, values)


def _check(kernel: TensorKernel) -> None:
    for term in kernel.plan.terms:
        for factor in term.factors:
            for access in accesses(factor.of):
                if len(set(access.indices)) < len(access.indices):
                    raise NotImplementedError(f"{access} has no gradient, since an index occurs twice in it")


def _applied(kernel: TensorKernel, operands: Mapping[str, Stored]) -> Stored:
    """The result where functions and divisors are tensors of their own, so that products are left."""
    kernel.taken(operands)  # refuses what it does not take, though others run in its place
    plan, known = kernel.plan, dict(operands)
    products: list[Expression] = []
    for term in plan.terms:
        factors: list[Expression] = [Number(term.coefficient)]
        for factor in term.factors:
            if isinstance(factor.of, Access) and not factor.inverse:
                factors.append(factor.of)
                continue
            name = fresh(APPLIED, known)
            indices, known[name] = _tensor_of(factor, term, plan.dtype, operands)
            factors.append(Access(name, indices))
        products.append(product(factors))
    total = products[0]
    for each in products[1:]:
        total = Operation("+", total, each)
    found = _evaluated(Statement(plan.statement.result, total, ""), known, kernel.format)
    return found.with_values(to_dtype(found.values, plan.dtype))


def _tensor_of(
    factor: Factor, term: Term, dtype: str, operands: Mapping[str, Stored]
) -> tuple[tuple[str, ...], Stored]:
    """A function or a divisor as a tensor, and its indices: those of the sparse operand that it is multiplied by, where
    it has no others, so that it is computed at the elements of that."""
    function = FUNCTIONS[factor.of.function] if isinstance(factor.of, Call) else None
    inner = factor.of.argument if isinstance(factor.of, Call) else factor.of
    if isinstance(inner, Access):
        indices, found = inner.indices, operands[inner.name]
    else:
        read = accesses(inner)
        indices = tuple(dict.fromkeys(index for access in read for index in access.indices))
        known, patterns = dict(operands), frozenset[str]()
        dense = all(operands[access.name].format.is_dense for access in read)
        if dense and len(indices) > 1 and term.sparse is not None and set(indices) <= set(term.sparse.indices):
            name = fresh(PATTERN, known)
            known[name], patterns, indices = (
                _pattern(operands[term.sparse.name]),
                frozenset([name]),
                term.sparse.indices,
            )
            inner = Operation("*", inner, Access(name, indices))
        found = _evaluated(Statement(Access("R", indices), inner, ""), known, None, patterns)
    values = to_dtype(torch.as_tensor(found.values), ACCUMULATOR[dtype])
    values = values if function is None else function(values)
    return indices, found.with_values(1 / values if factor.inverse else values)


def _evaluated(
    statement: Statement, known: Mapping[str, Stored], format: Any, patterns: frozenset[str] = frozenset()
) -> Stored:
    """The result of a statement that was made here, recorded."""
    statement = Statement(statement.result, statement.expression, str(statement))
    read = {access.name for access in accesses(statement.expression)}
    given = {name: stored for name, stored in known.items() if name in read}
    return run_recorded(*kernel_of(statement, given, format, patterns & read))


def _pattern(stored: Stored) -> Stored:
    """One whose elements alone count: ones, since formats that it is converted to do not store the zeros of dense
    levels.
    """
    values = stored.values
    return stored.with_values(torch.ones_like(values) if isinstance(values, torch.Tensor) else np.ones_like(values))


def fresh(name: str, known: Mapping[str, object]) -> str:
    """A name that no operand has."""
    while name in known:
        name += "_"
    return name


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
    if plan.kept is not None and set(result) == set(plan.kept.access.indices):
        # stored as the sparse operand is, whose indices may stand in another order
        result, above = plan.kept.access.indices, Stored(operands[plan.kept.access.name].structure, above.values)
    elif plan.kept is not None:
        above = above.to("dense")
    gradient = fresh(GRADIENT, known)
    known[gradient] = above
    factors: list[Expression] = [Number(term.coefficient), Access(gradient, result)]
    factors += [factor.of for n, factor in enumerate(term.factors) if n != at]
    patterns = frozenset(name for name, operand in plan.operands.items() if operand.pattern)
    if not own.format.is_dense:
        pattern = fresh(PATTERN, known)
        known[pattern] = _pattern(own)
        patterns |= {pattern}
        factors.append(Access(pattern, access.indices))
    sizes = extents_of(plan.statement, operands)
    bound = {index for factor in factors for each in accesses(factor) for index in each.indices}
    for index in access.indices:
        if index not in bound:  # it was summed over by itself
            known[ONES + index] = of_dense(above.values.new_ones(sizes[index]))
            factors.append(Access(ONES + index, (index,)))
    statement = Statement(Access("R", access.indices), product(factors), "")
    found = _evaluated(statement, known, own.format if own.format.is_dense else None, patterns)
    return found.values if own.format.is_dense or same_structure(found.structure, own.structure) else _at(own, found)


def _at(own: Stored, found: Stored) -> Any:
    """Values for the positions of `own`, whose elements those of `found` are a part of; zeros elsewhere."""
    where, positions = own.structure.coordinates()
    at, values = found.coordinates()
    number, first = numbered(np.concatenate([where, at], 1))
    to = positions[first[number[where.shape[1] :]]]
    return spread(values, to, own.structure.positions)


def recorded_extreme(whole: Stored, found: Stored, modes: tuple[int, ...], absent: np.ndarray | None) -> Any:
    """The values of `found`, the extremes of `whole` over modes, which remember where they came from.

    absent: for each of them the number of elements that are not stored.
    """
    at, positions = whole.structure.coordinates()
    place = np.zeros(at.shape[1], np.int64)
    for mode, extent in enumerate(whole.shape):
        if mode not in modes:
            place = place * extent + at[mode]
    zeros = torch.zeros(len(found.values), dtype=torch.int64) if absent is None else torch.from_numpy(absent)
    where = torch.from_numpy(place), torch.from_numpy(positions), zeros
    return _Extreme.apply(whole.values, found.values, *where)


class _Extreme(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is not read
    @staticmethod
    def forward(ctx: Any, values: Any, found: Any, place: Any, positions: Any, absent: Any) -> Any:
        ctx.save_for_backward(values, found, place, positions, absent)
        return found.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        values, found, place, positions, absent = ctx.saved_tensors
        wide = getattr(torch, ACCUMULATOR[dtype_name(values)])
        equal = (values[positions] == found[place]).to(wide)
        equals = torch.where(found == 0, absent, 0).to(wide).index_add(0, place, equal)
        share = (gradient.to(wide) / equals)[place] * equal
        own = torch.zeros(len(values), dtype=wide).index_copy(0, positions, share)
        return own.to(values.dtype), None, None, None, None
