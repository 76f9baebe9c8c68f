"""What nodes of a compiled program are, as PyTorch's and PyG's functions write them: gathers, scatters, softmaxes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Node
from torch.nn import functional

from ...structures.checks import FLOATING
from ..lazy import LINEAR
from .symbols import KNOWN

DIVISIONS = frozenset(("truediv", "div", "true_divide", "divide"))
WHOLE = -1
"""In the place of the number of a row: the index is a vector."""


class Index(NamedTuple):
    """An index (edges,): row ``row`` of what a node gives, or all of it."""

    node: Node
    row: int


class Gather(NamedTuple):
    """``x[index]`` along a dimension. wraps: ids may count from the end."""

    x: Node
    index: Index
    wraps: bool
    dim: int


class Scatter(NamedTuple):
    """A reduction of ``src`` by ``index`` along a dimension into ``out``. replaces: what was in ``out`` does not count.
    within: it is written to ``out`` itself."""

    out: Node
    index: Index
    src: Node
    reduce: str
    replaces: bool
    within: bool
    dim: int


class Linear(NamedTuple):
    """``function(x, matrix)``, of `lazy.products.PRODUCTS`."""

    function: Callable
    x: Node
    matrix: Node


class Dropout(NamedTuple):
    """Dropout of ``x``, with probability p."""

    x: Node
    p: float


def name_of(node: object) -> str:
    """The function or method that a node calls; "" for all else."""
    if not isinstance(node, Node):
        return ""
    if node.op == "call_method":
        return node.target
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def known_tensor(node) -> Tensor | None:
    """What is known of a node that is a tensor."""
    known = node.meta.get(KNOWN) if isinstance(node, Node) else None
    return known if isinstance(known, Tensor) else None


def arguments(node: Node, *names: str) -> list:
    """The arguments of these names, in this order, None where one is not given."""
    given = [*node.args, *(None,) * (len(names) - len(node.args))]
    return [node.kwargs.get(name, x) for name, x in zip(names, given)]


def index_of(node, dim: int = 0) -> Index | None:
    """The vector of int64 that a node is, or is a view of along ``dim`` with dimensions of no extent beside it."""
    known = known_tensor(node)
    found = vector_of(node, dim) if known is not None and known.dtype is torch.int64 else None
    return None if found is None else _row(found)


def vector_of(node, dim: int = 0) -> Node | None:
    """The vector that a node is, or is a view of along ``dim`` with dimensions of no extent beside it."""
    dtype = getattr(known_tensor(node), "dtype", None)
    while (known := known_tensor(node)) is not None and known.dtype is dtype:
        if known.dim() == 1 and not (_is_view(node) and _same_vector(node)):
            return node
        if not _is_view(node) or known.dim() <= dim:
            return None
        source = known_tensor(node.args[0])
        at = 0 if source is not None and source.dim() == 1 else dim
        if source is None or source.dim() <= at or str(source.shape[at]) != str(known.shape[dim]):
            return None
        beside = [each for each in range(known.dim()) if each != dim]
        if any(known.stride(each) != 0 and known.shape[each] != 1 for each in beside):
            return None
        node, dim = node.args[0], at
    return None


def gather_of(node: Node) -> Gather | None:
    """The gather that a node is."""
    name = name_of(node)
    if name in _SELECTS:
        x, dim, index = arguments(node, "input", "dim", "index")
        known, dim = known_tensor(x), _dimension(dim)
        if known is None or dim is None or known.dim() == 0:
            return None
        dim %= known.dim()
    elif node.target is operator.getitem:
        (x, index), dim = node.args, 0
        known = known_tensor(x)
    else:
        return None
    if known is None or not known.is_floating_point() or not isinstance(index, Node):
        return None
    found = index_of(index) if getattr(known_tensor(index), "ndim", 0) == 1 else None
    return None if found is None else Gather(x, found, name not in _SELECTS, dim)


def scatter_of(node: Node) -> Scatter | None:
    """The scatter along a dimension that a node is."""
    name = name_of(node)
    within, plain = name.endswith("_"), name.rstrip("_")
    if plain == "scatter_add":
        (out, dim, index, src), reduce, replaces = arguments(node, "input", "dim", "index", "src"), "sum", False
    elif plain == "index_add":
        out, dim, index, src, alpha = arguments(node, "input", "dim", "index", "source", "alpha")
        if alpha not in (None, 1):
            return None
        reduce, replaces = "sum", False
    elif plain == "scatter_reduce":
        out, dim, index, src, reduce, included = arguments(
            node, "input", "dim", "index", "src", "reduce", "include_self"
        )
        reduce, replaces = REDUCES.get(reduce), included is False
    else:
        return None
    to, of, by, dim = known_tensor(out), known_tensor(src), known_tensor(index), _dimension(dim)
    if reduce is None or to is None or of is None or by is None or dim is None or 0 in (to.dim(), of.dim()):
        return None
    dim %= to.dim()
    if _beside(to, dim) != _beside(of, dim) or to.dtype is not of.dtype:
        return None
    if plain != "index_add" and list(map(str, by.shape)) != list(map(str, of.shape)):
        return None
    found = index_of(index, 0 if by.dim() == 1 else dim)
    return None if found is None else Scatter(out, found, src, reduce, replaces, within, dim)


def _dimension(dim) -> int | None:
    """The number of a dimension. PyTorch 2.4 has symbols for attributes of layers where all sizes are symbols."""
    known = dim.meta.get(KNOWN) if isinstance(dim, Node) else dim
    if isinstance(known, torch.SymInt) and known.node.hint is not None:
        known = int(known)  # known from here on: the program is compiled for it
    return known if type(known) is int else None


def _beside(known: Tensor, dim: int) -> list[str]:
    """The extents of all other dimensions."""
    return [str(extent) for at, extent in enumerate(known.shape) if at != dim]


def filled_with(node: Node) -> float | None:
    """The number that is everywhere in what a node makes; None where it makes nothing new."""
    name = name_of(node)
    if name in ("full", "new_full", "full_like"):
        value = arguments(node, "input", "size", "fill_value")[1 if name == "full_like" else -1]
        value = node.args[1] if name == "full" and len(node.args) > 1 else value
        return value if isinstance(value, (int, float)) else None
    return _FILLS.get(name)


def dropout_of(node: Node) -> Dropout | None:
    """The dropout in training that a node is, on a CPU, of a type that kernels take."""
    if node.target is functional.dropout:
        x, p, training, inplace = arguments(node, "input", "p", "training", "inplace")
    elif node.target == torch._C._VariableFunctions.dropout:  # whatever stands under the names that it has
        (x, p, training), inplace = arguments(node, "input", "p", "train"), False
    else:
        return None
    known, p = known_tensor(x), 0.5 if p is None else p
    if isinstance(p, Node) and isinstance(p.meta.get(KNOWN), torch.SymFloat):
        p = float(p.meta[KNOWN])  # known from here on: the program is compiled for it
    if known is None or training is False or inplace or type(p) is not float or not 0 < p < 1:
        return None
    if not known.is_cpu or known.dtype not in FLOATING or known.layout is not torch.strided:
        return None
    return Dropout(x, p)


def rectified_of(node: Node) -> Node | None:
    """What a node that one other node wants is max(x, 0) of."""
    once = name_of(node) == "relu" and len(node.users) == 1 and len(node.args) == 1 and not node.kwargs.get("inplace")
    return node.args[0] if once else None


def linear_of(node: Node) -> Linear | None:
    """The linear map of rows, without a bias, that a node is."""
    if name_of(node) == "linear":
        x, matrix, bias = arguments(node, "input", "weight", "bias")
        function = LINEAR
    elif name_of(node) in ("matmul", "mm", "__matmul__"):
        (x, matrix), bias, function = arguments(node, "input", "mat2"), None, torch.matmul
    else:
        return None
    of, by = known_tensor(x), known_tensor(matrix)
    if of is None or by is None or bias is not None or not of.dim() == by.dim() == 2:
        return None
    return Linear(function, x, matrix) if of.dtype is by.dtype is known_tensor(node).dtype else None


def memory_of(node: Node):
    """What tells the memory of a tensor from that of others; None of what is no tensor."""
    known = known_tensor(node)
    return None if known is None else known.untyped_storage()._cdata


def written_to(node: Node) -> list[Node]:
    """The tensors that a node writes to, or may write to."""
    name, target = name_of(node), node.target
    if node.op == "call_module" or (isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable):
        return node.all_input_nodes
    if "out" in node.kwargs:
        return [node.kwargs["out"]]
    writes = name in _IN_PLACE or (name.endswith("_") and not name.startswith("_"))
    return node.all_input_nodes[:1] if writes or node.kwargs.get("inplace") else []


def changes_mode(node: Node) -> bool:
    """Whether it says what is recorded from here on, or in which types: gradients, inference, autocast."""
    return name_of(node).startswith(("_set_grad_enabled", "_enter_", "_exit_"))


def _is_view(node: Node) -> bool:
    """Whether its elements are those of its first argument in the same order, some maybe more than once."""
    if node.target is operator.getitem and type(node.args[1]) is tuple:
        return all(at is None or at is ... or at == slice(None) for at in node.args[1])
    return name_of(node) in _VIEWS


def _same_vector(node: Node) -> bool:
    source = known_tensor(node.args[0])
    return source is not None and source.dim() == 1 and str(source.shape[0]) == str(known_tensor(node).shape[0])


def _row(node: Node) -> Index:
    """A row of a tensor of two dimensions, or a vector."""
    name, args = name_of(node), node.args
    if node.target is operator.getitem and type(args[1]) is int and known_tensor(args[0]) is not None:
        base, row = args
    elif name == "select" and args[1:2] == (0,) and type(args[2]) is int:
        base, row = args[0], args[2]
    elif node.target is operator.getitem and type(args[1]) is int and name_of(args[0]) == "unbind":
        base, row = args[0].args[0], args[1]
    else:
        return Index(node, WHOLE)
    return Index(base, row) if known_tensor(base).dim() == 2 and row >= 0 else Index(node, WHOLE)


_VIEWS = frozenset(
    ("view", "reshape", "unsqueeze", "squeeze", "expand", "expand_as", "broadcast_to", "contiguous", "long")
)
_SELECTS = ("index_select", "_new_index_select")  # PyG puts the latter in the place of PyTorch's function
REDUCES = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "prod": "prod"}
_FILLS = {"zeros": 0, "new_zeros": 0, "zeros_like": 0, "ones": 1, "new_ones": 1, "ones_like": 1}
_IN_PLACE = frozenset(("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "ipow", "iand", "ior", "ixor"))
