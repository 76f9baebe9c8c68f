"""Tensors of a program that is being compiled, as lazy tensors take them for operands.

A lazy tensor asks its operands for shape and type, and calls functions of PyTorch and operators of this package on
them. A ``Symbol`` answers the former from what the compiler knows of a node, and each call of the latter becomes a
node.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import Graph, Node
from torch.utils._pytree import tree_map

from ..lazy.recipes import PLAIN

KNOWN = "example_value"
"""What ``torch.compile`` knows of a node: a fake tensor, a number, a symbolic size."""
MODULES = "nn_module_stack"
"""The modules that a node is called in, from the outermost, in programs that know them: (path, class) of each."""


class Tape:
    """A graph into which calls on symbols are written, before the node at which the walk is.

    mode: in which fake tensors are computed with. last: the last operator of this package that was written.
    """

    def __init__(self, graph: Graph, mode):
        self.graph, self.mode = graph, mode
        self.last: Node | None = None
        self._at: Node | None = None
        self._for: Node | None = None
        self._symbols: dict[Node, Symbol] = {}

    @contextlib.contextmanager
    def before(self, node: Node) -> Iterator[None]:
        """Write calls before a node."""
        self._at = self._for = node
        with self.graph.inserting_before(node):
            yield

    def written_for(self, node: Node, write: Callable[[], Symbol]) -> Symbol:
        """What ``write`` writes, as calls in the module of a node above."""
        before, self._for = self._for, node
        try:
            return write()
        finally:
            self._for = before

    def symbol(self, node: Node) -> Symbol:
        """The one symbol of a node that is a tensor."""
        if node not in self._symbols:
            self._symbols[node] = Symbol(self, node)
        return self._symbols[node]

    def call(self, op: str, target, *args, **kwargs) -> Any:
        """Write a call; the symbol, or tuple of symbols, of its result."""
        args, kwargs = tree_map(self._number, (args, kwargs))
        # as PyTorch's own tracing does: without the dispatcher in Python, views to symbolic sizes fail in 2.8
        with torch.no_grad(), self.mode, enable_python_dispatcher():
            given, named = tree_map(_known, (args, kwargs))
            known = getattr(given[0], target)(*given[1:], **named) if op == "call_method" else target(*given, **named)
        args, kwargs = tree_map(self._argument, (args, kwargs))
        node = self.graph.create_node(op, target, args, kwargs)
        node.meta[KNOWN] = known
        if self._for is not None and MODULES in self._for.meta:
            node.meta[MODULES] = self._for.meta[MODULES]
        if isinstance(target, torch._ops.OpOverload):
            self.last = node
        if not isinstance(known, (tuple, list)):
            return self.symbol(node)
        parts = [self.graph.call_function(operator.getitem, (node, at)) for at in range(len(known))]
        for part, each in zip(parts, known):
            part.meta[KNOWN] = each
        return tuple(map(self.symbol, parts))

    def _number(self, x):
        """A number of the user's program, which is a tensor already, as a symbol."""
        if isinstance(x, Tensor):
            return self.call("call_function", torch.full, (), x.item(), dtype=x.dtype, device=x.device)
        return x

    def _argument(self, x):
        """An argument as a node has it."""
        if isinstance(x, Symbol):
            return x.node
        if isinstance(x, torch.Size):
            return tuple(map(self._argument, x))
        return self._size(x) if isinstance(x, torch.SymInt) else x

    def _size(self, size: torch.SymInt) -> Node:
        """A symbolic size, as the node that has it or as that of a tensor which has it, above the present one."""
        wanted, tensor = str(size), None
        for node in self.graph.nodes:
            if node is self._at:
                break
            known = node.meta.get(KNOWN)
            if isinstance(known, torch.SymInt) and str(known) == wanted:
                return node
            if tensor is None and isinstance(known, Tensor) and wanted in map(str, known.shape):
                tensor = node, list(map(str, known.shape)).index(wanted)
        assert tensor is not None, f"no tensor of the program has the size {wanted}"
        node = self.graph.call_method("size", tensor)
        node.meta[KNOWN] = size
        return node


class Symbol:
    """A tensor of the program: a node, and the fake tensor that the compiler has for it."""

    requires_grad, is_leaf, _version = False, False, 0  # before autograd; the walk follows what is written to

    def __init__(self, tape: Tape, node: Node):
        self.tape, self.node, self.known = tape, node, node.meta[KNOWN]

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if isinstance(function, torch._ops.OpOverloadPacket):
            function = function.default
        tape = next(x.tape for x in _leaves(args) if isinstance(x, Symbol))
        return tape.call("call_function", function, *args, **(kwargs or {}))

    def __getattr__(self, name: str):
        if name in _METHODS:
            return lambda *args, **kwargs: self.tape.call("call_method", name, self, *args, **kwargs)
        if name in _METADATA:
            return getattr(self.known, name)
        raise AttributeError(name)

    @property
    def shape(self) -> torch.Size:
        """Features are of a number that is known: a program is compiled for it, as a kernel is."""
        return torch.Size((*self.known.shape[:1], *map(int, self.known.shape[1:])))

    def is_inference(self) -> bool:
        return False

    def __repr__(self):
        return f"Symbol({self.node})"


def _known(x):
    return x.known if isinstance(x, Symbol) else x


def _leaves(args) -> Iterator:
    for x in args:
        yield from _leaves(x) if isinstance(x, (tuple, list)) else (x,)


_METHODS = frozenset(("to", "view", "reshape", "detach", "clone", "movedim", "contiguous", "sum", "clamp", "add_", "t"))
_METADATA = frozenset(
    ("dtype", "itemsize", "device", "layout", "dim", "numel", "is_complex", "is_floating_point", "is_cpu", "stride")
)
PLAIN.add(Symbol)
