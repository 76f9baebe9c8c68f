"""``score_mod`` as a `Node`: PyTorch traces the function to its operators, and these are read one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node as Step
from torch.overrides import TorchFunctionMode

from ....runtime.type_names import type_name
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


_CAPTURED = (torch.float32, torch.float64, torch.bfloat16, torch.float16, *KINDS)


def traced(score_mod: Callable[..., Tensor], dtype: torch.dtype) -> Traced:
    """The function as an expression of its score, in ``dtype``, and of where the pair is.

    Raises Untraceable, quoting the step that is none of an expression.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    index = torch.zeros((), dtype=torch.int64)
    try:
        with Indexing(), torch.enable_grad():
            graph = make_fx(score_mod, tracing_mode="real", _allow_non_fake_inputs=True)(
                torch.zeros((), dtype=dtype), index, index.clone(), index.clone(), index.clone()
            )
    except Exception as error:
        raise Untraceable(f"score_mod cannot be traced: {type(error).__name__}: {error}") from error
    return _Reader(graph).read()


def _stored(dtype: torch.dtype) -> str:
    """The type that kernels read."""
    return "uint8" if dtype in (torch.bool, torch.uint8) else type_name(dtype)


class Indexing(TorchFunctionMode):
    """``x[i, j]`` of tensors i and j without dimensions is an index, not a choice by the numbers that they hold."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            x, at = args
            at = at if isinstance(at, tuple) else (at,)
            if any(isinstance(each, Tensor) for each in at) and all(isinstance(each, (Tensor, int)) for each in at):
                return torch.ops.aten.index(x, [torch.as_tensor(each) for each in at])
        return func(*args, **(kwargs or {}))


class _Reader:
    """Reads the steps of a traced function."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        self.graph = graph
        self.tensors: list[Tensor] = []
        self.values: dict[Step, Any] = {}

    def read(self) -> Traced:
        leaves = iter((SCORE, *PLACES))
        for step in self.graph.graph.nodes:
            if step.op == "placeholder":
                self.values[step] = next(leaves)
            elif step.op == "get_attr":
                self.values[step] = self._captured(getattr(self.graph, step.target))
            elif step.op == "call_function":
                self.values[step] = self._called(step)
            elif step.op == "output":
                found = self.node(step.args[0])
                kinds = tuple((_stored(x.dtype), x.dim()) for x in self.tensors)
                return Traced(Modifier(converted(found, NUMBER), kinds), tuple(self.tensors))
        raise Untraceable("score_mod returns nothing")

    def _captured(self, x: Tensor) -> Any:
        if x.dim() == 0 and not x.requires_grad and x.device.type == "cpu" and x.dtype in _CAPTURED:
            return const(x.item(), kind_of(x.dtype))  # a number that the function was made with
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
        if isinstance(found, Node):
            return found
        if isinstance(found, _View):
            raise Untraceable(
                f"score_mod computes with all of a tensor {tuple(self.tensors[found.which].shape)}: compute that "
                "before, and index it"
            )
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
        if handler is None:
            raise Untraceable(f"score_mod calls {step.target}, which is no expression of a score here")
        return handler(self, step)

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
