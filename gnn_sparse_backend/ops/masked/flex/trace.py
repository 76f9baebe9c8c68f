"""``score_mod`` as a `Node`: PyTorch traces the function to its operators, and these are read one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node as Step
from torch.overrides import TorchFunctionMode

from ....runtime.type_names import type_name
from ..programs.modifier import CONDITION, INTEGER, NUMBER, PLACES, SCORE, Modifier, Node, const


class Untraceable(TypeError):
    """A ``score_mod`` that kernels cannot compute; the text says which step of it."""


class Traced(NamedTuple):
    """modifier: what kernels are made of. tensors: those that it reads, in their order."""

    modifier: Modifier
    tensors: tuple[Tensor, ...]


class _View(NamedTuple):
    """A captured tensor of which some dimensions have an index already. at: one for each dimension, or None."""

    which: int
    at: tuple[Node | None, ...]


_KINDS = {torch.bool: CONDITION, torch.int64: INTEGER, torch.int32: INTEGER, torch.uint8: INTEGER}
_CAPTURED = (torch.float32, torch.float64, torch.bfloat16, torch.float16, *_KINDS)


def traced(score_mod: Callable[..., Tensor], dtype: torch.dtype) -> Traced:
    """The function as an expression of its score, in ``dtype``, and of where the pair is.

    Raises Untraceable, quoting the step that is none of an expression.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    index = torch.zeros((), dtype=torch.int64)
    try:
        with _Indexing(), torch.enable_grad():
            graph = make_fx(score_mod, tracing_mode="real", _allow_non_fake_inputs=True)(
                torch.zeros((), dtype=dtype), index, index.clone(), index.clone(), index.clone()
            )
    except Exception as error:
        raise Untraceable(f"score_mod cannot be traced: {type(error).__name__}: {error}") from error
    return _Reader(graph).read()


