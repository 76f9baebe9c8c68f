"""Operators over a few listed edges, with all that a call looks up found beforehand.

On a batch of molecules a kernel takes some microseconds, and what is around it decides. Here a call is one autograd
function, which goes from the tensors to the kernel: no structure is made, and nothing is looked up by shape. On the way
back the same is done where that is one more kernel for each operand; everything else (a gradient of the gradient, a
batch of gradients) goes to the operator on a graph of the list.
"""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ....compiler.cache.background import PendingKernel
from ....compiler.language.reduction import REDUCTIONS
from ....compiler.packs.errors import NoKernelError
from ....structures.csr import EdgeList
from ....structures.graph import Graph
from ...core.last_run import note_operator
from ...core.operator import Operator, recorded_eagerly
from ...core.transforms import transformed
from ..calls import feature_shapes, flat, result_features, spec_of_aggregate, spec_of_edge_map
from ..executables.listed import MessagesOnList
from ..gradients import GradientPlan, fit_gradient, gradient_plan
from ..message_op import MessageOp, ties_count
from ..operators import AGGREGATE, EDGE_MAP, Memo
from ..programs.aggregate import AggregateSpec
from ..programs.edge_map import EdgeMapSpec

if TYPE_CHECKING:
    from typing_extensions import Self

_SOURCES = frozenset(("cotangent", "scale", "result"))
FLOATS = (torch.float32, torch.float64)
"""Types that results are added up in as they are."""


