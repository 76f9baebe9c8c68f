"""What each operator of PyTorch in a traced function is as a `Node`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx import Node as Step

from ..programs.modifier import CONDITION, INTEGER, NUMBER, Node, const


class Untraceable(TypeError):
    """A ``score_mod`` that kernels cannot compute; the text says which step of it."""


class Reader(Protocol):
    """Who reads the steps of a function, one after the other."""

    def node(self, value: Any) -> Node:
        """What an earlier step, or a number, is."""


KINDS = {torch.bool: CONDITION, torch.int64: INTEGER, torch.int32: INTEGER, torch.uint8: INTEGER}


def kind_of(dtype: torch.dtype) -> str:
    """The kind of value that a type holds."""
    return NUMBER if dtype.is_floating_point else KINDS.get(dtype, INTEGER)


def converted(node: Node, kind: str) -> Node:
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
    return [converted(node, kind) for node in nodes], kind


def _arithmetic(op: str, swapped: bool = False) -> Callable[[Reader, Step], Node]:
    """alpha: what PyTorch has the second of both, in the order of the operation, multiplied by."""

    def handler(reader: Reader, step: Step) -> Node:
        (x, y), kind = _together(*map(reader.node, step.args[:2]))
        if swapped:
            x, y = y, x
        if kind == CONDITION:
            (x, y), kind = [converted(x, INTEGER), converted(y, INTEGER)], INTEGER
        alpha = step.kwargs.get("alpha", step.args[2] if len(step.args) > 2 else 1)
        if alpha != 1:
            y = Node("mul", (y, const(alpha, kind)), kind)
        return Node(op, (x, y), kind)

    return handler


def _quotient(reader: Reader, step: Step) -> Node:
    rounding = step.kwargs.get("rounding_mode")
    (x, y), kind = _together(*map(reader.node, step.args[:2]))
    if rounding is None:
        return Node("div", (converted(x, NUMBER), converted(y, NUMBER)))
    if rounding != "floor" or kind != INTEGER:
        raise Untraceable(f"score_mod divides and rounds by {rounding!r}: only whole numbers are, to the floor")
    return Node("floor_div", (x, y), INTEGER)


def _whole(op: str) -> Callable[[Reader, Step], Node]:
    def handler(reader: Reader, step: Step) -> Node:
        (x, y), kind = _together(*map(reader.node, step.args[:2]))
        if kind != INTEGER:
            raise Untraceable(f"score_mod calls {step.target} of numbers that are not whole")
        return Node(op, (x, y), INTEGER)

    return handler


def _compared(op: str, swapped: bool = False) -> Callable[[Reader, Step], Node]:
    def handler(reader: Reader, step: Step) -> Node:
        (x, y), kind = _together(*map(reader.node, step.args[:2]))
        if kind == CONDITION:
            x, y = converted(x, INTEGER), converted(y, INTEGER)
        return Node(op, (y, x) if swapped else (x, y), CONDITION)

    return handler


def _logical(op: str) -> Callable[[Reader, Step], Node]:
    def handler(reader: Reader, step: Step) -> Node:
        parts = [reader.node(arg) for arg in step.args[:2]]
        if "bitwise" in str(step.target) and any(part.kind != CONDITION for part in parts):
            raise Untraceable(f"score_mod calls {step.target} of numbers")
        return Node(op, tuple(converted(part, CONDITION) for part in parts), CONDITION)

    return handler


def _negated(reader: Reader, step: Step) -> Node:
    found = reader.node(step.args[0])
    if "bitwise" in str(step.target) and found.kind != CONDITION:
        raise Untraceable(f"score_mod calls {step.target} of numbers")
    return Node("equal", (converted(converted(found, CONDITION), INTEGER), const(0, INTEGER)), CONDITION)


def _function(op: str) -> Callable[[Reader, Step], Node]:
    return lambda reader, step: Node(op, (converted(reader.node(step.args[0]), NUMBER),))


def _unary(op: str) -> Callable[[Reader, Step], Node]:
    def handler(reader: Reader, step: Step) -> Node:
        found = reader.node(step.args[0])
        kind = found.kind if found.kind != CONDITION else INTEGER
        found = converted(found, kind)
        if op == "neg":
            return Node("neg", (found,), kind)
        if kind == INTEGER:
            return Node("max", (found, Node("neg", (found,), kind)), kind)
        return Node("abs", (found,), kind)

    return handler


def _where(reader: Reader, step: Step) -> Node:
    condition, *ways = map(reader.node, step.args)
    ways, kind = _together(*ways)
    if kind == CONDITION:
        ways, kind = [converted(way, INTEGER) for way in ways], INTEGER
        return converted(Node("where", (converted(condition, CONDITION), *ways), kind), CONDITION)
    return Node("where", (converted(condition, CONDITION), *ways), kind)


def _filled(reader: Reader, step: Step) -> Node:
    found, condition, value = map(reader.node, step.args)
    return Node("where", (converted(condition, CONDITION), converted(value, found.kind), found), found.kind)


def _one_of_two(reader: Reader, step: Step) -> Node:
    parts = [reader.node(arg) for arg in step.args[:2]]
    if "bitwise" in str(step.target) and any(part.kind != CONDITION for part in parts):
        raise Untraceable(f"score_mod calls {step.target} of numbers")
    return Node("differ", tuple(converted(converted(part, CONDITION), INTEGER) for part in parts), CONDITION)


def _tangent(reader: Reader, step: Step) -> Node:
    found = converted(reader.node(step.args[0]), NUMBER)
    return Node("div", (Node("sin", (found,)), Node("cos", (found,))))


def _swish(reader: Reader, step: Step) -> Node:
    found = converted(reader.node(step.args[0]), NUMBER)
    return Node("mul", (found, Node("sigmoid", (found,))))


def _sign(reader: Reader, step: Step) -> Node:
    found = reader.node(step.args[0])
    kind = INTEGER if found.kind == CONDITION else found.kind
    found, zero = converted(found, kind), converted(const(0, INTEGER), kind)
    below = Node("where", (Node("less", (found, zero), CONDITION), converted(const(-1, INTEGER), kind), zero), kind)
    return Node("where", (Node("less", (zero, found), CONDITION), converted(const(1, INTEGER), kind), below), kind)


def _clamped(reader: Reader, step: Step) -> Node:
    """The derivative is 1 at either end, as PyTorch has it: a choice, not the larger of two."""
    given = [*step.args[1:], None, None][:2]
    low, high = (step.kwargs.get(name, given[n]) for n, name in enumerate(("min", "max")))
    name = str(step.target)
    if "clamp_max" in name:
        low, high = None, given[0]
    found = reader.node(step.args[0])
    for end, beyond in ((low, lambda x, e: (x, e)), (high, lambda x, e: (e, x))):
        if end is None:
            continue
        (found, limit), kind = _together(found, reader.node(end))
        found = Node("where", (Node("less", beyond(found, limit), CONDITION), limit, found), kind)
    return found


def _rectified(reader: Reader, step: Step) -> Node:
    found = converted(reader.node(step.args[0]), NUMBER)
    return Node("where", (Node("less_equal", (found, const(0.0)), CONDITION), const(0.0), found))


def _power(reader: Reader, step: Step) -> Node:
    base, exponent = reader.node(step.args[0]), step.args[1] if len(step.args) > 1 else 2
    if "square" in str(step.target):
        exponent = 2
    if not isinstance(exponent, (int, float)):
        raise Untraceable("score_mod raises to a power that is no number of the program")
    if exponent == 0.5:
        return Node("sqrt", (converted(base, NUMBER),))
    if exponent != int(exponent) or not 1 <= abs(exponent) <= 8:
        raise Untraceable(f"score_mod raises to the power {exponent}: whole ones up to 8 are taken, and 0.5")
    kind = base.kind if base.kind != CONDITION and exponent > 0 and isinstance(exponent, int) else NUMBER
    base = found = converted(base, kind)
    for _ in range(abs(int(exponent)) - 1):
        found = Node("mul", (found, base), kind)
    return Node("div", (const(1.0), found)) if exponent < 0 else found


def _inverse(reader: Reader, step: Step) -> Node:
    return Node("div", (const(1.0), converted(reader.node(step.args[0]), NUMBER)))


def _inverse_root(reader: Reader, step: Step) -> Node:
    return Node("div", (const(1.0), Node("sqrt", (converted(reader.node(step.args[0]), NUMBER),))))


def _scaled(op: str, before: float = 1.0, after: float = 1.0) -> Callable[[Reader, Step], Node]:
    def handler(reader: Reader, step: Step) -> Node:
        found = converted(reader.node(step.args[0]), NUMBER)
        found = Node(op, (found if before == 1.0 else Node("mul", (found, const(before))),))
        return found if after == 1.0 else Node("mul", (found, const(after)))

    return handler


def _of_type(reader: Reader, step: Step) -> Node:
    dtype = step.kwargs.get("dtype")
    if dtype is None:
        dtype = next((arg for arg in step.args[1:] if isinstance(arg, torch.dtype)), None)
    found = reader.node(step.args[0])
    if dtype is None:
        return found
    if found.kind == NUMBER and kind_of(dtype) == INTEGER:
        raise Untraceable("score_mod makes a whole number of a number: round indices before")
    return converted(found, kind_of(dtype))


def _made(value: float | None) -> Callable[[Reader, Step], Node]:
    def handler(reader: Reader, step: Step) -> Node:
        example = step.meta.get("val")
        kind = kind_of(example.dtype) if isinstance(example, Tensor) else NUMBER
        shape = tuple(example.shape) if isinstance(example, Tensor) else ()
        if shape:
            raise Untraceable(f"score_mod makes a tensor {shape} by {step.target}")
        given = value
        if given is None:
            given = next(arg for arg in reversed(step.args) if isinstance(arg, (bool, int, float)))
        return converted(reader.node(given), kind)

    return handler


SAME = frozenset(
    "alias clone detach lift_fresh lift_fresh_copy view expand reshape squeeze _unsafe_view contiguous".split()
)
HANDLERS: dict[str, Callable[[Reader, Step], Node]] = {
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
    **dict.fromkeys(("logical_xor", "bitwise_xor", "__xor__"), _one_of_two),
    **{name: _logical("or") for name in ("logical_or", "bitwise_or", "__or__")},
    **dict.fromkeys(("logical_not", "bitwise_not"), _negated),
    "where": _where,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _clamped),
    "relu": _rectified,
    "pow": _power,
    "square": _power,
    "rsqrt": _inverse_root,
    "reciprocal": _inverse,
    "exp2": _scaled("exp", before=math.log(2.0)),
    "log2": _scaled("log", after=1.0 / math.log(2.0)),
    "log10": _scaled("log", after=1.0 / math.log(10.0)),
    **{name: _function(name) for name in ("exp", "log", "sqrt", "tanh", "sigmoid", "sin", "cos")},
    "tan": _tangent,
    "silu": _swish,
    "sign": _sign,
    "masked_fill": _filled,
    **dict.fromkeys(("_to_copy", "to", "convert_element_type"), _of_type),
    **{name: _made(None) for name in ("full", "full_like", "new_full", "scalar_tensor")},
    **{name: _made(0.0) for name in ("zeros_like", "new_zeros", "zeros")},
    **{name: _made(1.0) for name in ("ones_like", "new_ones", "ones")},
}
