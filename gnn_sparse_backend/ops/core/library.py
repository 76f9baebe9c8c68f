"""Operators in ``torch.library``: define, impl, fake and autograd, all from one declaration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ...structures.checks import plain_tensor
from .batched import for_each, in_batch, mapped
from .ran import note_operator
from .traced import StructureKind, Traced
from .transforms import Transformed, in_library, living, transformed

if TYPE_CHECKING:
    from .operator import Operator

Operands: TypeAlias = Sequence[Tensor | None]
Attributes: TypeAlias = tuple[Any, ...]

OPERATORS: dict[str, Operator] = {}
"""Registered operators by name."""
_libraries: dict[tuple[Operator, str], Library] = {}


def register(operator: Operator) -> Operator:
    """Have PyTorch know an operator as ``torch.ops.gsb.<name>``. Returns it."""
    OPERATORS[operator.name] = operator
    if operator.operands is not None:
        register_for(operator, operator.structure)
    return operator


def register_for(operator: Operator, kind: StructureKind) -> None:
    """Have PyTorch know an operator on structures of another kind as ``torch.ops.gsb.<name><kind.name>`` too."""
    _libraries[operator, kind.name] = Library(operator, kind)
    _libraries[operator, kind.name].register()


def call_library(operator: Operator, structure: Traced, operands: Operands, attributes: Attributes) -> Any:
    """A call of ``torch.ops.gsb``: the first result, or all of them where the user's results are several."""
    return _libraries[operator, structure.name].call(structure, operands, attributes)


def call_transformed(operator: Operator, structure: Any, operands: Operands, attributes: Attributes) -> Any:
    """Call the operator on a structure itself, for a function that is transformed."""
    if operator.operands is not None:
        return call_library(operator, operator.structure.traced(structure), operands, attributes)
    if operator.record is not None and operator.saved is operands_alone:
        raise RuntimeError(f"{operator.name} is not known under torch.func and in forward mode")
    return Library(operator, _OPAQUE).call(Traced((structure,)), operands, attributes)


def operands_alone(attributes: Attributes, operands: Operands, results: Any) -> tuple[Operands, Any]:
    """`Operator.saved` where nothing else is."""
    return operands, None


_OPAQUE = StructureKind(("structure",), lambda structure: Traced((structure,)), lambda given, operands: given[0])
"""The structure itself, for operators that are not in ``torch.library``."""


class Library:
    """An operator's arguments in the order of its schema: (structure, operands, attributes), or the operands first; and
    what PyTorch asks of it.
    """

    def __init__(self, operator: Operator, kind: StructureKind):
        self.operator, self.kind, self.name = operator, kind, operator.name + kind.name
        self.listed = kind is _OPAQUE or operator.operands.startswith("Tensor[]")
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
        found = self.found(structure.arguments[: self.sizes], values, *tensors)
        return found[0] if of.library is not None else found

    def found(self, structure: tuple, values: tuple, *tensors: Tensor | None) -> Any:
        """The results of the schema. structure, values: arguments of the structure, and beside the tensors."""
        if torch.compiler.is_compiling():
            if transformed() and not in_library():
                raise RuntimeError(
                    f"{self.name}: torch.compile knows no derivative of it within a program; compile less"
                )
        elif in_batch(tensors):
            return for_each(lambda *of_one: self.found(structure, values, *of_one), tensors)
        elif transformed() and not in_library():
            return Transformed.apply(self, structure, values, *map(living, tensors))
        return self.entry(*self.joined(structure, tensors, values))

    @property
    def entry(self) -> Any:
        """What runs, of the arguments of the schema."""
        return self.implementation if self.kind is _OPAQUE else getattr(torch.ops.gsb, self.name)

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
        found = mapped(self.entry, info.batch_size, dims, arguments)
        return found, tree_map(lambda x: 0, found)

    def fake(self, *arguments: Any) -> Any:
        given, *rest = self.read(arguments)
        return self.operator.like(self.kind.shapes(given), *rest)

    def save(self, ctx: Any, inputs: tuple, output: Any) -> None:
        saved, given = self.keep(ctx, inputs, output), self.apart(inputs)[0]
        ctx.structure = [None if isinstance(x, Tensor) else x for x in given]
        # an empty list passes for one of tensors, whose gradient is one, too
        ctx.unchanged = [[] if x == [] else None for x in self.apart(inputs)[2]]
        ctx.save_for_backward(*(x if isinstance(x, Tensor) else None for x in given), *saved)

    def keep(self, ctx: Any, inputs: tuple, output: Any) -> Operands:
        """Have ``ctx`` keep what `gradients` reads of a call beside tensors. Returns these."""
        of = self.operator
        given, operands, ctx.attributes, ctx.transposed = self.read(inputs)
        saved, ctx.memo = of.saved(ctx.attributes, operands, output)
        ctx.held = self.kind.hold(given)
        return saved

    def backward(self, ctx: Any, *cotangents: Any) -> tuple:
        count, (_, needed, _) = len(ctx.structure), self.apart(ctx.needs_input_grad)
        saved = ctx.saved_tensors  # once: a checkpointed region unpacks each tensor a single time
        given = tuple(size if x is None else x for x, size in zip(saved[:count], ctx.structure))
        found = self.gradients(ctx, given, saved[count:], needed, cotangents)
        return self.joined((None,) * self.sizes, found, tuple(ctx.unchanged))

    def gradients(
        self, ctx: Any, given: tuple, saved: Operands, needed: Sequence[bool], cotangents: Operands
    ) -> Operands:
        """Return the gradients of the tensors of the schema. given: the arguments of the structure."""
        of = self.operator
        structure = Traced(self.kind.sizes(given, saved), ctx.transposed, self.kind)
        structure = self.kind.live(given, saved) if self.kind is _OPAQUE else structure
        needed = needed if of.given is None else of.given(ctx.attributes, needed)
        found = of.gradients(structure, ctx.attributes, saved, ctx.memo, tuple(bool(x) for x in needed), *cotangents)
        return found if of.sent is None else of.sent(ctx.attributes, found)
