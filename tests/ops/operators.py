"""Every operator on a graph as a function of its operands alone, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import gnn_sparse_backend as gsb

HEADS, WIDTH, OUT = 3, 5, 4
# What results may differ by from those in float64, relative and absolute, where operands are about 1.
ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 8e-2}


def some_graph(rows: int = 9, columns: int = 12, edges: int = 40) -> gsb.Graph:
    """Rows of no edges, one of many, and edges in an order of their own."""
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(0, rows - 1, (edges,), generator=generator)
    row[: edges // 2] = 3
    return gsb.Graph.from_coo(row, torch.randint(0, columns, (edges,), generator=generator), (rows, columns))


def quarters(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Multiples of 1/4 from -3/4 to 3/4, whose products are exact in every type, and whose sums are in float32."""
    return (torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)) / 4).to(dtype)


@dataclass(frozen=True)
class Operator:
    """operands: graph, type and sizes to fresh random tensors, all differentiable. run: graph and operands to the
    result.
    """

    operands: Callable
    run: Callable


def _tensors(*shapes):
    def make(graph, dtype=torch.float32, heads=HEADS, width=WIDTH, out=OUT):
        rows, columns = graph.shape
        sizes = {
            "row": rows,
            "column": columns,
            "edge": graph.num_edges,
            "relation": getattr(graph, "num_relations", 0),
            "heads": heads,
            "width": width,
            "out": out,
        }
        return [torch.randn([sizes.get(n, n) for n in shape]).to(dtype).requires_grad_() for shape in shapes]

    return make


_X, _W = ("column", "heads", "width"), ("edge", "heads", 1)
_Y = ("row", "heads", "width")


def _gspmm(op: str, reduce: str, ties: str = "even") -> Operator:
    if op == "copy_u":
        return Operator(_tensors(_X), lambda g, x: gsb.gspmm(g, op, reduce, u=x, ties=ties))
    if op == "copy_e":
        return Operator(_tensors(("edge", "heads", "width")), lambda g, e: gsb.gspmm(g, op, reduce, e=e, ties=ties))
    return Operator(_tensors(_X, _W), lambda g, x, w: gsb.gspmm(g, op, reduce, x, w, ties=ties))


def _parts(graph) -> gsb.formats.Decomposition:
    """Blocks of which half is there, and the rest by itself."""
    return gsb.formats.decompose(graph, ["bsr(2)", "csr"])


def _segments(graph) -> Tensor:
    return graph.in_degrees.long()


OPERATORS: dict[str, Operator] = {
    "spmm": Operator(_tensors(("column", "width")), lambda g, x: gsb.spmm(g, x)),
    "spmm_weighted_mean": Operator(_tensors(_X, ("edge", "heads")), lambda g, x, w: gsb.spmm(g, x, w, "mean")),
    "fused_dot": Operator(
        _tensors(_Y, _X), lambda g, y, x: gsb.aggregate(g, "mul(sigmoid(dot(x0, x1)), x1)", [("v", y), ("u", x)])
    ),
    "sddmm": Operator(_tensors(_Y, _X), lambda g, u, v: gsb.sddmm(g, u, v)),
    **{
        f"gspmm_{op}_{reduce}": _gspmm(op, reduce)
        for op, reduce in (
            ("copy_u", "max"),
            ("copy_e", "sum"),
            ("copy_e", "min"),
            ("add", "mean"),
            ("mul", "max"),
            ("div", "sum"),
        )
    },
    "gspmm_last_max": _gspmm("mul", "max", "last"),
    **{
        f"gsddmm_{op}": Operator(_tensors(_Y, _X), lambda g, u, v, op=op: gsb.gsddmm(g, op, u, v, "v", "u"))
        for op in ("add", "div", "dot")
    },
    "composed_spmm": Operator(
        _tensors(("edge",), ("column", "width")), lambda g, a, x: gsb.composed_spmm(_parts(g), a, x)
    ),
    "composed_linear": Operator(
        _tensors(("edge",), ("width", "column")), lambda g, a, x: gsb.composed_linear(_parts(g), a, x)
    ),
    "composed_sddmm": Operator(
        _tensors(("row", "width"), ("column", "width")), lambda g, u, v: gsb.composed_sddmm(_parts(g), u, v)
    ),
    "edge_softmax": Operator(_tensors(("edge", "heads")), lambda g, s: gsb.edge_softmax(g, s)),
    "attention": Operator(_tensors(_Y, _X, _X), lambda g, q, k, v: gsb.attention(g, q, k, v)),
    "gat_attention": Operator(
        _tensors(("row", "heads"), ("column", "heads"), _X), lambda g, d, s, v: gsb.gat_attention(g, d, s, v)
    ),
    "gatv2_attention": Operator(
        _tensors(_Y, _X, ("heads", "width")), lambda g, d, s, a: gsb.gatv2_attention(g, d, s, a)
    ),
    **{
        f"segment_reduce_{reduce}": Operator(
            _tensors(("edge", "width")), lambda g, x, reduce=reduce: gsb.segment_reduce(x, _segments(g), reduce)
        )
        for reduce in ("sum", "max")
    },
    "segment_mm": Operator(
        _tensors(("edge", "width"), ("row", "width", "out")), lambda g, a, b: gsb.segment_mm(a, b, _segments(g))
    ),
    "gather_mm": Operator(
        _tensors(("edge", "width"), ("column", "width", "out")), lambda g, a, b: gsb.gather_mm(a, b, g.indices)
    ),
}

# on a RelGraph
RGMS: dict[str, Operator] = {
    "rgms": Operator(_tensors(("column", "width"), ("relation", "width", "out")), lambda g, x, w: gsb.rgms(g, x, w)),
    "rgms_mean": Operator(
        _tensors(("column", "width"), ("relation", "width", "out")), lambda g, x, w: gsb.rgms(g, x, w, reduce="mean")
    ),
    "rgms_weighted": Operator(
        _tensors(("column", "width"), ("relation", "width", "out"), ("edge",)), lambda g, x, w, a: gsb.rgms(g, x, w, a)
    ),
    "rgms_blocks": Operator(
        _tensors(("column", "heads", "width"), ("relation", "heads", "width", "out")),
        lambda g, x, w: gsb.rgms(g, x.flatten(1), w, reduce="mean"),
    ),
}


def step(name: str, graph, operands, cotangent: Tensor | None = None) -> list[Tensor]:
    """The result of the operator and its gradients."""
    out = {**OPERATORS, **RGMS}[name].run(graph, *operands)
    if cotangent is None:
        cotangent = torch.ones_like(out)
    return [out.detach(), *torch.autograd.grad(out, operands, cotangent)]
