"""Message passing over several types of nodes and edges at once."""

from __future__ import annotations

from collections.abc import Callable

import dgl
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import torch
from torch import Tensor, nn

from tests.coverage.dgl.graphs import TYPED, TYPED_EDGES, typed
from tests.coverage.report import Bound, Case, features

IN = OUT = 4
NODES = {name: features(number, OUT, seed=seed) for seed, (name, number) in enumerate(TYPED.items())}
LABELS = {relation: "_".join(relation) for relation in TYPED_EDGES}  # names of inputs
WEIGHTS = {
    LABELS[relation]: features(number, OUT, seed=9 + seed).abs() + 0.5
    for seed, (relation, number) in enumerate(TYPED_EDGES.items())
}
SCORES = {
    LABELS[relation]: features(number, 2, 1, seed=9 + seed)
    for seed, (relation, number) in enumerate(TYPED_EDGES.items())
}


def loaded(m: nn.Module) -> dgl.DGLGraph:
    """`typed` with the inputs of ``m`` as features ``h`` of nodes and ``w`` of edges."""
    graph = typed()
    for name in TYPED:
        if hasattr(m, name):
            graph.nodes[name].data["h"] = getattr(m, name)
    for relation, label in LABELS.items():
        if hasattr(m, label):
            graph.edges[relation].data["w"] = getattr(m, label)
    return graph


def node_results(graph: dgl.DGLGraph, field: str) -> tuple[Tensor, ...]:
    return tuple(graph.nodes[name].data[field] for name in TYPED)


def edge_results(graph: dgl.DGLGraph, field: str) -> tuple[Tensor, ...]:
    return tuple(graph.edges[relation].data[field] for relation in TYPED_EDGES)


def _by_relation() -> list[Case]:
    """A convolution of its own for every relation, their results combined."""
    nodes = {name: features(number, IN, seed=seed) for seed, (name, number) in enumerate(TYPED.items())}

    def mixed() -> dict:
        return {
            ("a", "r", "b"): dglnn.GraphConv(IN, OUT),
            ("a", "r", "a"): dglnn.GraphConv(IN, OUT, "right"),
            "s": dglnn.SAGEConv(IN, OUT, "mean"),
            "t": dglnn.GINConv(nn.Linear(IN, OUT)),
        }

    def attention() -> dict:
        return {relation: dglnn.GATConv((IN, IN), OUT, 2) for relation in TYPED_EDGES}

    def case(name: str, mods: Callable[[], dict], aggregate) -> Case:
        def call(m: nn.Module) -> tuple[Tensor, ...]:
            result = m.layer(typed(), {name: getattr(m, name) for name in TYPED})
            return tuple(result[name] for name in TYPED)

        return Case(name, lambda: Bound(dglnn.HeteroGraphConv(mods(), aggregate), **nodes), call)

    return [
        *(case(f"HeteroGraphConv, {kind}", mixed, kind) for kind in ("sum", "mean", "max", "min", "stack")),
        case("HeteroGraphConv, own aggregation", mixed, lambda each, name: torch.stack(each).prod(0)),
        case("HeteroGraphConv, attention", attention, "sum"),
    ]


def _at_once() -> list[Case]:
    """One ``update_all`` or ``apply_edges`` for all relations."""

    def update(message, reduce) -> Callable:
        def call(m: nn.Module) -> tuple[Tensor, ...]:
            graph = loaded(m)
            graph.update_all(message, reduce)
            return node_results(graph, "out")

        return call

    def apply(message) -> Callable:
        def call(m: nn.Module) -> tuple[Tensor, ...]:
            graph = loaded(m)
            graph.apply_edges(message)
            return edge_results(graph, "out")

        return call

    def softmax(by: str) -> Callable:
        def call(m: nn.Module) -> tuple[Tensor, ...]:
            scores = {relation: getattr(m, label) for relation, label in LABELS.items()}
            result = dgl.ops.edge_softmax(typed(), scores, norm_by=by)
            return tuple(result[relation] for relation in TYPED_EDGES)

        return call

    both = NODES | WEIGHTS
    messages = {
        "copy_u": (fn.copy_u("h", "m"), NODES),
        "copy_e": (fn.copy_e("w", "m"), WEIGHTS),
        **{f"u_{op}_e": (getattr(fn, f"u_{op}_e")("h", "w", "m"), both) for op in ("add", "sub", "mul", "div")},
    }
    cases = []
    for name, (message, inputs) in messages.items():
        for reduce in ("sum", "max", "min"):
            call = update(message, getattr(fn, reduce)("m", "out"))
            # DGL's backward of these raises IndexError or AttributeError.
            forward_only = inputs is both and reduce != "sum"
            cases.append(
                Case(
                    f"update_all of all relations, {name}, {reduce}",
                    lambda inputs=inputs: Bound(**inputs),
                    torch.no_grad()(call) if forward_only else call,
                    "forward alone: DGL has no gradient of it" if forward_only else "",
                )
            )
    cases += [
        Case(
            f"apply_edges of all relations, u_{op}_v",
            lambda: Bound(**NODES),
            apply(getattr(fn, f"u_{op}_v")("h", "h", "out")),
        )
        for op in ("add", "sub", "mul", "div", "dot")
    ]
    cases += [
        Case(f"apply_edges of all relations, {name}", lambda: Bound(**both), apply(message), note)
        for name, message, note in (
            ("u_mul_e", fn.u_mul_e("h", "w", "out"), ""),
            ("e_add_v", fn.e_add_v("w", "h", "out"), ""),
            ("copy_u", fn.copy_u("h", "out"), ""),
            ("copy_e", fn.copy_e("w", "out"), "returns its operand"),
        )
    ]
    return cases + [
        Case(f"dgl.ops.edge_softmax, all relations, by {by}", lambda: Bound(**SCORES), softmax(by))
        for by in ("dst", "src")
    ]


def _one_by_one() -> list[Case]:
    """``multi_update_all``: a message and a reduction for every relation, a third function across relations."""
    each = {
        ("a", "r", "b"): (fn.copy_u("h", "m"), fn.sum("m", "out")),
        ("b", "s", "b"): (fn.u_mul_e("h", "w", "m"), fn.max("m", "out")),
        ("b", "t", "a"): (fn.u_add_v("h", "h", "m"), fn.mean("m", "out")),
        ("a", "r", "a"): (fn.copy_e("w", "m"), fn.sum("m", "out")),
    }

    def call(m: nn.Module, across) -> tuple[Tensor, ...]:
        graph = loaded(m)
        graph.multi_update_all(each, across)
        return node_results(graph, "out")

    own = lambda results: 2 * results[0] - results[-1]
    return [
        Case(f"multi_update_all, {name}", lambda: Bound(**NODES, **WEIGHTS), lambda m, across=across: call(m, across))
        for name, across in (*((kind, kind) for kind in ("sum", "mean", "max", "min", "stack")), ("own function", own))
    ]


CASES = _by_relation() + _at_once() + _one_by_one()
