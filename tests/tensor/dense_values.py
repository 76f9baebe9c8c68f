"""What an expression computes of dense tensors, in PyTorch's float64, and how far a kernel may be from that.

Expressions are read by Python's own parser. Products are written out, and each is an array with a dimension for every
index, summed over those that the result has not.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add, mul

import torch

FUNCTIONS = {name: getattr(torch, name) for name in ("exp", "log", "sqrt", "tanh", "sigmoid", "abs", "relu")}
EXACT = ("abs", "relu")
ULP = 3
"""Units in the last place by which functions of kernels may be off: docs/design/arithmetic.md says 2.5."""


@dataclass(frozen=True)
class Near:
    """Values, what they may be off by, and the absolute values of what was added up to them. unit: of rounding."""

    value: torch.Tensor
    off: torch.Tensor
    size: torch.Tensor
    unit: float

    @classmethod
    def exactly(cls, x: torch.Tensor, unit: float) -> Near:
        return cls(x, torch.zeros_like(x, requires_grad=False), x.detach().abs(), unit)

    def _rounded(self, value: torch.Tensor, off: torch.Tensor, size: torch.Tensor) -> Near:
        return Near(value, off + self.unit * size, size, self.unit)

    def __add__(self, other: Near) -> Near:
        return self._rounded(self.value + other.value, self.off + other.off, self.size + other.size)

    def __mul__(self, other: Near) -> Near:
        off = self.size * other.off + other.size * self.off + self.off * other.off
        return self._rounded(self.value * other.value, off, self.size * other.size)

    def inverse(self) -> Near:
        value = 1 / self.value
        size = value.detach().abs()
        return self._rounded(value, size * size * self.off, size)

    def of(self, function: str) -> Near:
        f, x = FUNCTIONS[function], self.value.detach()
        value = f(self.value)
        off = torch.maximum(*((f(x + e) - f(x)).abs() for e in (self.off, -self.off))).nan_to_num(0)
        size = value.detach().abs()
        return Near(value, off + (0 if function in EXACT else ULP) * self.unit * size, size, self.unit)

    def sum(self, dims: list[int]) -> Near:
        if not dims:
            return self
        count = reduce(mul, (self.value.shape[d] for d in dims), 1)
        value, off, size = (x.sum(dims, keepdim=True) for x in (self.value, self.off, self.size))
        return Near(value, off + count * self.unit * size, size, self.unit)


def accesses(expression: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every operand with its indices, in the order of appearance."""
    found = [each for each in map(_access, _nodes(ast.parse(expression.split(" = ")[-1], mode="eval").body)) if each]
    return list(dict.fromkeys(found))


def result_indices(expression: str) -> tuple[str, ...]:
    found = _access(ast.parse(expression.split(" = ")[0], mode="eval").body)
    assert found is not None
    return found[1]


def functions(expression: str) -> set[str]:
    """Those that an expression has."""
    return {
        node.func.id
        for node in ast.walk(ast.parse(expression.split(" = ")[-1], mode="eval"))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def computed(expression: str, operands: Mapping[str, torch.Tensor], sizes: Mapping[str, int], unit: float) -> Near:
    """The result of `y[i] = ...`. unit: of rounding in the type that a kernel sums in."""
    indices, result = list(sizes), result_indices(expression)

    def element(node: ast.expr) -> Near:
        access = _access(node)
        if access is not None:
            return Near.exactly(_spread(operands[access[0]], access[1], indices), unit)
        match node:
            case ast.Constant():
                return Near.exactly(torch.full([1] * len(indices), float(node.value), dtype=torch.double), unit)
            case ast.UnaryOp():
                return _number(-1, indices, unit) * element(node.operand)
            case ast.Call(func=ast.Name()):
                return element(node.args[0]).of(node.func.id)
        assert isinstance(node, ast.BinOp)
        a, b = element(node.left), element(node.right)
        match node.op:
            case ast.Add():
                return a + b
            case ast.Sub():
                return a + _number(-1, indices, unit) * b
            case ast.Mult():
                return a * b
        return a * b.inverse()

    total = None
    for coefficient, factors in _products(ast.parse(expression.split(" = ")[1], mode="eval").body):
        parts = [element(node).inverse() if below else element(node) for node, below in factors]
        product = reduce(mul, parts, _number(coefficient, indices, unit))
        has = {i for node, _ in factors for _, each in filter(None, map(_access, _nodes(node))) for i in each}
        summed = [n for n, index in enumerate(indices) if index in has and index not in result]
        part = product.sum(summed)
        total = part if total is None else add(total, part)
    assert total is not None
    shape = [sizes[index] if index in result else 1 for index in indices]
    order = [[index for index in indices if index in result].index(index) for index in result]

    def arranged(x: torch.Tensor) -> torch.Tensor:
        return x.expand(shape).reshape([n for n, index in zip(shape, indices) if index in result]).permute(order)

    return Near(arranged(total.value), arranged(total.off), arranged(total.size), unit)


def _products(node: ast.expr) -> list[tuple[float, list[tuple[ast.expr, bool]]]]:
    """(coefficient, (factor, whether it is divided by) of each) of every product, brackets multiplied out."""
    match node:
        case ast.Constant():
            return [(float(node.value), [])]
        case ast.UnaryOp():
            return [(-c, factors) for c, factors in _products(node.operand)]
        case ast.BinOp(op=ast.Add()):
            return _products(node.left) + _products(node.right)
        case ast.BinOp(op=ast.Sub()):
            return _products(node.left) + [(-c, factors) for c, factors in _products(node.right)]
        case ast.BinOp(op=ast.Mult()):
            pairs = [(a, b) for a in _products(node.left) for b in _products(node.right)]
            return [(c * d, f + g) for (c, f), (d, g) in pairs]
        case ast.BinOp(op=ast.Div()):
            ((divisor, below),) = _products(node.right)
            turned = [(factor, not inverse) for factor, inverse in below]
            return [(c / divisor, factors + turned) for c, factors in _products(node.left)]
    return [(1.0, [(node, False)])]


def _nodes(node: ast.AST) -> list[ast.expr]:
    """An expression and its parts, from left to right, but not those of an access."""
    if not isinstance(node, ast.expr):
        return []
    inner = [] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        inner = node.args
    return [node, *(each for child in inner for each in _nodes(child))]


def _access(node: ast.AST) -> tuple[str, tuple[str, ...]] | None:
    match node:
        case ast.Name():
            return node.id, ()
        case ast.Subscript(value=ast.Name(), slice=ast.Name()):
            return node.value.id, (node.slice.id,)
        case ast.Subscript(value=ast.Name(), slice=ast.Tuple()):
            return node.value.id, tuple(each.id for each in node.slice.elts)
    return None


def _number(value: float, indices: list[str], unit: float) -> Near:
    return Near.exactly(torch.full([1] * len(indices), value, dtype=torch.double), unit)


def _spread(x: torch.Tensor, own: tuple[str, ...], indices: list[str]) -> torch.Tensor:
    """With a dimension for each index, of one element where the operand has it not."""
    once = list(dict.fromkeys(own))
    for index in once:
        while own.count(index) > 1:
            first, second = [n for n, each in enumerate(own) if each == index][:2]
            x = torch.diagonal(x, 0, first, second)
            own = (*(each for n, each in enumerate(own) if n not in (first, second)), index)
    extents = [x.shape[own.index(index)] if index in own else 1 for index in indices]
    return x.permute([own.index(index) for index in indices if index in own]).reshape(extents)
