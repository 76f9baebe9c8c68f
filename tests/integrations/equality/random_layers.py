"""Messages that nobody wrote: random expressions of both ends of an edge and of a weight, as layers of PyG and DGL."""

from __future__ import annotations

import dgl
import dgl.function as fn
import torch
import torch_geometric.nn as pyg
from hypothesis import strategies as st

from tests.integrations.equality.layer import EDGES, NODES, WIDTH, Layer, Watch, normal, random_ends

UNARY = {
    "exp": lambda a: (a * 0.2).exp(),
    "tanh": torch.tanh,
    "relu": torch.relu,
    "leaky_relu": lambda a: torch.nn.functional.leaky_relu(a, 0.2),
    "neg": lambda a: -a,
    "square": lambda a: a * a,
    "sum": lambda a: a.sum(-1, keepdim=True),
    "norm": lambda a: a / (a.norm(dim=-1, keepdim=True) + 1),
    "view": lambda a: a.view(a.shape[0], -1, 1).squeeze(-1),
    "matmul": lambda a: a @ torch.full((a.shape[1], 3), 0.4, dtype=a.dtype),
    "detach": lambda a: a.detach() * 2,
    "rows": lambda a: a[torch.arange(EDGES - 1, -1, -1)],
}
BINARY = {
    "add": torch.add,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b * b + 1),
    "maximum": torch.maximum,
    "where": lambda a, b: torch.where(a > 0, a, b),
    "cat": lambda a, b: torch.cat([a, b], -1),
}
REDUCTIONS = ("sum", "mean", "max", "min")
LEAVES = st.sampled_from(["x_j", "x_i", "w"])


def _grown(inner):
    unary = st.tuples(st.sampled_from(sorted(UNARY)), inner)
    return unary | st.tuples(st.sampled_from(sorted(BINARY)), inner, inner)


EXPRESSIONS = _grown(st.recursive(LEAVES, _grown, max_leaves=3))
"""Nested tuples of an operation and what it is of."""


def computed(expression, values, watch: Watch):
    """The value; each intermediate one is told to the watch. Shapes that do not fit are cut to one feature."""
    if isinstance(expression, str):
        return values[expression]
    name, *inner = expression
    found = [computed(one, values, watch) for one in inner]
    if name in BINARY and name != "cat" and found[0].shape[1] != found[1].shape[1]:
        found = [one[:, :1] if one.shape[1] not in (1, WIDTH) else one for one in found]
    return watch(name, (UNARY[name] if name in UNARY else BINARY[name])(*found))


class Random(pyg.MessagePassing):
    """The message of an expression."""

    def __init__(self, expression, reduction):
        super().__init__(aggr=reduction)
        self.expression, self.watch = expression, Watch()

    def forward(self, x, edge_index, w):
        return self.propagate(edge_index, x=x, w=w)

    def message(self, x_i, x_j, w):
        return computed(self.expression, {"x_i": x_i, "x_j": x_j, "w": w}, self.watch)


def of_pyg(expression, reduction) -> Layer:
    module, edge_index = Random(expression, reduction), torch.stack(random_ends())

    def forward(watch, inputs):
        module.watch = watch
        return module(inputs["x"], edge_index, inputs["w"])

    return Layer({"x": normal(NODES, WIDTH), "w": normal(EDGES, 1, seed=2)}, forward, module)


def of_dgl(expression, reduction) -> Layer:
    """The expression as ``apply_edges`` in a scope, whose result is reduced, and is returned as well."""
    g = dgl.graph(random_ends(), num_nodes=NODES)

    def forward(watch, inputs):
        def message(edges):
            values = {"x_i": edges.dst["x"], "x_j": edges.src["x"], "w": edges.data["w"]}
            return {"m": computed(expression, values, watch)}

        with g.local_scope():
            g.ndata["x"], g.edata["w"] = inputs["x"], inputs["w"]
            g.apply_edges(message)
            g.update_all(fn.copy_e("m", "n"), getattr(fn, reduction)("n", "o"))
            return g.ndata["o"], g.edata["m"]

    return Layer({"x": normal(NODES, WIDTH), "w": normal(EDGES, 1, seed=2)}, forward)


MAKE = {"pyg": of_pyg, "dgl": of_dgl}
