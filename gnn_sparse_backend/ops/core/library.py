"""Operators in ``torch.library``: define, impl, fake and autograd, all from one declaration."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ... import ops
from ...compiler.packs.errors import NoKernelError
from ...deferred import import_module
from ...frozen import dataclass
from ...runtime.without_kernels import definition_of
from ...structures.checks import plain_tensor
from .batched import for_each, in_batch, mapped
from .last_run import note_operator
from .traced import NO_STRUCTURE, StructureKind, Traced
from .transforms import Transformed, in_library, living, transformed

Operands: TypeAlias = Sequence[Tensor | None]
Attributes: TypeAlias = tuple[Any, ...]
_in_backward = torch._C._current_graph_task_id


def operands_alone(attributes: Attributes, operands: Operands, results: Any) -> tuple[Operands, Any]:
    """`Declaration.saved` where nothing else is."""
    return operands, None


def _as_they_are(attributes: Attributes, transposed: bool) -> Attributes:
    return attributes


def _as_they_came(*values: Any) -> tuple[Attributes, bool]:
    return values, False


TRANSPOSED: dict[str, Any] = {
    "encode": lambda attributes, transposed: (*attributes, transposed),
    "decode": lambda *values: (values[:-1], values[-1]),
}
"""How a schema says with its last value whether the structure is the transpose."""


def _like_the_first(arguments: tuple, operands: Operands, attributes: Attributes, transposed: bool) -> Any:
    return operands[0].new_empty(operands[0].shape)  # type: ignore[union-attr]


def _unchecked(structure: Any, operands: Operands, attributes: Attributes) -> Operands:
    return operands


@dataclass(frozen=True, eq=False)
class Declaration:
    """All that is true of an operator on a structure, some tensors and some attributes, which are no tensors that want
    gradients.

    Attributes:
        name: in ``torch.ops.gsb``.
        structure: what it runs on, and how that enters ``torch.library``.
        run: (structure, operands, attributes) to the result or results, without autograd.
        gradients: (structure, attributes, saved, memo, needed, cotangents...) to the gradient of each operand, None for
            those that are not ``needed``: calls of operators on the structure or its transpose. None: has none.
        record: (structure, operands, attributes, needed) to (result or results, tensors to save, memo), where ``run``
            or ``library``, and what is ``saved`` of it, is not the way to record it.
        operands, attributes, results: the schema of ``torch.library``, in its language. "" for attributes: none.
            ``operands`` of None: not in ``torch.library``.
        encode, decode: attributes, and whether the structure is the transpose, to the values of the schema, and back.
        like: (arguments of the structure, operands, attributes, transposed) to empty results, with fake operands too;
            by default one as the first operand is.
        check: (structure, operands, attributes) to the operands as plain tensors, or an error that quotes them.
        library: as ``run``, for the results of the schema where these are more.
        saved: (attributes, operands, results of the schema) to (tensors to save, memo).
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
    like: Callable[..., Any] = _like_the_first
    check: Callable[[Any, Operands, Attributes], Operands] = _unchecked
    library: Callable[[Any, Operands, Attributes], Any] | None = None
    saved: Callable[[Attributes, Operands, Any], tuple[Operands, Any]] = operands_alone
    given: Callable[[Attributes, Operands], Operands] | None = None
    sent: Callable[[Attributes, Operands], Operands] | None = None

    def __post_init__(self) -> None:
        """Have PyTorch know an operator that has a schema as ``torch.ops.gsb.<name>``, once somebody reads that."""
        if self.operands is not None:
            OPERATORS[self.name] = self
            register_for(self, self.structure)