class _Indexing(TorchFunctionMode):
    """``x[i, j]`` of tensors i and j without dimensions is an index, not a choice by the numbers that they hold."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            x, at = args
            at = at if isinstance(at, tuple) else (at,)
            if any(isinstance(each, Tensor) for each in at) and all(isinstance(each, (Tensor, int)) for each in at):
                return torch.ops.aten.index(x, [torch.as_tensor(each) for each in at])
        return func(*args, **(kwargs or {}))


def _kind(dtype: torch.dtype) -> str:
    return NUMBER if dtype.is_floating_point else _KINDS.get(dtype, INTEGER)


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
                found = self._node(step.args[0])
                kinds = tuple((type_name(x.dtype), x.dim()) for x in self.tensors)
                return Traced(Modifier(_to(found, NUMBER), kinds), tuple(self.tensors))
        raise Untraceable("score_mod returns nothing")

    def _captured(self, x: Tensor) -> Any:
        if x.dim() == 0 and not x.requires_grad and x.device.type == "cpu" and x.dtype in _CAPTURED:
            return const(x.item(), _kind(x.dtype))  # a number that the function was made with
        if x.dtype not in _CAPTURED or x.layout is not torch.strided or not x.numel():
            raise Untraceable(f"score_mod reads a tensor {tuple(x.shape)} of {x.dtype} and layout {x.layout}")
        which = next((n for n, other in enumerate(self.tensors) if other is x), len(self.tensors))
        if which == len(self.tensors):
            self.tensors.append(x)
        return self._settled(_View(which, (None,) * x.dim()))

    def _settled(self, view: _View) -> Node | _View:
        if None in view.at:
            return view
        return Node("load", (view.which, *view.at), _kind(self.tensors[view.which].dtype))

    def _node(self, value: Any) -> Node:
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
        if name in _SAME:
            first = step.args[0]
            return self.values[first] if isinstance(first, Step) else self._node(first)
        if name in ("index", "select") and isinstance(self.values[step.args[0]], _View):
            return self._indexed(name, self.values[step.args[0]], step.args[1:])
        handler = _HANDLERS.get(name)
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
        found = self._node(value)
        if found.kind == NUMBER:
            raise Untraceable("score_mod indexes a tensor with a floating-point number")
        return _to(found, INTEGER)


def _to(node: Node, kind: str) -> Node:
    """The node converted to a kind."""
    if node.kind == kind:
        return node
    if node.op == "const":
        value = node.parts[0]
        return const({NUMBER: float, INTEGER: int, CONDITION: bool}[kind](value), kind)
    return Node("to", (node,), kind)


def _together(*nodes: Node) -> tuple[list[Node], str]:
    """Operands in their common kind."""
    kinds = {node.kind for node in nodes}
    kind = NUMBER if NUMBER in kinds else INTEGER if INTEGER in kinds else CONDITION
    return [_to(node, kind) for node in nodes], kind


def _arithmetic(op: str, swapped: bool = False) -> Callable[[_Reader, Step], Node]:
    """alpha: what PyTorch has the second of both, in the order of the operation, multiplied by."""

    def handler(reader: _Reader, step: Step) -> Node:
        (x, y), kind = _together(*map(reader._node, step.args[:2]))
        if swapped:
            x, y = y, x
        if kind == CONDITION:
            (x, y), kind = [_to(x, INTEGER), _to(y, INTEGER)], INTEGER
        alpha = step.kwargs.get("alpha", step.args[2] if len(step.args) > 2 else 1)
        if alpha != 1:
            y = Node("mul", (y, const(alpha, kind)), kind)
        return Node(op, (x, y), kind)

    return handler


def _quotient(reader: _Reader, step: Step) -> Node:
    rounding = step.kwargs.get("rounding_mode")
    (x, y), kind = _together(*map(reader._node, step.args[:2]))
    if rounding is None:
        return Node("div", (_to(x, NUMBER), _to(y, NUMBER)))
    if rounding != "floor" or kind != INTEGER:
        raise Untraceable(f"score_mod divides and rounds by {rounding!r}: only whole numbers are, to the floor")
    return Node("floor_div", (x, y), INTEGER)


def _whole(op: str) -> Callable[[_Reader, Step], Node]:
    def handler(reader: _Reader, step: Step) -> Node:
        (x, y), kind = _together(*map(reader._node, step.args[:2]))
        if kind != INTEGER:
            raise Untraceable(f"score_mod calls {step.target} of numbers that are not whole")
        return Node(op, (x, y), INTEGER)

    return handler


def _compared(op: str, swapped: bool = False) -> Callable[[_Reader, Step], Node]:
    def handler(reader: _Reader, step: Step) -> Node:
        (x, y), kind = _together(*map(reader._node, step.args[:2]))
        if kind == CONDITION:
            x, y = _to(x, INTEGER), _to(y, INTEGER)
        return Node(op, (y, x) if swapped else (x, y), CONDITION)

    return handler


def _logical(op: str) -> Callable[[_Reader, Step], Node]:
    def handler(reader: _Reader, step: Step) -> Node:
        parts = [reader._node(arg) for arg in step.args[:2]]
        if "bitwise" in str(step.target) and any(part.kind != CONDITION for part in parts):
            raise Untraceable(f"score_mod calls {step.target} of numbers")
        return Node(op, tuple(_to(part, CONDITION) for part in parts), CONDITION)

    return handler


def _negated(reader: _Reader, step: Step) -> Node:
    found = reader._node(step.args[0])
    if "bitwise" in str(step.target) and found.kind != CONDITION:
        raise Untraceable(f"score_mod calls {step.target} of numbers")
    return Node("equal", (_to(_to(found, CONDITION), INTEGER), const(0, INTEGER)), CONDITION)


def _function(op: str) -> Callable[[_Reader, Step], Node]:
    return lambda reader, step: Node(op, (_to(reader._node(step.args[0]), NUMBER),))


def _unary(op: str) -> Callable[[_Reader, Step], Node]:
    def handler(reader: _Reader, step: Step) -> Node:
        found = reader._node(step.args[0])
        kind = found.kind if found.kind != CONDITION else INTEGER
        found = _to(found, kind)
        if op == "neg":
            return Node("neg", (found,), kind)
        if kind == INTEGER:
            return Node("max", (found, Node("neg", (found,), kind)), kind)
        return Node("abs", (found,), kind)

    return handler


def _where(reader: _Reader, step: Step) -> Node:
    condition, *ways = map(reader._node, step.args)
    ways, kind = _together(*ways)
    if kind == CONDITION:
        ways, kind = [_to(way, INTEGER) for way in ways], INTEGER
        return _to(Node("where", (_to(condition, CONDITION), *ways), kind), CONDITION)
    return Node("where", (_to(condition, CONDITION), *ways), kind)


def _clamped(reader: _Reader, step: Step) -> Node:
    """The derivative is 1 at either end, as PyTorch has it: a choice, not the larger of two."""
    given = [*step.args[1:], None, None][:2]
    low, high = (step.kwargs.get(name, given[n]) for n, name in enumerate(("min", "max")))
    name = str(step.target)
    if "clamp_max" in name:
        low, high = None, given[0]
    found = reader._node(step.args[0])
    for end, beyond in ((low, lambda x, e: (x, e)), (high, lambda x, e: (e, x))):
        if end is None:
            continue
        (found, limit), kind = _together(found, reader._node(end))
        found = Node("where", (Node("less", beyond(found, limit), CONDITION), limit, found), kind)
    return found


def _rectified(reader: _Reader, step: Step) -> Node:
    found = _to(reader._node(step.args[0]), NUMBER)
    return Node("where", (Node("less_equal", (found, const(0.0)), CONDITION), const(0.0), found))


def _power(reader: _Reader, step: Step) -> Node:
    base, exponent = reader._node(step.args[0]), step.args[1] if len(step.args) > 1 else 2
    if "square" in str(step.target):
        exponent = 2
    if not isinstance(exponent, (int, float)):
        raise Untraceable("score_mod raises to a power that is no number of the program")
    if exponent == 0.5:
        return Node("sqrt", (_to(base, NUMBER),))
    if exponent != int(exponent) or not 1 <= abs(exponent) <= 8:
        raise Untraceable(f"score_mod raises to the power {exponent}: whole ones up to 8 are taken, and 0.5")
    kind = base.kind if base.kind != CONDITION and exponent > 0 and isinstance(exponent, int) else NUMBER
    base = found = _to(base, kind)
    for _ in range(abs(int(exponent)) - 1):
        found = Node("mul", (found, base), kind)
    return Node("div", (const(1.0), found)) if exponent < 0 else found


def _inverse_root(reader: _Reader, step: Step) -> Node:
    return Node("div", (const(1.0), Node("sqrt", (_to(reader._node(step.args[0]), NUMBER),))))


def _scaled(op: str, before: float = 1.0, after: float = 1.0) -> Callable[[_Reader, Step], Node]:
    def handler(reader: _Reader, step: Step) -> Node:
        found = _to(reader._node(step.args[0]), NUMBER)
        found = Node(op, (found if before == 1.0 else Node("mul", (found, const(before))),))
        return found if after == 1.0 else Node("mul", (found, const(after)))

    return handler


def _converted(reader: _Reader, step: Step) -> Node:
    dtype = step.kwargs.get("dtype")
    if dtype is None:
        dtype = next((arg for arg in step.args[1:] if isinstance(arg, torch.dtype)), None)
    found = reader._node(step.args[0])
    if dtype is None:
        return found
    if found.kind == NUMBER and _kind(dtype) == INTEGER:
        raise Untraceable("score_mod makes a whole number of a number: round indices before")
    return _to(found, _kind(dtype))


def _made(value: float | None) -> Callable[[_Reader, Step], Node]:
    def handler(reader: _Reader, step: Step) -> Node:
        example = step.meta.get("val")
        kind = _kind(example.dtype) if isinstance(example, Tensor) else NUMBER
        shape = tuple(example.shape) if isinstance(example, Tensor) else ()
        if shape:
            raise Untraceable(f"score_mod makes a tensor {shape} by {step.target}")
        given = value
        if given is None:
            given = next(arg for arg in reversed(step.args) if isinstance(arg, (bool, int, float)))
        return _to(reader._node(given), kind)

    return handler


_SAME = frozenset(
    "alias clone detach lift_fresh lift_fresh_copy view expand reshape squeeze _unsafe_view contiguous".split()
)
_HANDLERS: dict[str, Callable[[_Reader, Step], Node]] = {
    "add": _arithmetic("add"),
    "sub": _arithmetic("sub"),
    "rsub": _arithmetic("sub", swapped=True),
    "mul": _arithmetic("mul"),
    "div": _quotient,
    "floor_divide": _whole("floor_div"),
    "remainder": _whole("mod"),
    "minimum": _arithmetic("min"),
    "maximum": _arithmetic("max"),
    "neg": _unary("neg"),
    "abs": _unary("abs"),
    "lt": _compared("less"),
    "le": _compared("less_equal"),
    "gt": _compared("less", swapped=True),
    "ge": _compared("less_equal", swapped=True),
    "eq": _compared("equal"),
    "ne": _compared("differ"),
    **{name: _logical("and") for name in ("logical_and", "bitwise_and", "__and__")},
    **{name: _logical("or") for name in ("logical_or", "bitwise_or", "__or__")},
    **dict.fromkeys(("logical_not", "bitwise_not"), _negated),
    "where": _where,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _clamped),
    "relu": _rectified,
    "pow": _power,
    "square": _power,
    "rsqrt": _inverse_root,
    "exp2": _scaled("exp", before=math.log(2.0)),
    "log2": _scaled("log", after=1.0 / math.log(2.0)),
    "log10": _scaled("log", after=1.0 / math.log(10.0)),
    **{name: _function(name) for name in ("exp", "log", "sqrt", "tanh", "sigmoid")},
    **dict.fromkeys(("_to_copy", "to", "convert_element_type"), _converted),
    **{name: _made(None) for name in ("full", "full_like", "new_full", "scalar_tensor")},
    **{name: _made(0.0) for name in ("zeros_like", "new_zeros", "zeros")},
    **{name: _made(1.0) for name in ("ones_like", "new_ones", "ones")},
}
