"""Layers of DGL, and message passing that users write on graphs, each with what it has in between."""

from __future__ import annotations

from functools import partial

import dgl
import dgl.function as fn
import torch
from dgl.nn import pytorch as nnd
from dgl.nn.functional import edge_softmax
from torch import nn

from tests.integrations.equality.layer import EDGES, NODES, WIDTH, Build, Layer, normal, random_ends


def graph():
    """A graph each of whose nodes has an incoming edge, which some of DGL's layers ask for."""
    source, destination = random_ends()
    return dgl.graph((source, torch.cat([torch.arange(NODES), destination[NODES:]])), num_nodes=NODES)


def library(make, edges: tuple[int, ...] | None = None, name: str = "edge_weight", **options) -> Layer:
    """A layer of DGL's own; edges: the shape of the features of the edges, if it takes any, and name as what."""
    torch.manual_seed(1)
    module, g = make().double(), graph()
    inputs = {"x": normal(NODES, WIDTH)}
    if edges is not None:
        inputs["edges"] = normal(EDGES, *edges, seed=2)

    def forward(watch, inputs):
        return module(g, inputs["x"], **({name: inputs["edges"]} if "edges" in inputs else {}), **options)

    return Layer(inputs, forward, module)


def own(steps, width_of_w: int = 1, scope: str = "local_scope") -> Layer:
    """A program of a user on a graph: ``steps(g, watch)`` with x and w as features, inside a scope or on a copy."""
    torch.manual_seed(1)
    g = graph()

    def filled(g, inputs):
        g.ndata["x"], g.edata["w"] = inputs["x"], inputs["w"]
        return g

    def forward(watch, inputs):
        if scope == "local_scope":
            with g.local_scope():
                return steps(filled(g, inputs), watch)
        return steps(filled(g.local_var() if scope == "local_var" else graph(), inputs), watch)

    return Layer({"x": normal(NODES, WIDTH), "w": normal(EDGES, width_of_w, seed=2)}, forward)


def of_edges(message, reduce=fn.sum):
    """The steps of a message on each edge, which is looked at, and then reduced."""

    def steps(g, watch):
        g.apply_edges(message)
        g.edata["m"] = watch("message", g.edata["m"])
        g.update_all(fn.copy_e("m", "n"), reduce("n", "o"))
        return g.ndata["o"]

    return steps


def of_nodes(message, reduce=fn.sum):
    """The steps of one ``update_all``."""

    def steps(g, watch):
        g.update_all(message, reduce("m", "o"))
        return g.ndata["o"]

    return steps


def attention(g, watch):
    """An attention, as GATConv has it."""
    g.ndata["l"] = g.ndata["x"].sum(-1, keepdim=True)
    g.apply_edges(fn.u_add_v("l", "l", "e"))
    score = watch("score", nn.functional.leaky_relu(g.edata["e"], 0.2))
    g.edata["a"] = watch("alpha", edge_softmax(g, score))
    g.update_all(fn.u_mul_e("x", "a", "m"), fn.sum("m", "o"))
    return g.ndata["o"], g.edata["a"]


def dot_attention(g, watch):
    """An attention of dot products, whose weights are not returned."""
    g.apply_edges(fn.u_dot_v("x", "x", "e"))
    g.edata["a"] = watch("alpha", edge_softmax(g, watch("score", g.edata["e"] / WIDTH**0.5)))
    g.update_all(fn.u_mul_e("x", "a", "m"), fn.sum("m", "o"))
    return g.ndata["o"]


def gates(g, watch):
    """A sum with gates and its normaliser, and a result for each edge: a gated graph convolution of later DGLs."""
    g.apply_edges(fn.u_add_v("x", "x", "e"))
    e = watch("e", g.edata["e"] + g.edata["w"])
    g.edata["s"] = watch("gate", torch.sigmoid(e))
    g.update_all(fn.u_mul_e("x", "s", "m"), fn.sum("m", "h"))
    g.update_all(fn.copy_e("s", "m"), fn.sum("m", "d"))
    return g.ndata["h"] / (g.ndata["d"] + 1e-6), torch.relu(e)


def _concatenated(edges):
    return {"m": torch.cat([edges.src["x"], edges.dst["x"] - edges.src["x"], edges.data["w"]], -1)}


def _weighted(edges):
    return {"m": edges.src["x"] * edges.data["w"]}


def _distance(edges):
    return {"m": (edges.src["x"] - edges.dst["x"]).pow(2).sum(-1, keepdim=True).neg().exp() * edges.src["x"]}


def _mailbox(nodes):
    return {"o": nodes.mailbox["m"].mean(1)}


def _with_mailbox(g, watch):
    g.update_all(_weighted, _mailbox)
    return g.ndata["o"]