class Flat(ABC):
    """An operator for operands of one kind: shapes behind the first, and types.

    operator: which it is, for what is not done here. reads_result: whether a gradient reads the result again. operands:
        None, as of operators that ``torch.library`` does not know.
    """

    operator: ClassVar[Operator]
    operands: ClassVar[None] = None
    reads_result = False

    @classmethod
    def made(cls, *given: Any) -> Self:
        """The operator of what its class takes. Where that is made in the background, its gradients are, too."""
        try:
            return cls(*given)
        except PendingKernel as pending:
            if pending.make is not None:
                pending.make = lambda: cls(*given).prepare_gradients()
            raise

    def __call__(self, edges: EdgeList, operands: Sequence[Tensor]) -> Tensor:
        """The result. Raises OutOfRange where an edge is."""
        note_operator(self.operator.name)
        if torch.is_grad_enabled():
            for x in operands:
                if x.requires_grad:
                    return recorded_eagerly(self, edges, (), *operands)
        return self.run(edges, operands)[0]

    def record(self, edges: EdgeList, operands: Sequence[Tensor], attributes, needed) -> tuple:
        """Run and record, as operators do. Saved are the result, if a gradient reads it, and operands that it reads."""
        out, extra = self.run(edges, operands)
        used, memo = self.read_again(needed), (extra, [x.shape for x in operands])
        if not (used or self.reads_result):
            return out, (), memo
        kept = [x if at in used else None for at, x in enumerate(operands)]
        return out, (out if self.reads_result else None, *kept), memo

    def gradients(self, edges: EdgeList, attributes, saved, memo, needed, grad: Tensor) -> Sequence:
        """The gradients, as operators have them."""
        saved, found = saved or (None,) * (1 + len(needed)), None
        if not (torch.is_grad_enabled() or transformed()):
            note_operator(self.operator.name)
            with contextlib.suppress(NoKernelError):  # the operator knows what to do without
                found = self.by_kernels(edges, saved, *memo, needed, grad)
        if found is not None:
            return found
        graph = Graph._of_list(edges)
        structure = self.operator.structure.traced(graph) if transformed() else graph
        return self.by_operator(structure, saved, *memo, needed, grad)

    @abstractmethod
    def prepare_gradients(self) -> Any:
        """Compile what gradients run."""

    @abstractmethod
    def run(self, edges: EdgeList, operands: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """The result, and what a gradient reads beside operands."""

    @abstractmethod
    def read_again(self, needed: tuple[bool, ...]) -> frozenset[int]:
        """The operands that gradients of those that are ``needed`` read."""

    @abstractmethod
    def by_kernels(self, edges: EdgeList, saved, extra: Tensor | None, shapes, needed, grad: Tensor) -> list | None:
        """The gradients by kernels over the list; None where they are left to the operator."""

    @abstractmethod
    def by_operator(self, structure: Any, saved, extra: Tensor | None, shapes, needed, grad: Tensor) -> Sequence:
        """The gradients by the operator, on a structure."""


class _OfMessages(Flat):
    """An operator on messages, whose gradients are, too. dims: features of the result. attributes: the operator's."""

    def __init__(self, of: MessageOp, operands: Sequence[Tensor], spec: AggregateSpec | EdgeMapSpec, *reduced):
        self.of, self.attributes, self.like = of, (of, *reduced), operands[0].new_empty(0)
        self.shapes = feature_shapes(of, operands)
        self.dims = result_features(of, self.shapes)
        if any(reduced):
            self.dims = tuple(1 if gone else extent for extent, gone in zip(self.dims, *reduced))
        self.features, self.kernel = prod(self.dims), MessagesOnList(spec)

    @functools.cached_property
    def backward(self) -> list[_Back | None]:
        """The gradient of each operand."""
        numbers = range(len(self.shapes))
        return [_Back.of(self.of, number, self.shapes, self.dims, self.like) for number in numbers]

    def prepare_gradients(self):
        return self.backward

    def read_again(self, needed):
        return self.of.saved(needed)

    def by_operator(self, structure, saved, extra, shapes, needed, grad):
        memo = Memo(tuple(self.shapes), [(shape, grad.dtype) for shape in shapes])
        saved = (None, *saved) if self.operator is AGGREGATE else saved[1:]
        return self.operator.gradients(structure, self.attributes, saved, memo, needed, grad)

    def _each(self, edges: EdgeList, saved, more, needed, shapes) -> list[Tensor | None] | None:
        """The gradients of those that are ``needed``; None where one is no kernel over the list."""
        found: list[Tensor | None] = []
        for number, (wanted, back) in enumerate(zip(needed, self.backward)):
            if wanted and back is None:
                return None
            found.append(back(edges, saved, more, shapes[number]) if wanted else None)
        return found


class FlatAggregate(_OfMessages):
    """An aggregation: a sum or mean, or a maximum or minimum that puts into zeros."""

    operator = AGGREGATE

    def __init__(self, of: MessageOp, operands: Sequence[Tensor]):
        super().__init__(of, operands, spec_of_aggregate(of, operands, "int64"))
        self.reads_result = of.shares
        # a row each: what is kept from call to call would hold the memory of the first call's operands
        self.likes = [x.new_empty_strided((1, *x.shape[1:]), x.stride()) for x in operands] if of.shares else []

    @functools.cached_property
    def count(self) -> tuple | None:
        """What counts equal messages that share, and its operands."""
        if not self.of.shares:
            return None
        counted, sources = ties_count(self.of)
        made = [self.like.new_empty(1, *self.dims) if s == "result" else self.likes[s] for s in sources]
        return MessagesOnList(spec_of_aggregate(counted, made, "int64")), sources

    def prepare_gradients(self):
        return self.backward, self.count

    @staticmethod
    def serves(of: MessageOp, operands: Sequence[Tensor]) -> bool:
        """Whether there is one for such operands."""
        adds = of.ties is None and REDUCTIONS[of.reduce].adds
        return (
            (adds or (of.ties in ("even", "even_with_zero") and of.same_everywhere))
            and "number" not in of.places
            and all(x.dtype is operands[0].dtype for x in operands)
            and operands[0].dtype in FLOATS
        )

    def run(self, edges, operands):
        rows, kernel, first = edges.shape[0], self.kernel, operands[0]
        out = first.new_empty(rows, *self.dims)
        given = kernel.given(operands)
        extra = None
        if kernel.degrees:
            extra = first.new_empty(rows)
            given += (edges.row.new_empty(rows), extra)
        kernel.launch(edges, False, given, flat(out, rows, self.features))
        return out, extra

    def by_kernels(self, edges, saved, extra, shapes, needed, grad):
        result, *saved = saved
        more = {"cotangent": grad, "scale": extra, "result": result}
        if self.count is not None:
            kernel, sources = self.count
            given = kernel.given([result if s == "result" else saved[s] for s in sources])
            count = grad.new_empty(edges.shape[0], self.features)
            kernel.launch(edges, False, given, count)
            count = count.view(grad.shape)
            more["cotangent"] = grad / (count.add_(result == 0) if self.of.ties == "even_with_zero" else count)
        return self._each(edges, saved, more, needed, shapes)


class FlatMap(_OfMessages):
    """An edge map. reduced: for each feature dimension, whether to sum over it, which then goes."""

    operator = EDGE_MAP

    def __init__(self, of: MessageOp, operands: Sequence[Tensor], reduced: tuple[bool, ...] = ()):
        super().__init__(of, operands, spec_of_edge_map(of, operands, "int64", reduced), reduced)

    def run(self, edges, operands):
        count, kernel = edges.row.shape[0], self.kernel
        out = operands[0].new_empty(count, *self.dims)
        kernel.launch(edges, False, kernel.given(operands), flat(out, count, self.features))
        return out, None

    def by_kernels(self, edges, saved, extra, shapes, needed, grad):
        return self._each(edges, saved[1:], {"cotangent": grad}, needed, shapes)


class _Back:
    """The gradient of one operand, as a kernel over the list."""

    __slots__ = ("dims", "edges", "kernel", "place", "plan", "width")

    def __init__(self, plan: GradientPlan, place: str, shapes, cotangent, dims, like: Tensor):
        self.plan, self.place, self.edges = plan, place, place == "edge"
        others = {"cotangent": cotangent, "scale": (1,), "result": dims}
        of = [tuple(shapes[s] if type(s) is int else others[s]) for s in plan.sources]
        self.dims = result_features(plan.form, of)
        if plan.reduced:
            self.dims = tuple(1 if gone else e for e, gone in zip(self.dims, plan.reduced))
        operands = [
            like.new_empty(shape if place == "all" else (1, *shape)) for shape, place in zip(of, plan.form.places)
        ]
        if self.edges:
            spec = spec_of_edge_map(plan.form, operands, "int64", plan.reduced)
            self.width = spec.width
        else:
            spec = spec_of_aggregate(plan.form, operands, "int64")
            self.width = spec.features
        self.kernel = MessagesOnList(spec)

    @classmethod
    def of(cls, of: MessageOp, number: int, shapes, cotangent, like: Tensor) -> _Back | None:
        """The gradient of operand ``number``; None where it is no kernel over the list. cotangent: its features."""
        plan = gradient_plan(of, number, tuple(shapes), tuple(cotangent))
        if plan.form is None or any(type(s) is str and s not in _SOURCES for s in plan.sources):
            return None
        return cls(plan, of.places[number], shapes, cotangent, result_features(of, shapes), like)

    def __call__(self, edges: EdgeList, saved: Sequence, more: dict[str, Tensor | None], shape) -> Tensor:
        plan, kernel = self.plan, self.kernel
        given = [saved[s] if type(s) is int else more[s] for s in plan.sources]
        grad = more["cotangent"]
        if plan.passes:
            return grad
        given = kernel.given(given)
        rows = edges.row.shape[0] if self.edges else edges.shape[plan.transposed]
        out = grad.new_empty(rows, self.width)
        kernel.launch(edges, plan.transposed, given, out)
        if out.shape == shape:
            return out
        return fit_gradient(plan, out.view(rows, *self.dims), self.place, shape).view(shape)
