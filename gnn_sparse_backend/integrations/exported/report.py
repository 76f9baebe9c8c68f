"""Which layers of a model call our operators in its package, and why the others do not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import torch
from torch.fx import Graph, Node

from ...frozen import dataclass
from ..core.remedies import remedy_of
from ..traced.matching import gather_of, name_of, scatter_of
from ..traced.pointers import segments_of
from ..traced.symbols import MODULES
from ..traced.walk import REFUSED

_MOVES = frozenset(("scatter_add", "scatter_reduce", "index_add", "index_reduce", "index_put", "segment_reduce"))
_OTHERWISE = "it is no reduction of a message by a vector of int64 into zeros"


@dataclass(frozen=True)
class Layer:
    """One module of a model that moves rows along edges.

    Attributes:
        name: path of the module in the model; "" for the model itself.
        kind: name of its class.
        ours: operators of this package that it calls, each with how often.
        left: what PyTorch's operators do in it, each with the reason.
    """

    name: str
    kind: str
    ours: dict[str, int]
    left: dict[str, str]


@dataclass(frozen=True, repr=False)
class Export:
    """What ``gsb.export`` has written; prints as a list.

    Attributes:
        path: of the package.
        pack: path of its kernels.
        layers: the modules that move rows along edges, in the order of the program.
    """

    path: Path
    pack: Path
    layers: tuple[Layer, ...]

    @property
    def operators(self) -> dict[str, int]:
        """Operators of this package that the program calls, each with how often."""
        return dict(sum((Counter(layer.ours) for layer in self.layers), Counter()))

    def __str__(self) -> str:
        lines = [f"{self.path}: {sum(self.operators.values())} calls of operators of gnn_sparse_backend"]
        for layer in self.layers:
            lines.append(f"{layer.name or '(model)'} ({layer.kind})")
            lines += [f"    {count} x {operator}" for operator, count in layer.ours.items()]
            for what, reason in layer.left.items():
                remedy = remedy_of(reason)
                lines.append(f"    PyTorch's {what}: {reason}" + ("" if remedy is None else f" ({remedy})"))
        return "\n".join(lines)

    __repr__ = __str__


def layers_of(graph: Graph) -> tuple[Layer, ...]:
    """The layers of a program through which the walk (``..traced.walk``) has gone."""
    found: dict[str, Layer] = {}
    for node in graph.nodes:
        operator, left = _ours(node), _left(node)
        if operator or left:
            name, kind = _module(node)
            layer = found.setdefault(name, Layer(name, kind, {}, {}))
            if operator:
                layer.ours[operator] = layer.ours.get(operator, 0) + 1
            if left:
                layer.left.update(left)
    return tuple(found.values())


def _ours(node: Node) -> str:
    """The operator of this package that a node calls; "" for all else."""
    target = node.target
    ours = isinstance(target, torch._ops.OpOverload) and target.namespace == "gsb"
    return target._opname if ours else ""  # type: ignore[union-attr]


def _left(node: Node) -> dict[str, str]:
    """What a node moves along edges, if that is PyTorch's, and the reason."""
    name = name_of(node).removesuffix(".default").removesuffix("_")
    if REFUSED in node.meta:
        return {name: node.meta[REFUSED]}
    if name in _MOVES or scatter_of(node) is not None or segments_of(node) is not None:
        return {name: _OTHERWISE}
    if gather_of(node) is not None:
        return {f"gather by {name}": f"its rows are used by {', '.join(sorted({*map(_used, node.users)}))}"}
    return {}


def _used(node: Node) -> str:
    return name_of(node).partition(".")[0] or node.op


def _module(node: Node) -> tuple[str, str]:
    """(path, class) of the innermost module in which a node is called."""
    *_, (path, kind) = [("", "model"), *node.meta.get(MODULES, {}).values()]
    kind = kind if isinstance(kind, str) else kind.__name__
    return path, kind.rpartition(".")[2]
