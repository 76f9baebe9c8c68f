"""Functions of DGL that pass messages: ``dgl.ops``, ``dgl.mpops``, readouts, ``update_all`` and its kin.

A function is one case however many shapes it broadcasts; the outputs are those of all shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import dgl
import dgl.function as fn
import torch
from torch import Tensor, nn

from tests.coverage.dgl.graphs import (
    DENSE,
    EDGES,
    LINKS,
    NODES,
    RELATIONS,
    SOURCES,
    TARGETS,
    batch,
    bipartite,
    draw,
    isolated,
    square_int32,
)
from tests.coverage.report import Bound, Case, features

# name of an operand in DGL -> its rows in `bipartite`
ROWS = {"u": SOURCES, "v": TARGETS, "e": LINKS}
# Features of the two operands. A kernel is compiled for every shape and type: most functions take the first shape in
# float64, a few of them all shapes in float32 too.
SHAPES = [((4,), (4,)), ((2, 4), (2, 1)), ((4,), (1,)), ((), ()), ((1, 4), (2, 1))]
DOT_SHAPES = [((4,), (4,)), ((2, 4), (2, 4)), ((), ()), ((1, 4), (2, 4))]
UNARY_SHAPES = [(4,), (), (2, 2)]
IN_DEPTH = {
    "dgl.ops.u_mul_e_sum",
    "dgl.ops.u_add_e_max",
    "dgl.ops.u_div_e_mean",
    "dgl.ops.u_mul_v",
    "dgl.ops.e_dot_v",
    "dgl.ops.copy_u_sum",
    "dgl.ops.copy_e_min",
    "dgl.ops.segment_reduce, max",
    "dgl.ops.edge_softmax",
}
SEGMENTS = torch.tensor([5, 0, 9, 1, 0, LINKS - 15])  # lengths that add up to LINKS
BATCH_NODES, BATCH_EDGES = NODES + 4, EDGES + 1


def divisor(values: Tensor) -> Tensor:
    """Values of the same sign and size, but none near zero."""
    return values + torch.where(values < 0, -0.5, 0.5).to(values)


def dtypes(name: str) -> tuple[torch.dtype, ...]:
    return (torch.float64, torch.float32) if name in IN_DEPTH else (torch.float64,)


def operands(shapes: list[tuple], rows: tuple[int, int], divide: bool) -> dict[str, Tensor]:
    named = {}
    for position, pair in enumerate(shapes):
        for side, shape, seed in zip("ab", pair, (2 * position, 2 * position + 1)):
            values = features(rows[side == "b"], *shape, seed=seed)
            named[f"{side}{position}"] = divisor(values) if divide and side == "b" else values
    return named


def binary(name: str, function: Callable, left: str, right: str, operator: str) -> Case:
    """``function(graph, a, b)`` for every pair of shapes."""
    shapes = DOT_SHAPES if operator == "dot" else SHAPES
    shapes = shapes if name in IN_DEPTH else shapes[:1]
    inputs = operands(shapes, (ROWS[left], ROWS[right]), operator == "div")

    def call(m: nn.Module) -> tuple[Tensor, ...]:
        graph = bipartite()
        return tuple(function(graph, getattr(m, f"a{each}"), getattr(m, f"b{each}")) for each in range(len(shapes)))

    return Case(name, lambda: Bound(**inputs), call, dtypes=dtypes(name))


def unary(name: str, function: Callable, operand: str, note: str = "") -> Case:
    """``function(graph, a)`` for features of no, one and two axes."""
    shapes = UNARY_SHAPES if name in IN_DEPTH else UNARY_SHAPES[:1]
    inputs = {f"a{seed}": features(ROWS[operand], *shape, seed=seed) for seed, shape in enumerate(shapes)}

    def call(m: nn.Module) -> tuple[Tensor, ...]:
        graph = bipartite()
        return tuple(function(graph, getattr(m, each)) for each in inputs)

    return Case(name, lambda: Bound(**inputs), call, note, dtypes(name))


def by_name(module_name: str, name: str, function: Callable) -> Case | None:
    """The case of a function whose name says its operands, as ``u_mul_e_sum`` and ``copy_u``; None for other names."""
    label = f"{module_name}.{name}"
    match = re.fullmatch(r"copy_([uve])(_sum|_max|_min|_mean)?", name)
    if match:
        note = "returns its operand" if name == "copy_e" else ""
        return unary(label, function, match[1], note)
    match = re.fullmatch(r"([uve])_(add|sub|mul|div|dot)_([uve])(_sum|_max|_min|_mean)?", name)
    return binary(label, function, match[1], match[3], match[2]) if match else None


def exported(module) -> list[str]:
    """The public functions of a package of DGL."""
    return sorted(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))


def function(name: str, call: Callable, note: str = "", **inputs: Tensor) -> Case:
    return Case(name, lambda: Bound(**inputs), call, note, dtypes(name))


def _softmax() -> list[Case]:
    scores = dict(a=features(LINKS, 2, 1), b=features(LINKS, seed=1), c=5 * features(LINKS, 1, seed=2))
    everywhere = lambda by: (
        lambda m: tuple(dgl.ops.edge_softmax(bipartite(), each, norm_by=by) for each in (m.a, m.b, m.c))
    )
    some = torch.tensor([0, 3, 4, 11, 20])
    return [
        function("dgl.ops.edge_softmax", everywhere("dst"), **scores),
        function("dgl.ops.edge_softmax, by source", everywhere("src"), **scores),
        function(
            "dgl.ops.edge_softmax, some edges",
            lambda m: dgl.ops.edge_softmax(bipartite(), m.a, eids=some),
            a=features(len(some), 2, 1),
        ),
        function(
            "dgl.ops.edge_softmax, int32",
            lambda m: dgl.nn.functional.edge_softmax(square_int32(), m.a),
            a=features(EDGES + NODES, 2, 1),
        ),
    ]


def _segments() -> list[Case]:
    values = dict(a=features(LINKS, 4), b=features(LINKS, 2, 2), c=features(LINKS))
    cases = [
        function(
            f"dgl.ops.segment_reduce, {op}",
            lambda m, op=op: tuple(dgl.ops.segment_reduce(SEGMENTS, each, op) for each in (m.a, m.b, m.c)),
            **values,
        )
        for op in ("sum", "mean", "max", "min")
    ]
    lengths, types = torch.tensor([LINKS - 7, 0, 7]), draw(RELATIONS, LINKS, 4)
    return cases + [
        function(
            "dgl.ops.segment_softmax",
            lambda m: (dgl.ops.segment_softmax(SEGMENTS, m.a), dgl.ops.segment_softmax(SEGMENTS, m.b)),
            a=values["a"],
            b=values["b"],
        ),
        function(
            "dgl.ops.segment_mm",
            lambda m: dgl.ops.segment_mm(m.a, m.w, lengths),
            DENSE,
            a=values["a"],
            w=features(RELATIONS, 4, 4),
        ),
        function(
            "dgl.ops.gather_mm",
            lambda m: dgl.ops.gather_mm(m.a, m.w, idx_b=types),
            DENSE,
            a=values["a"],
            w=features(RELATIONS, 4, 4),
        ),
        function(
            "dgl.ops.gather_mm, sorted by type",
            lambda m: dgl.ops.gather_mm(m.a, m.w, idx_b=types),
            DENSE,
            a=features(LINKS, 9),
            w=features(RELATIONS, 9, 4),
        ),
    ]


def _interfaces() -> list[Case]:
    def gspmm(m: nn.Module) -> tuple[Tensor, ...]:
        graph = bipartite()
        return tuple(
            dgl.ops.gspmm(graph, op, reduce, m.u, m.e) for op in ("add", "mul", "div") for reduce in ("sum", "max")
        )

    def gsddmm(m: nn.Module) -> tuple[Tensor, ...]:
        graph = bipartite()
        return tuple(dgl.ops.gsddmm(graph, op, m.u, m.v, "u", "v") for op in ("add", "mul", "dot"))

    shared = dict(u=features(SOURCES, 4), v=features(TARGETS, 4, seed=1), e=divisor(features(LINKS, 4, seed=2)))
    return [
        function("dgl.ops.gspmm", gspmm, u=shared["u"], e=shared["e"]),
        function("dgl.ops.gsddmm", gsddmm, u=shared["u"], v=shared["v"]),
    ]


def _readouts() -> list[Case]:
    def nodes(op: str) -> Callable:
        def call(m: nn.Module) -> Tensor:
            graph = batch()
            graph.ndata["h"], graph.ndata["w"] = m.x, m.w
            return dgl.readout_nodes(graph, "h", op=op), dgl.readout_nodes(graph, "h", "w", op=op)

        return call

    def edges(op: str) -> Callable:
        def call(m: nn.Module) -> Tensor:
            graph = batch()
            graph.edata["h"], graph.edata["w"] = m.e, m.w
            return dgl.readout_edges(graph, "h", op=op), dgl.readout_edges(graph, "h", "w", op=op)

        return call

    def softmaxes(m: nn.Module) -> tuple[Tensor, Tensor]:
        graph = batch()
        graph.ndata["h"], graph.edata["h"] = m.x, m.e
        return dgl.softmax_nodes(graph, "h"), dgl.softmax_edges(graph, "h")

    def top(m: nn.Module) -> tuple[Tensor, ...]:
        graph = batch()
        graph.ndata["h"], graph.edata["h"] = m.x, m.e
        return (
            *dgl.topk_nodes(graph, "h", 2, sortby=-1),
            *dgl.topk_edges(graph, "h", 2, sortby=-1),
            dgl.broadcast_nodes(graph, m.y),
            dgl.broadcast_edges(graph, m.y),
        )

    x, e = features(BATCH_NODES, 4), features(BATCH_EDGES, 4, seed=1)
    ops = ("sum", "mean", "max", "min")
    return [
        *(function(f"dgl.readout_nodes, {op}", nodes(op), x=x, w=features(BATCH_NODES, 1, seed=2)) for op in ops),
        *(function(f"dgl.readout_edges, {op}", edges(op), e=e, w=features(BATCH_EDGES, 1, seed=2)) for op in ops),
        function("dgl.softmax_nodes, softmax_edges", softmaxes, x=x, e=e),
        function(
            "dgl.topk_nodes, broadcast_nodes",
            top,
            "sorting and repeating: no message passing",
            x=x,
            e=e,
            y=features(3, 4),
        ),
    ]


def _updates() -> list[Case]:
    """``update_all`` and its kin, with a function of the user on either side."""

    def on(graph_of: Callable, body: Callable, **inputs: Tensor) -> Callable:
        def call(m: nn.Module):
            graph = graph_of()
            graph.srcdata["h"], graph.edata["w"] = m.x, m.w
            return body(graph)

        return call

    inputs = dict(x=features(NODES, 4), w=features(EDGES, 4, seed=1))

    def case(name: str, body: Callable, note: str = "") -> Case:
        return Case(name, lambda: Bound(**inputs), on(isolated, body), note)

    def update(message, reduce, **keywords) -> Callable:
        def body(graph: dgl.DGLGraph) -> Tensor:
            graph.update_all(message, reduce, **keywords)
            return graph.dstdata["out"]

        return body

    def some(graph: dgl.DGLGraph) -> Tensor:
        graph.send_and_recv(torch.arange(0, EDGES, 3), fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))
        graph.pull([1, 4], fn.copy_u("h", "m"), fn.max("m", "out"))
        graph.push([2, 3], fn.copy_u("h", "m"), fn.mean("m", "out"))
        return graph.ndata["out"]

    def on_edges(graph: dgl.DGLGraph) -> Tensor:
        graph.apply_edges(fn.u_mul_v("h", "h", "s"))
        graph.apply_edges(lambda edges: {"s": edges.data["s"] + edges.src["h"]}, edges=torch.arange(5))
        graph.apply_edges(fn.e_sub_v("s", "h", "t"), edges=[1, 2, 3])
        return graph.edata["s"], graph.edata["t"]

    def fused(graph: dgl.DGLGraph) -> Tensor:
        with graph.local_scope():
            graph.apply_edges(fn.u_dot_v("h", "h", "s"))
            graph.edata["a"] = torch.sigmoid(graph.edata["s"])
            graph.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "out"))
            return graph.ndata["out"]

    def in_waves(graph: dgl.DGLGraph) -> Tensor:
        graph.prop_nodes([[0, 1], [2], [5, 6]], fn.copy_u("h", "m"), fn.sum("m", "h"))
        return graph.ndata["h"]

    product = lambda edges: {"m": edges.src["h"] * edges.data["w"]}
    squares = lambda nodes: {"out": (nodes.mailbox["m"] ** 2).sum(1)}
    return [
        *(
            case(f"update_all, u_mul_e, {reduce}", update(fn.u_mul_e("h", "w", "m"), getattr(fn, reduce)("m", "out")))
            for reduce in ("sum", "mean", "max", "min")
        ),
        case("update_all, u_add_v, sum", update(fn.u_add_v("h", "h", "m"), fn.sum("m", "out"))),
        case("update_all, u_dot_v, max", update(fn.u_dot_v("h", "h", "m"), fn.max("m", "out"))),
        case(
            "update_all, then a function of nodes",
            update(
                fn.copy_u("h", "m"),
                fn.sum("m", "out"),
                apply_node_func=lambda nodes: {"out": nodes.data["out"] * nodes.data["h"]},
            ),
        ),
        case("update_all, own message", update(product, fn.sum("m", "out"))),
        case("update_all, own reduction", update(fn.u_mul_e("h", "w", "m"), squares)),
        case("update_all, both own", update(product, squares), "messages and reduction are Python functions"),
        case("send_and_recv, pull, push", some),
        case("apply_edges", on_edges),
        case("local_scope, sigmoid of u_dot_v, u_mul_e, sum", fused, "one kernel, but on a few edges as here"),
        case("prop_nodes", in_waves),
    ]


def _whole_package(module_name: str, module) -> list[Case]:
    cases = (by_name(module_name, name, getattr(module, name)) for name in exported(module))
    return [each for each in cases if each]


CASES = (
    _whole_package("dgl.ops", dgl.ops)
    + _whole_package("dgl.mpops", dgl.mpops)
    + _interfaces()
    + _softmax()
    + _segments()
    + _readouts()
    + _updates()
)