def without_kernel(operator: Declaration, in_program: bool = False) -> Callable[..., Any] | None:
    """What computes a call whose kernel cannot be had (`definition_of`), of a backward pass, or ``in_program``: all
    results of the schema. None elsewhere, and where nothing else defines the operator.

    It is not given the error: who raises one that it holds keeps all that the call was given until Python looks for
    circles.
    """
    in_backward = _in_backward() >= 0
    if not in_program and not in_backward:
        return None
    import_module(f"{ops.__name__}.eager")  # the definitions, which few processes need
    counted = f"{operator.name} backward" if in_backward else f"{operator.name} of a program"
    return definition_of(operator.name, counted, in_program)


OPERATORS: dict[str, Declaration] = {}
"""Declared operators by name."""
_libraries: dict[tuple[Declaration, str], Library] = {}
# PyTorch notes where its register_fake is called; without this Python searches all modules for that file
inspect.modulesbyfile.setdefault(__file__, __name__)  # type: ignore[attr-defined]


_NAME = "gsb"


class _Namespace:
    """``torch.ops.gsb``, whose operators PyTorch gets to know when it is first read: to register one takes 5 ms, and an
    eager program asks for none of them. What looks one up below Python, by its name alone, needs it to have been read.

    It is an attribute of the class of ``torch.ops``, which that of the object itself hides once it is there.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._declared: list[Callable[[], None]] = []
        self._made: Any = None
        self._registering = False

    def declare(self, register: Callable[[], None]) -> None:
        """Call a function that registers an operator when the namespace is first read: now, if it was."""
        with self._lock:
            self._declared.append(register)
            if _NAME in vars(torch.ops):
                self._register()

    @contextlib.contextmanager
    def registering(self) -> Iterator[None]:
        """Within this context PyTorch reads the namespace because an operator is registered, and needs no others."""
        with self._lock:
            before, self._registering = self._registering, True
            try:
                yield
            finally:
                self._registering = before

    def _register(self) -> None:
        with self.registering():
            while self._declared:
                self._declared.pop(0)()

    def __get__(self, ops: Any, owner: type) -> Any:
        if ops is None:
            return self
        with self._lock:
            if self._made is None:
                self._made = type(ops.aten)(_NAME)
            if not self._registering and _NAME not in vars(ops):
                self._register()
                ops._dir.append(_NAME)  # as one that is made at its first use
                setattr(ops, _NAME, self._made)  # other threads find it when all is registered
            return self._made


NAMESPACE = _Namespace()
setattr(type(torch.ops), _NAME, NAMESPACE)


def register_for(operator: Declaration, kind: StructureKind) -> None:
    """Have PyTorch know an operator on structures of another kind as ``torch.ops.gsb.<name><kind.name>`` too."""
    library = _libraries[operator, kind.name] = Library(operator, kind)
    NAMESPACE.declare(library.register)


def call_library(operator: Declaration, structure: Traced, operands: Operands, attributes: Attributes) -> Any:
    """A call of ``torch.ops.gsb``: the first result, or all of them where the user's results are several."""
    return _libraries[operator, structure.name].call(structure, operands, attributes)


def call_transformed(operator: Declaration, structure: Any, operands: Operands, attributes: Attributes) -> Any:
    """Call the operator on a structure itself, for a function that is transformed."""
    if operator.operands is not None:
        return call_library(operator, operator.structure.traced(structure), operands, attributes)
    if operator.record is not None and operator.saved is operands_alone:
        raise RuntimeError(f"{operator.name} is not known under torch.func and in forward mode")
    return Library(operator, _OPAQUE).call(Traced((structure,)), operands, attributes)


_OPAQUE = StructureKind(("structure",), lambda structure: Traced((structure,)), lambda given, operands: given[0])
"""The structure itself, for operators that are not in ``torch.library``."""


class Library:
    """An operator's arguments in the order of its schema: (structure, operands, attributes), or the operands first; and
    what PyTorch asks of it.
    """

    def __init__(self, operator: Declaration, kind: StructureKind):
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
        try:
            return (of.library or of.run)(structure, operands, attributes)
        except NoKernelError as error:
            if (instead := without_kernel(of, in_program=True)) is None:
                raise
            return instead(str(error), structure, operands, attributes)

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
