"""Reductions by index, by pointer and by sparse matrix: ``torch_geometric.nn.aggr`` and functions of ``.utils``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType

import torch
import torch_geometric.nn as gnn
import torch_geometric.utils as utils
from torch import Tensor, nn
from torch_geometric.nn.aggr.fused import FusedAggregation
from torch_geometric.utils._scatter import scatter_argmax
from torch_geometric.utils.cross_entropy import sparse_cross_entropy

from tests.coverage.pyg.graphs import EDGES, GRAPHS, NODES, adjacency, batch, draw, isolated, pointers, symmetric
from tests.coverage.report import Bound, Case, features

IN, OUT, HEADS = 6, 4, 2
X, E = features(NODES, IN), features(EDGES, IN, seed=1)
SINGLE = (torch.float32,)
ROWS = GRAPHS + 1  # one more than there are graphs: the last is empty

# Of torch_geometric.nn.aggr: classes that are no aggregation of their own.
BASES = {"Aggregation": "the base class"}
# Of torch_geometric.utils: functions whose reductions are of indices alone.
OF_INDICES = {
    **dict.fromkeys(
        ("barabasi_albert_graph", "erdos_renyi_graph", "stochastic_blockmodel_graph", "grid", "tree_decomposition"),
        "makes a graph",
    ),
    **dict.fromkeys(
        (
            "batched_negative_sampling",
            "structured_negative_sampling_feasible",
            "contains_isolated_nodes",
            "shuffle_node",
            "unbatch",
            "unbatch_edge_index",
        ),
        "counts nodes or edges",
    ),
    **dict.fromkeys(
        ("normalize_edge_index", "remove_self_loops", "dropout_path", "train_test_split_edges"), "moves edges"
    ),
}


# --- torch_geometric.nn.aggr ---------------------------------------------------------------------------------------


def aggr(
    layer: Callable[[], nn.Module], by: str = "index", text: str = "", x: Tensor = X, note: str = "", **keywords
) -> Case:
    """``by``: sorted ``index``, ``ptr``, both, or ``edges``, an index in no order."""

    def call(m: nn.Module) -> Tensor:
        index = {"index": batch(), "ptr": None, "both": batch(), "edges": isolated()[1]}[by]
        ptr = pointers() if by in ("ptr", "both") else None
        size = NODES if by == "edges" else ROWS if by == "index" else None
        return m.layer(m.x, index, ptr=ptr, dim_size=size, **keywords)

    name = f"aggr.{type(layer()).__name__}" + (f", {text}" if text else "") + ("" if by == "index" else f", {by}")
    return Case(name, lambda: Bound(layer(), x=x), call, note)


def _aggregations() -> list[Case]:
    basic = [
        gnn.SumAggregation,
        gnn.MeanAggregation,
        gnn.MaxAggregation,
        gnn.MinAggregation,
        gnn.VarAggregation,
        gnn.StdAggregation,
        gnn.SoftmaxAggregation,
        gnn.PowerMeanAggregation,
    ]
    cases = [aggr(kind) for kind in (*basic, gnn.MulAggregation, gnn.VariancePreservingAggregation)]
    cases += [aggr(kind, "ptr") for kind in basic]
    cases += [
        aggr(kind, "edges", x=E)
        for kind in (
            gnn.SumAggregation,
            gnn.MeanAggregation,
            gnn.MaxAggregation,
            gnn.MulAggregation,
            gnn.SoftmaxAggregation,
        )
    ]
    cases += [
        aggr(kind, text="three dimensions", x=features(HEADS, NODES, IN))
        for kind in (gnn.SumAggregation, gnn.MeanAggregation, gnn.MaxAggregation, gnn.SoftmaxAggregation)
    ]
    cases += [
        aggr(lambda mode=mode: gnn.MultiAggregation(["sum", "mean", "max", "std"], mode=mode), text=mode)
        for mode in ("cat", "sum", "mean", "max", "min", "logsumexp", "std", "var")
    ]
    degrees = torch.tensor([1, 1, 3, 2, 1])
    network = lambda: nn.Sequential(nn.Linear(IN, OUT), nn.ReLU())
    return cases + [
        aggr(gnn.SumAggregation, "both"),
        aggr(gnn.SumAggregation, text="first dimension", dim=0),
        aggr(gnn.MaxAggregation, text="last dimension", x=features(IN, NODES), dim=-1),
        aggr(lambda: gnn.VarAggregation(semi_grad=True), text="half a gradient"),
        aggr(lambda: gnn.SoftmaxAggregation(learn=True, channels=IN), text="learned by channel"),
        aggr(lambda: gnn.SoftmaxAggregation(t=0.5, semi_grad=True), text="half a gradient"),
        aggr(lambda: gnn.PowerMeanAggregation(p=2.0, learn=True), text="learned", x=X.abs() + 0.1),
        aggr(lambda: gnn.QuantileAggregation([0.1, 0.7]), note="a sort"),
        aggr(gnn.MedianAggregation, note="a sort"),
        aggr(gnn.MedianAggregation, "edges", x=E, note="a sort"),
        aggr(lambda: FusedAggregation(["sum", "mean", "min", "max", "mul", "var", "std"])),
        aggr(lambda: gnn.MultiAggregation(["mean", "softmax", gnn.MedianAggregation()]), text="unlike ones"),
        aggr(
            lambda: gnn.DegreeScalerAggregation(
                ["mean", "max"], ["identity", "amplification", "attenuation", "linear", "inverse_linear"], degrees
            )
        ),
        aggr(lambda: gnn.DegreeScalerAggregation("sum", "amplification", degrees, True), "edges", "learned", E),
        aggr(lambda: gnn.AttentionalAggregation(nn.Linear(IN, 1), network())),
        aggr(lambda: gnn.AttentionalAggregation(nn.Linear(IN, IN)), "ptr", "gate of each feature"),
        aggr(lambda: gnn.LSTMAggregation(IN, OUT)),
        aggr(lambda: gnn.GRUAggregation(IN, OUT)),
        aggr(lambda: gnn.Set2Set(IN, 2)),
        aggr(lambda: gnn.SortAggregation(3)),
        aggr(lambda: gnn.GraphMultisetTransformer(IN, 3, heads=HEADS)),
        aggr(lambda: gnn.EquilibriumAggregation(IN, OUT, [8], 2)),
        aggr(lambda: gnn.MLPAggregation(IN, OUT, 6, num_layers=1)),
        aggr(lambda: gnn.DeepSetsAggregation(network(), nn.Linear(OUT, OUT))),
        aggr(lambda: gnn.SetTransformerAggregation(IN, 2, heads=HEADS)),
        aggr(lambda: gnn.LCMAggregation(IN, OUT)),
        aggr(lambda: gnn.PatchTransformerAggregation(IN, OUT, 2, 8, heads=HEADS)),
    ]


# --- torch_geometric.utils -----------------------------------------------------------------------------------------


def function(name: str, call: Callable[[nn.Module], Tensor | tuple[Tensor, ...]], x: Tensor = E, **keywords) -> Case:
    return Case(f"utils.{name}", lambda: Bound(x=x), call, **keywords)


def _reductions() -> list[Case]:
    index = lambda: isolated()[1]
    narrow = features(EDGES, 1, seed=3)
    cases = [
        function(f"scatter, {reduce}", lambda m, reduce=reduce: utils.scatter(m.x, index(), 0, NODES, reduce))
        for reduce in ("sum", "add", "mean", "max", "min", "mul", "any")
    ]
    cases += [
        function(f"scatter, {reduce}, {text}", lambda m, reduce=reduce: utils.scatter(m.x, index(), 0, None, reduce), x)
        for reduce in ("sum", "mean", "max", "min")
        for text, x in {
            "size derived": E,
            "one dimension": features(EDGES),
            "heads": features(EDGES, HEADS, OUT),
            "column": narrow,
        }.items()
    ]
    cases += [
        function(
            f"scatter, {reduce}, last dimension",
            lambda m, reduce=reduce: utils.scatter(m.x, index(), -1, NODES, reduce),
            features(IN, EDGES),
        )
        for reduce in ("sum", "mean", "max")
    ]
    cases += [
        function(
            f"scatter, {reduce}, integers",
            lambda m, reduce=reduce: utils.scatter(m.x, index(), 0, NODES, reduce),
            draw(9, EDGES, 3),
            dtypes=SINGLE,
            note="integers have no gradient",
        )
        for reduce in ("sum", "mean", "max")
    ]
    cases += [
        function(f"segment, {reduce}", lambda m, reduce=reduce: utils.segment(m.x, pointers(), reduce), X)
        for reduce in ("sum", "mean", "max", "min")
    ]
    cases += [
        function(
            f"spmm, {layout}, {reduce}",
            lambda m, layout=layout, reduce=reduce: utils.spmm(
                adjacency(layout, torch.ones(EDGES, dtype=m.x.dtype)), m.x, reduce
            ),
            X,
        )
        for layout in ("csr", "csc", "coo")
        for reduce in ("sum", "mean")
    ]
    return cases + [
        function("scatter, strided", lambda m: utils.scatter(m.x.t(), index(), 0, NODES, "sum"), features(IN, EDGES)),
        function(
            "scatter, repeated",
            lambda m: utils.scatter(m.x.expand(EDGES, IN), index(), 0, NODES, "max"),
            features(1, IN),
        ),
        function("scatter, no rows", lambda m: utils.scatter(m.x[:0], index()[:0], 0, None, "sum")),
        function(
            "scatter_argmax",
            lambda m: scatter_argmax(m.x, index(), dim_size=NODES),
            features(EDGES),
            note="no gradient",
        ),
        function("group_argsort", lambda m: utils.group_argsort(m.x, index(), num_groups=NODES), features(EDGES)),
        function("segment_logsumexp", lambda m: utils.segment_logsumexp(m.x, pointers(), 0), X),
        function("softmax, index", lambda m: utils.softmax(m.x, index(), num_nodes=NODES)),
        function("softmax, heads", lambda m: utils.softmax(m.x, index()), features(EDGES, HEADS)),
        function("softmax, one dimension", lambda m: utils.softmax(m.x, index()), features(EDGES)),
        function("softmax, last dimension", lambda m: utils.softmax(m.x, index(), dim=-1), features(IN, EDGES)),
        function("softmax, ptr", lambda m: utils.softmax(m.x, ptr=pointers()), X),
        function("softmax, three dimensions", lambda m: utils.softmax(m.x, index()), features(EDGES, HEADS, OUT)),
        function(
            "spmm, csr, max",
            lambda m: utils.spmm(adjacency("csr", torch.ones(EDGES, dtype=m.x.dtype)), m.x.detach(), "max"),
            X,
            note="PyTorch has no gradient of it",
        ),
        function(
            "spmm, csr, vector",
            lambda m: utils.spmm(adjacency("csr", torch.ones(EDGES, dtype=m.x.dtype)), m.x[:, :1]),
            X,
        ),
        function(
            "degree",
            lambda m: utils.degree(index(), NODES),
            draw(2, 3, 1),
            dtypes=SINGLE,
            note="integers have no gradient",
        ),
    ]


def _of_graphs() -> list[Case]:
    """Functions that merge edges or nodes, and so sum what belongs to them."""
    cases = [
        function(f"coalesce, {reduce}", lambda m, reduce=reduce: utils.coalesce(isolated(), m.x, NODES, reduce)[1])
        for reduce in ("sum", "mean", "max", "min")
    ]
    cases += [
        function(f"add_self_loops, {fill}", lambda m, fill=fill: utils.add_self_loops(isolated(), m.x, fill, NODES)[1])
        for fill in ("sum", "mean", "max")
    ]
    cases += [
        function(
            f"get_laplacian, {kind}",
            lambda m, kind=kind: utils.get_laplacian(isolated(), m.x.abs(), kind, num_nodes=NODES)[1],
            features(EDGES),
        )
        for kind in (None, "sym", "rw")
    ]
    cases += [
        function(
            f"homophily, {kind}",
            lambda m, kind=kind: torch.as_tensor(utils.homophily(isolated(), draw(3, NODES, 2), method=kind)),
            X,
            note="no gradient",
        )
        for kind in ("edge", "node", "edge_insensitive")
    ]
    labels = lambda: draw(3, NODES, 2)
    return cases + [
        function(
            "add_remaining_self_loops", lambda m: utils.add_remaining_self_loops(isolated(), m.x, "mean", NODES)[1]
        ),
        function("to_undirected", lambda m: utils.to_undirected(isolated(), m.x, NODES, "mean")[1]),
        function("to_dense_adj", lambda m: utils.to_dense_adj(isolated(), edge_attr=m.x, max_num_nodes=NODES)),
        *(
            function(
                f"to_torch_{layout}_tensor",
                lambda m, layout=layout: getattr(utils, f"to_torch_{layout}_tensor")(
                    isolated(), m.x, (NODES, NODES)
                ).to_dense(),
                features(EDGES),
            )
            for layout in ("coo", "csr", "csc")
        ),
        function(
            "to_torch_sparse_tensor",
            lambda m: utils.to_torch_sparse_tensor(isolated(), m.x, NODES).to_dense(),
            features(EDGES),
        ),
        function("to_nested_tensor", lambda m: utils.to_nested_tensor(m.x, batch()).to_padded_tensor(0.0), X),
        function("to_dense_batch", lambda m: utils.to_dense_batch(m.x, batch(), batch_size=GRAPHS)[0], X),
        function(
            "normalized_cut", lambda m: utils.normalized_cut(isolated(), m.x[:, 0].abs(), NODES), note="counts edges"
        ),
        function(
            "get_mesh_laplacian",
            lambda m: utils.get_mesh_laplacian(
                m.x, torch.tensor([[0, 1, 2], [1, 2, 3], [4, 5, 0], [2, 6, 7]]).t(), "sym"
            )[1],
            features(8, 3),
        ),
        function(
            "assortativity",
            lambda m: torch.as_tensor(utils.assortativity(symmetric())),
            X,
            dtypes=SINGLE,
            note="no gradient",
        ),
        function(
            "sparse_cross_entropy",
            lambda m: sparse_cross_entropy(m.x, torch.stack([torch.arange(NODES), labels() + 1])),
            X,
        ),
    ]


def functions_that_reduce() -> set[str]:
    """Exported functions of ``torch_geometric.utils`` that call a reduction, themselves or through others of PyG."""
    reductions = {
        "scatter",
        "segment",
        "softmax",
        "spmm",
        "scatter_add_",
        "scatter_reduce_",
        "scatter_add",
        "index_add_",
    }

    def reaches(code: CodeType, scope: dict, seen: set) -> bool:
        names = set(code.co_names)
        if names & reductions:
            return True
        inner = [(each, scope) for each in code.co_consts if isinstance(each, CodeType)]
        for name in names:
            value = inspect.unwrap(scope[name]) if callable(scope.get(name)) else None
            if inspect.isfunction(value) and value.__module__.startswith("torch_geometric.utils"):
                inner.append((value.__code__, value.__globals__))
        fresh = [pair for pair in inner if pair[0] not in seen]
        seen.update(pair[0] for pair in fresh)
        return any(reaches(code, scope, seen) for code, scope in fresh)

    functions = {name: inspect.unwrap(getattr(utils, name)) for name in utils.__all__}
    return {
        name
        for name, value in functions.items()
        if inspect.isfunction(value) and (name in reductions or reaches(value.__code__, value.__globals__, set()))
    }


AGGREGATIONS = _aggregations()
FUNCTIONS = _reductions() + _of_graphs()
CASES = AGGREGATIONS + FUNCTIONS
