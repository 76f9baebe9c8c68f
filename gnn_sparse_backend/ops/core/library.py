"""Operators in ``torch.library``: define, impl, fake and autograd, all from one declaration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

from ...structures.checks import plain_tensor
from .ran import note_operator
from .traced import StructureKind, Traced

if TYPE_CHECKING:
    from .operator import Operator

Operands: TypeAlias = Sequence[Tensor | None]
Attributes: TypeAlias = tuple[Any, ...]

OPERATORS: dict[str, Operator] = {}
"""By name, those that are registered."""
_libraries: dict[tuple[str, str], _Library] = {}


def register(operator: Operator) -> Operator:
    """Have PyTorch know an operator as ``torch.ops.gsb.<name>``. Returns it."""
    OPERATORS[operator.name] = operator
    if operator.operands is not None:
        register_for(operator, operator.structure)
    return operator


def register_for(operator: Operator, kind: StructureKind) -> None:
    """Have PyTorch know an operator on structures of another kind as ``torch.ops.gsb.<name><kind.name>`` too."""
    _libraries[operator.name, kind.name] = _Library(operator, kind)
    _libraries[operator.name, kind.name].register()


def call_library(operator: Operator, structure: Traced, operands: Operands, attributes: Attributes) -> Any:
    """A call of ``torch.ops.gsb``: the first result, or all of them where the user's results are several."""
    return _libraries[operator.name, structure.name].call(structure, operands, attributes)


class _Library:
    """An operator's arguments in the order of its schema: (structure, operands, attributes), or the operands first."""

    def __init__(self, operator: Operator, kind: StructureKind):
        self.operator, self.kind, self.name = operator, kind, operator.name + kind.name
        self.listed = operator.operands.startswith("Tensor[]")
        self.count = 1 if self.listed else len(operator.operands.split(","))
        self.sizes = len(self.kind.schema)

    @property
    def schema(self) -> str:
        of, structure = self.operator, ", ".join(self.kind.schema)
        parts = (of.operands, structure) if self.kind.last else (structure, of.operands)
        return f"({', '.join(part for part in (*parts, of.attributes) if part)}) -> {of.results}"

    def apart(self, arguments: tuple) -> tuple[tuple, list[Tensor | None], tuple]:
        """(arguments of the structure, tensors, values) of a call's arguments."""
        first = self.count if self.kind.last else self.sizes
        leading, following = arguments[:first], arguments[first : self.sizes + self.count]
        structure, tensors = (following, leading) if self.kind.last else (leading, following)
        return structure, list(tensors[0]) if self.listed else list(tensors), arguments[self.sizes + self.count :]

    def joined(self, structure: tuple, tensors: Any, values: tuple) -> tuple:
        """The reverse of `apart`."""
        tensors = (list(tensors),) if self.listed else tuple(tensors)
        parts = (tensors, structure) if self.kind.last else (structure, tensors)
        return *parts[0], *parts[1], *values

    def read(self, arguments: tuple) -> tuple[tuple, list[Tensor | None], Attributes, bool]:
        """(arguments of the structure, operands, attributes, whether it is the transpose)."""
        of = self.operator
        structure, tensors, values = self.apart(arguments)
        attributes, transposed = of.decode(*values)
        operands = tensors if of.given is None else list(of.given(attributes, tensors))
        return structure, operands, attributes, transposed

    def call(self, structure: Traced, operands: Operands, attributes: Attributes) -> Any:
        of = self.operator
        tensors = operands if of.sent is None else of.sent(attributes, operands)
        values = of.encode(attributes, structure.transposed)
        entry = getattr(torch.ops.gsb, self.name)
        found = entry(*self.joined(structure.arguments[: self.sizes], tensors, values))
        return found[0] if of.library is not None else found

    def register(self) -> None:
        of = self.operator
        name = f"gsb::{self.name}"
        torch.library.define(name, self.schema, tags=torch.Tag.pt2_compliant_tag)
        torch.library.impl(name, "default", self.implementation)
        torch.library.register_fake(name, self.fake)
        if of.gradients is not None:
            torch.library.register_autograd(name, self.backward, setup_context=self.save)
        if hasattr(torch.library, "register_vmap"):  # before PyTorch 2.5 there is none
            torch.library.register_vmap(name, self.each)

    def implementation(self, *arguments: Any) -> Any:
        of = self.operator
        given, operands, attributes, transposed = self.read(arguments)
        try:
            structure = self.kind.live(given, operands)
        except ValueError as error:
            raise ValueError(f"{of.name}: {error}") from None
        structure = structure.transpose() if transposed else structure
        operands = [x if x is None else plain_tensor(x) for x in of.check(structure, operands, attributes)]
        note_operator(of.name)
        return (of.library or of.run)(structure, operands, attributes)

    def each(self, info: Any, dims: tuple, *arguments: Any) -> tuple[Any, Any]:
        """``torch.vmap``: one call for each element of the batch."""
        values, spec = tree_flatten(arguments)
        which = _broadcast_to_and_flatten(dims, spec)
        entry = getattr(torch.ops.gsb, self.name)
        found = []
        for at in range(info.batch_size):
            taken = [x if dim is None else x.select(dim, at) for x, dim in zip(values, which)]
            found.append(tree_flatten(entry(*tree_unflatten(taken, spec))))
        results = [torch.stack(each) for each in zip(*(flat for flat, _ in found))]
        spec = found[0][1]
        return tree_unflatten(results, spec), tree_unflatten([0] * len(results), spec)

    def fake(self, *arguments: Any) -> Any:
        given, *rest = self.read(arguments)
        return self.operator.like(self.kind.shapes(given), *rest)

    def save(self, ctx: Any, inputs: tuple, output: Any) -> None:
        of = self.operator
        given, operands, ctx.attributes, ctx.transposed = self.read(inputs)
        saved, ctx.memo = of.saved(ctx.attributes, operands, output)
        ctx.structure = [None if isinstance(x, Tensor) else x for x in given]
        ctx.held = self.kind.hold(given)
        # an empty list passes for one of tensors, whose gradient is one, too
        ctx.unchanged = [[] if x == [] else None for x in self.apart(inputs)[2]]
        ctx.save_for_backward(*(x if isinstance(x, Tensor) else None for x in given), *saved)

    def backward(self, ctx: Any, *cotangents: Any) -> tuple:
        of, count = self.operator, len(ctx.structure)
        saved = ctx.saved_tensors  # once: a checkpointed region unpacks each tensor a single time
        given = tuple(size if x is None else x for x, size in zip(saved[:count], ctx.structure))
        saved = saved[count:]
        structure = Traced(self.kind.sizes(given, saved), ctx.transposed, self.kind)
        _, needed, _ = self.apart(ctx.needs_input_grad)
        needed = needed if of.given is None else of.given(ctx.attributes, needed)
        found = of.gradients(structure, ctx.attributes, saved, ctx.memo, tuple(bool(x) for x in needed), *cotangents)
        found = found if of.sent is None else of.sent(ctx.attributes, found)
        return self.joined((None,) * self.sizes, found, tuple(ctx.unchanged))
