"""Numbers of nodes and of edges, as a reduce function sees them, and all that such a function may do with them.

Messages stand at their edges, (edges, ...), and say that they are (nodes, degree, ...). What goes over ``dim=1`` is an
operator on the graph; what treats every row for itself runs on the rows. None of it draws numbers or writes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..lazy_edges import computed
from ..structure import rows_in_order

NODE, ONE, EDGE = "nodes", "nodes, one each", "edges"
"""What rows stand for: of shapes (nodes, ...), (nodes, 1, ...) and (nodes, degree, ...) to the function."""
COUNT = "a number"
"""What is one number to the function, as the degree is, and another for each node: (nodes,) in float64."""


class Unknown(Exception):
    """A function does something that is not known to treat each row for itself."""


class _Extreme(NamedTuple):
    """What ``max`` and ``min`` over a dimension give. Nobody knows which of the messages it was."""

    values: Rows

    @property
    def indices(self):
        raise Unknown("indices of a maximum")

    def __getitem__(self, at):
        return self.values if at == 0 else self.indices


class Rows:
    """Numbers of nodes or edges. x: (rows, ...). at: `NODE`, `ONE`, `EDGE` or `COUNT`. inbox: with ``graph``, and
    operators on it.
    """

    __slots__ = ("at", "inbox", "x")

    def __init__(self, inbox: Any, x: Tensor, at: str):
        self.inbox, self.x, self.at = inbox, x, at

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return _apply(getattr(func, "__name__", str(func)), args, kwargs or {})

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: _apply(name, (self, *args), kwargs)

    def __eq__(self, other: object) -> bool:
        raise Unknown("a comparison")

    def __bool__(self) -> bool:
        raise Unknown("a decision")

    __hash__ = None  # type: ignore[assignment]

    @property
    def shape(self) -> _Shape:
        return _Shape(self)

    def size(self, dim: Any = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @property
    def ahead(self) -> int:
        """How many dimensions it says it has before its features; it has one."""
        return 1 if self.at == NODE else 2

    def like(self, x: Tensor, at: str | None = None) -> Rows:
        return Rows(self.inbox, x, self.at if at is None else at)

    def dimension(self, dim: Any) -> int:
        """One of its dimensions, counted from the beginning as the function sees them."""
        if type(dim) is not int or self.at == COUNT:
            raise Unknown("several dimensions, or none")
        return dim + (self.x.dim() - 1 + self.ahead) * (dim < 0)


class _Shape:
    """The shape of rows to the function. Degrees are `COUNT`, and how many nodes a call is for is not told."""

    def __init__(self, rows: Rows):
        self.rows = rows

    def __getitem__(self, dim: Any) -> Any:
        rows, at = self.rows, self.rows.dimension(dim)
        if at >= rows.ahead:
            return rows.x.shape[at - rows.ahead + 1]
        if at != 1:
            raise Unknown("how many nodes there are")
        return 1 if rows.at == ONE else rows.like(rows.inbox.degrees(), COUNT)


def _binary(name: str) -> Callable:
    return lambda self, other: _apply(name, (self, other), {})


def _reflected(name: str) -> Callable:
    return lambda self, other: _apply(name, (other, self), {})


for _name, _sign in {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "pow": "pow",
    "matmul": "matmul",
}.items():
    setattr(Rows, f"__{_name}__", _binary(_sign))
    setattr(Rows, f"__r{_name}__", _reflected(_sign))
for _name in ("iadd", "isub", "imul", "itruediv", "ipow"):  # whose result others would see who have the same numbers
    setattr(Rows, f"__{_name}__", _binary(_name))
Rows.__neg__ = lambda self: _apply("neg", (self,), {})  # type: ignore[attr-defined]

_EACH: dict[str, Callable] = {
    name: getattr(torch, name)
    for name in "exp log log1p sqrt rsqrt square abs sign neg sigmoid tanh sin cos clamp".split()
} | {name: getattr(F, name) for name in "relu leaky_relu elu gelu silu softplus".split()}
"""Functions of every number for itself."""

_OF_TWO: dict[str, Callable] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "true_divide": operator.truediv,
    "pow": operator.pow,
}
_REDUCES = ("sum", "mean", "max", "min")


def _apply(name: str, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    name = name.strip("_") if name.startswith("__") else name
    if name in _EACH:
        first, *more = args
        if any(isinstance(each, (Rows, Tensor)) for each in (*more, *kwargs.values())) or kwargs.get("inplace"):
            raise Unknown(name)
        return first.like(_EACH[name](first.x, *more, **kwargs))
    if name in _OF_TWO and len(args) == 2 and not kwargs:
        return _of_two(_OF_TWO[name], *args)
    if name in ("linear", "matmul") and not kwargs.keys() - {"bias"}:
        return _mapped(name, *args, **kwargs)
    if name in _REDUCES or name == "softmax":
        return _over(name, *args, **kwargs)
    if name in ("cat", "concat"):
        return _joined(*args, **kwargs)
    if name in ("unsqueeze", "squeeze"):
        return _resized(name, *args, **kwargs)
    raise Unknown(name)


def in_numbers(x: Any, function: str) -> Any:
    """Messages that are lazy, computed."""
    return computed(x, f"the message is used by {function}")


def _of_two(function: Callable, first: Any, second: Any) -> Rows:
    rows = [x for x in (first, second) if isinstance(x, Rows)]
    wide = max(rows, key=lambda x: (COUNT, NODE, ONE, EDGE).index(x.at))
    if wide.at != COUNT:
        first, second = (_beside(x, wide) for x in (first, second))
        rows = [x for x in (first, second) if isinstance(x, Rows)]
    if wide.at == EDGE and any(x.at == NODE for x in rows):
        raise Unknown("numbers of nodes beside messages, without unsqueeze(1)")
    if len(rows) == 2 and (rows[0].x.dim() != rows[1].x.dim() or {x.at for x in rows} == {NODE, ONE}):
        raise Unknown("numbers of other dimensions")
    given = []
    for x in (first, second):
        if isinstance(x, Rows):
            given.append(x.inbox.at_edges(x.x) if x.at == ONE and wide.at == EDGE else x.x)
        elif isinstance(x, Tensor) and (x.dim() >= wide.x.dim() or wide.at == COUNT):
            raise Unknown("a tensor of as many dimensions")
        elif isinstance(x, (Tensor, int, float)):
            given.append(x)
        else:
            raise Unknown(type(x).__name__)
    return wide.like(function(*given))


def _beside(x: Any, wide: Rows) -> Any:
    """A number for each node, as rows of the other operand; all else as it is."""
    if not isinstance(x, Rows) or x.at != COUNT:
        return x
    if not wide.x.dtype.is_floating_point:
        raise Unknown("degrees beside integers")
    numbers = x.x.to(wide.x.dtype).view(-1, *[1] * (wide.x.dim() - 1))
    return wide.like(x.inbox.at_edges(numbers) if wide.at == EDGE else numbers)


def _mapped(name: str, x: Any, weight: Any, bias: Tensor | None = None) -> Rows:
    if not isinstance(x, Rows) or not isinstance(weight, Tensor) or weight.dim() != 2 or x.x.dim() < 2:
        raise Unknown(name)
    return x.like(F.linear(in_numbers(x.x, name), weight, bias) if name == "linear" else in_numbers(x.x, name) @ weight)


def _over(name: str, x: Rows, dim: Any = None, keepdim: bool = False, **more: Any) -> Rows | _Extreme:
    """A reduction or softmax over a dimension: over the messages of each node, or over features."""
    dim = more.pop("axis", dim)
    if not isinstance(x, Rows) or set(more) - {"_stacklevel", "dtype"} or more.get("dtype") is not None:
        raise Unknown(name)
    if name == "softmax" and type(keepdim) is int:  # `torch.nn.functional.softmax` hands on how deep it is called
        keepdim = False
    at = x.dimension(dim)
    if at >= x.ahead:
        inner = at - x.ahead + 1
        if name == "softmax":
            return x.like(torch.softmax(in_numbers(x.x, name), inner))
        found = getattr(torch, name)(in_numbers(x.x, name), inner, keepdim=keepdim)
        return x.like(found) if isinstance(found, Tensor) else _Extreme(x.like(found[0]))
    if at != 1 or x.at != EDGE:
        raise Unknown(f"{name} over nodes")
    inbox = x.inbox
    if name == "softmax":
        return x.like(inbox.softmax(x.x))
    chooses = name in ("max", "min")
    if chooses:
        x = x.like(in_numbers(x.x, name))
        # DGL's maxima know no NaN, and give 0 for infinity; and of equal ones PyTorch's is the first of the edges
        if not isfinite(x.x.detach().sum()) or not rows_in_order(inbox.graph._graph):
            raise Unknown(f"{name} of numbers that are not finite, or of rows in another order")
    found = x.like(inbox.reduced(x.x, name), ONE if keepdim else NODE)
    return _Extreme(found) if chooses else found


def _joined(parts: Any, dim: Any = 0) -> Rows:
    if not all(isinstance(x, Rows) for x in parts) or len({(x.at, x.x.dim()) for x in parts}) > 1:
        raise Unknown("cat of other numbers")
    first = parts[0]
    at = first.dimension(dim)
    if at < first.ahead:
        raise Unknown("cat over nodes or messages")
    return first.like(torch.cat([in_numbers(x.x, "cat") for x in parts], at - first.ahead + 1))


def _resized(name: str, x: Any, dim: Any = None) -> Rows:
    if not isinstance(x, Rows) or x.at == COUNT or type(dim) is not int:
        raise Unknown(name)
    seen = x.x.dim() - 1 + x.ahead
    at = dim + (seen + (name == "unsqueeze")) * (dim < 0)
    if at > x.ahead or (at == x.ahead and (name == "squeeze" or x.at != NODE)) or (at >= 2 and x.at == NODE):
        return x.like(getattr(in_numbers(x.x, name), name)(at - x.ahead + 1))
    if at == 1 and (name, x.at) in (("unsqueeze", NODE), ("squeeze", ONE)):
        return x.like(x.x, ONE if name == "unsqueeze" else NODE)
    raise Unknown(name)
