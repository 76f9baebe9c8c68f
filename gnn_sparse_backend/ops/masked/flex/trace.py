"""``score_mod`` as a `Node`: PyTorch traces the function to its operators, and these are read one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node as Step

from ....runtime.type_names import type_name
from ....structures.masks.asking import Indexing
from ..programs.modifier import CONDITION, INTEGER, NUMBER, PLACES, SCORE, Modifier, Node, const
from .steps import HANDLERS, KINDS, SAME, Untraceable, converted, kind_of


class Traced(NamedTuple):
    """modifier: what kernels are made of. tensors: those that it reads, in their order."""

    modifier: Modifier
    tensors: tuple[Tensor, ...]


class _View(NamedTuple):
    """A captured tensor of which some dimensions have an index already. at: one for each dimension, or None."""

    which: int
    at: tuple[Node | None, ...]


class _Row(NamedTuple):
    """A value of a few numbers, one behind the other."""

    nodes: tuple[Node, ...]


LONGEST = 16
"""Elements of the rows of captured tensors that are computed with one by one."""
_CAPTURED = (torch.float32, torch.float64, torch.bfloat16, torch.float16, *KINDS)


def traced(score_mod: Callable[..., Tensor], dtype: torch.dtype) -> Traced:
    """The function as an expression of its score, in ``dtype``, and of where the pair is.

    Raises Untraceable, quoting the step that is none of an expression.
    """
    return _Reader(_steps_of(score_mod, (torch.zeros((), dtype=dtype), *_places()))).read()


def traced_of_operands(
    function: Callable[..., Tensor], dtype: torch.dtype | None, operands: Sequence[Tensor]
) -> tuple[Modifier, tuple[int, ...]]:
    """(expression, which operands it reads) of a function that is given all tensors that it reads, behind the places.

    Their values are not looked at. dtype: of the score; None for a function of places alone, which says whether a pair
    is allowed.
    """
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        score = () if dtype is None else (torch.zeros((), dtype=dtype),)
        # tensors of their shapes without memory
        alike = [torch.zeros((), dtype=x.dtype).expand([int(size) for size in x.shape]) for x in operands]
        reader = _Reader(_steps_of(function, (*score, *_places(), *alike)), operands, dtype is not None)
        return reader.read().modifier, tuple(reader.read_operands)


def _places() -> list[Tensor]:
    return [torch.zeros((), dtype=torch.int64) for _ in PLACES]


def _steps_of(function: Callable[..., Tensor], examples: Sequence[Tensor]) -> torch.fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    try:
        with Indexing(), torch.enable_grad():
            return make_fx(function, tracing_mode="real", _allow_non_fake_inputs=True)(*examples)
    except Exception as error:
        raise Untraceable(f"score_mod cannot be traced: {type(error).__name__}: {error}") from error


def _stored(dtype: torch.dtype) -> str:
    """The type that kernels read."""
    return "uint8" if dtype in (torch.bool, torch.uint8) else type_name(dtype)


class _Reader:
    """Reads the steps of a traced function. operands: tensors that it is given behind the places, if all that it reads
    are; scores: whether it is given one, and returns one, or else whether a pair is allowed.
    """

    def __init__(self, graph: torch.fx.GraphModule, operands: Sequence[Tensor] | None = None, scores: bool = True):
        self.graph, self.operands, self.scores = graph, operands, scores
        self.tensors: list[Tensor] = []
        self.read_operands: list[int] = []
        self.values: dict[Step, Any] = {}
        self.element: int | None = None
        """The element of rows that is computed."""

    def read(self) -> Traced:
        leaves = [SCORE, *PLACES] if self.scores else [*PLACES]
        given = 0
        for step in self.graph.graph.nodes:
            if step.op == "placeholder":
                self.values[step] = leaves[given] if given < len(leaves) else self._given(step, given - len(leaves))
                given += 1
            elif step.op == "get_attr":
                self.values[step] = self._captured(getattr(self.graph, step.target))
            elif step.op == "call_function":
                self.values[step] = self._called(step)
            elif step.op == "output":
                found = self.node(step.args[0])
                kinds = tuple((_stored(x.dtype), x.dim()) for x in self.tensors)
                node = converted(found, NUMBER if self.scores else CONDITION)
                return Traced(Modifier(node, kinds), tuple(self.tensors))
        raise Untraceable("score_mod returns nothing")

    def _given(self, step: Step, which: int) -> Any:
        """What an operand is; one that no step reads is not looked at."""
        if not step.users:
            return None
        assert self.operands is not None
        self.read_operands.append(which)
        return self._held(self.operands[which])

    def _captured(self, x: Tensor) -> Any:
        if x.dim() == 0 and not x.requires_grad and x.device.type == "cpu" and x.dtype in _CAPTURED:
            return const(x.item(), kind_of(x.dtype))  # a number that the function was made with
        if self.operands is not None:
            raise Untraceable(f"score_mod makes a tensor {tuple(x.shape)}: make it before")
        return self._held(x)

    def _held(self, x: Tensor) -> Any:
        """A tensor that kernels read."""
        if x.dtype not in _CAPTURED or x.layout is not torch.strided or not x.numel():
            raise Untraceable(f"score_mod reads a tensor {tuple(x.shape)} of {x.dtype} and layout {x.layout}")
        which = next((n for n, other in enumerate(self.tensors) if other is x), len(self.tensors))
        if which == len(self.tensors):
            self.tensors.append(x)
        return self._settled(_View(which, (None,) * x.dim()))

    def _settled(self, view: _View) -> Node | _View:
        if None in view.at:
            return view
        return Node("load", (view.which, *view.at), kind_of(self.tensors[view.which].dtype))

    def node(self, value: Any) -> Node:
        found = self.values[value] if isinstance(value, Step) else value
        if self.element is not None and self._length(found) is not None:
            found = self._elements(found)[self.element]
        if isinstance(found, Node):
            return found
        if isinstance(found, _View):
            raise Untraceable(
                f"score_mod computes with all of a tensor {tuple(self.tensors[found.which].shape)}: compute that "
                "before, and index it"
            )
        if isinstance(found, _Row):
            raise Untraceable(f"score_mod returns a row of {len(found.nodes)} numbers, or decides by one")
        if isinstance(found, bool):
            return const(found, CONDITION)
        if isinstance(found, int):
            return const(found, INTEGER)
        if isinstance(found, float):
            return const(found)
        raise Untraceable(f"score_mod computes with {found!r}")

    def _called(self, step: Step) -> Any:
        name = str(step.target).removeprefix("aten.").rsplit(".", 1)[0]
        if name in SAME:
            first = step.args[0]
            return self.values[first] if isinstance(first, Step) else self.node(first)
        if name in ("index", "select") and isinstance(self.values[step.args[0]], _View):
            return self._indexed(name, self.values[step.args[0]], step.args[1:])
        handler = HANDLERS.get(name)
        operands = [self.values.get(arg) if isinstance(arg, Step) else arg for arg in step.args]
        lengths = {length for each in operands if (length := self._length(each)) is not None}
        if name == "sum" and lengths and tuple(step.args[1:2]) in (([-1],), ([0],)):
            return self._sum(self._elements(operands[0]))
        if handler is None or len(lengths) > 1:
            raise Untraceable(f"score_mod calls {step.target}, which is no expression of a score here")
        if not lengths:
            return handler(self, step)
        found = []
        for self.element in range(lengths.pop()):
            found.append(handler(self, step))
        self.element = None
        return _Row(tuple(found))

    def _length(self, value: Any) -> int | None:
        """Elements of a short row; None for any other value."""
        if isinstance(value, _Row):
            return len(value.nodes)
        if not isinstance(value, _View) or value.at.count(None) != 1 or len(value.at) == 1:
            return None
        length = self.tensors[value.which].shape[value.at.index(None)]
        return length if length <= LONGEST else None

    def _elements(self, row: _Row | _View) -> tuple[Node, ...]:
        if isinstance(row, _Row):
            return row.nodes
        at = row.at.index(None)
        parts = (row.at[:at] + (const(n, INTEGER),) + row.at[at + 1 :] for n in range(self._length(row) or 0))
        return tuple(self.node(self._settled(row._replace(at=part))) for part in parts)

    def _sum(self, parts: tuple[Node, ...]) -> Node:
        kind = INTEGER if parts[0].kind == CONDITION else parts[0].kind
        total, *rest = (converted(part, kind) for part in parts)
        for part in rest:
            total = Node("add", (total, part), kind)
        return total

    def _indexed(self, name: str, view: _View, args: Sequence[Any]) -> Any:
        free = [d for d, at in enumerate(view.at) if at is None]
        at = list(view.at)
        wanted = {args[0] % len(free): args[1]} if name == "select" else dict(enumerate(args[0]))
        for place, index in wanted.items():
            if index is not None:
                at[free[place]] = self._index(index)
        return self._settled(_View(view.which, tuple(at)))

    def _index(self, value: Any) -> Node:
        found = self.node(value)
        if found.kind == NUMBER:
            raise Untraceable("score_mod indexes a tensor with a floating-point number")
        return converted(found, INTEGER)