def hetero(aggregate: str = "sum") -> Layer:
    """A HeteroGraphConv of three relations between types whose names are not in the order of the alphabet."""
    torch.manual_seed(1)
    source, destination = random_ends()
    g = dgl.heterograph(
        {
            ("user", "likes", "item"): (source, destination),
            ("item", "liked by", "user"): (destination, source),
            ("user", "follows", "user"): (source, destination),
        },
        num_nodes_dict={"user": NODES, "item": NODES},
    )
    parts = {name: nnd.SAGEConv(WIDTH, 3, "mean") for name in ("likes", "follows", "liked by")}
    module = nnd.HeteroGraphConv(parts, aggregate=aggregate).double()

    def forward(watch, inputs):
        return module(g, {"user": inputs["x"], "item": inputs["items"]})

    return Layer({"x": normal(NODES, WIDTH), "items": normal(NODES, WIDTH, seed=2)}, forward, module)


def perceptron(first: int = WIDTH, last: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(first, 6), nn.ReLU(), nn.Linear(6, last))


LIBRARY: dict[str, Build] = {
    "GraphConv": partial(library, lambda: nnd.GraphConv(WIDTH, 3)),
    "GraphConv weighted": partial(library, lambda: nnd.GraphConv(WIDTH, 3, norm="none"), ()),
    "SAGEConv mean": partial(library, lambda: nnd.SAGEConv(WIDTH, 3, "mean")),
    "SAGEConv pool": partial(library, lambda: nnd.SAGEConv(WIDTH, 3, "pool")),
    "SAGEConv gcn": partial(library, lambda: nnd.SAGEConv(WIDTH, 3, "gcn")),
    "GATConv": partial(library, lambda: nnd.GATConv(WIDTH, 3, 2)),
    "GATConv attention": partial(library, lambda: nnd.GATConv(WIDTH, 3, 2, attn_drop=0.3), get_attention=True),
    "GATv2Conv": partial(library, lambda: nnd.GATv2Conv(WIDTH, 3, 2)),
    "GATv2Conv attention": partial(library, lambda: nnd.GATv2Conv(WIDTH, 3, 2), get_attention=True),
    "GINConv": partial(library, lambda: nnd.GINConv(perceptron(), "sum", learn_eps=True)),
    "GINConv max": partial(library, lambda: nnd.GINConv(perceptron(), "max")),
    "GINEConv": partial(library, lambda: nnd.GINEConv(perceptron(), learn_eps=True), (WIDTH,), "edge_feat"),
    "EGATConv": partial(library, lambda: nnd.EGATConv(WIDTH, 3, 3, 2, 2), (3,), "efeats", get_attention=True),
    "EdgeConv": partial(library, lambda: nnd.EdgeConv(WIDTH, 3)),
    "NNConv": partial(library, lambda: nnd.NNConv(WIDTH, 3, perceptron(2, WIDTH * 3), "mean"), (2,), "efeat"),
    "HeteroGraphConv": hetero,
    "HeteroGraphConv stack": partial(hetero, "stack"),
}
OWN: dict[str, Build] = {
    "own copy_u": partial(own, of_nodes(fn.copy_u("x", "m"))),
    "own u_mul_e": partial(own, of_nodes(fn.u_mul_e("x", "w", "m"))),
    "own u_mul_e max": partial(own, of_nodes(fn.u_mul_e("x", "w", "m"), fn.max)),
    "own u_add_e": partial(own, of_nodes(fn.u_add_e("x", "w", "m"), fn.mean)),
    "own u_sub_e": partial(own, of_nodes(fn.u_sub_e("x", "w", "m"))),
    "own v_sub_u edges": partial(own, of_edges(fn.v_sub_u("x", "x", "m"))),
    "own u_mul_v edges": partial(own, of_edges(fn.u_mul_v("x", "x", "m"), fn.mean)),
    "own u_dot_v edges": partial(own, of_edges(fn.u_dot_v("x", "x", "m"), fn.max)),
    "own u_add_e edges": partial(own, of_edges(fn.u_add_e("x", "w", "m"))),
    "own function": partial(own, of_nodes(_weighted)),
    "own function cat": partial(own, of_nodes(_concatenated, fn.max)),
    "own function distance": partial(own, of_nodes(_distance)),
    "own function edges": partial(own, of_edges(_concatenated)),
    "own mailbox": partial(own, _with_mailbox),
    "own attention": partial(own, attention),
    "own attention local_var": partial(own, attention, scope="local_var"),
    "own attention no scope": partial(own, attention, scope="none"),
    "own dot attention": partial(own, dot_attention),
    "own gates": partial(own, gates),
    "own gates local_var": partial(own, gates, scope="local_var"),
}
LAYERS: dict[str, Build] = {**LIBRARY, **OWN}
SOFTMAX = frozenset(name for name in LAYERS if "GAT" in name or "attention" in name)
"""Layers with an edge softmax, whose gradient in DGL alone has no gradient of its own."""
