"""A `Modifier` as text: how it stands among the arguments of an operator of ``torch.library``."""

from __future__ import annotations

import json

from ....compiler.cache.bounded import kept
from ..programs.modifier import Modifier, Node


@kept
def written(modifier: Modifier) -> str:
    """The text: JSON of [nodes, types and numbers of dimensions of captured tensors]. A node is [operation, kind,
    parts], and a part that is a node stands as the list of its number.
    """
    numbers: dict[Node, int] = {}
    nodes: list[list] = []

    def number(node: Node) -> int:
        if node not in numbers:
            parts = [[number(part)] if isinstance(part, Node) else part for part in node.parts]
            numbers[node] = len(nodes)
            nodes.append([node.op, node.kind, parts])
        return numbers[node]

    number(modifier.node)
    return json.dumps([nodes, modifier.captured])


@kept
def read(text: str) -> Modifier:
    """The reverse of `written`."""
    listed, captured = json.loads(text)
    nodes: list[Node] = []
    for op, kind, parts in listed:
        nodes.append(Node(op, tuple(nodes[part[0]] if isinstance(part, list) else part for part in parts), kind))
    return Modifier(nodes[-1], tuple((dtype, dims) for dtype, dims in captured))
