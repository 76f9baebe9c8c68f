"""Random right calls of the functions of ``gsb.__all__``, ``gsb.masks`` and ``gsb.distributed`` that take operands."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import gnn_sparse_backend as gsb

from . import masks, oracles, parts

WIDTHS, HEADS = (3, 3, 1, 0), (2, 2, 1)
# (destinations, sources, edges)
SIZES = ((4, 5, 7), (4, 5, 7), (3, 2, 0), (0, 3, 0), (3, 0, 0), (1, 1, 6))


@dataclass
class Call:
    """A function of the package, its arguments by name, and the same on plain PyTorch, or None for none to compare."""

    name: str
    function: Callable
    arguments: dict[str, Any]
    oracle: Callable | None

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={shown(value)}' for name, value in self.arguments.items())})"


def shown(value) -> str:
    if isinstance(value, Tensor):
        return f"<{value.dtype} {tuple(value.shape)} {value.layout} on {value.device}>"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    return f"{value!r:.80}"


class Drawn:
    """Right arguments for one call: a graph, and tensors that fit it."""

    def __init__(self, rng: random.Random, dtypes=(torch.float32,)):
        self.rng = rng
        self.rows, self.cols, self.edges = rng.choice(SIZES)
        self.generator = torch.Generator().manual_seed(rng.getrandbits(32))
        self.dtype = rng.choice(dtypes)
        self.width, self.out = rng.choice(WIDTHS), rng.choice(WIDTHS)
        self.heads = rng.choice(HEADS)
        self.relations = rng.choice((1, 3))

    def integers(self, bound: int, count: int) -> Tensor:
        return torch.randint(0, max(bound, 1), (count,), generator=self.generator)

    def floats(self, *shape: int) -> Tensor:
        x = torch.randn(shape, generator=self.generator).to(self.dtype)
        return x.requires_grad_() if self.rng.random() < 0.3 else x

    def ends(self) -> tuple[Tensor, Tensor]:
        return self.integers(self.rows, self.edges), self.integers(self.cols, self.edges)

    def graph(self) -> gsb.Graph:
        return gsb.Graph.from_coo(*self.ends(), (self.rows, self.cols))

    def rel_graph(self) -> gsb.RelGraph:
        row, col = self.ends()
        relation = self.integers(self.relations, self.edges)
        return gsb.RelGraph.from_triples(col, row, relation, (self.rows, self.cols), self.relations)

    def lengths(self) -> Tensor:
        """Of as many segments as there are rows, with a row per edge."""
        return torch.bincount(self.ends()[0], minlength=max(self.rows, 1))

    def pick(self, *choices):
        return self.rng.choice(choices)


def spmm(d: Drawn) -> dict:
    heads = d.pick((), (d.heads,))
    weight = d.pick(None, d.floats(d.edges), d.floats(d.edges, 1), d.floats(d.edges, *heads))
    reduce = d.pick("sum", "mean", "max", "min")
    return dict(graph=d.graph(), x=d.floats(d.cols, *heads, d.width), weight=weight, reduce=reduce)


def spmm_linear(d: Drawn) -> dict:
    wide, mapped = d.width, d.pick(1, d.heads)
    given = dict(graph=d.graph(), x=d.floats(d.cols, wide), matrix=d.floats(mapped, wide))
    return given | dict(bias=d.pick(None, d.floats(mapped)), weight=None, reduce=d.pick("sum", "mean"))


def sddmm(d: Drawn) -> dict:
    heads = d.pick((), (d.heads,))
    return dict(graph=d.graph(), u=d.floats(d.rows, *heads, d.width), v=d.floats(d.cols, *heads, d.width))


def _operands(d: Drawn) -> list:
    rows = {"u": (d.cols,), "v": (d.rows,), "e": (d.edges,), "all": ()}
    places = [d.pick("u", "v", "e"), d.pick("u", "v", "e", "all")]
    return [(place, d.floats(*rows[place], d.pick(1, d.width))) for place in places]


def aggregate(d: Drawn) -> dict:
    message = d.pick("mul(x0, x1)", "add(x0, x1)", "sub(sigmoid(x0), x1)")
    reduce, ties = d.pick("sum", "mean", "max", "min"), d.pick("even", "first", "last")
    return dict(graph=d.graph(), message=message, operands=_operands(d), reduce=reduce, ties=ties)


def edge_map(d: Drawn) -> dict:
    message = d.pick("mul(x0, x1)", "add(x0, x1)", "sub(sigmoid(x0), x1)")
    return dict(graph=d.graph(), message=message, operands=_operands(d), sum_last=d.pick(False, True))


def gspmm(d: Drawn) -> dict:
    op, reduce = d.pick("copy_u", "copy_e", "add", "mul", "div"), d.pick("sum", "mean", "max", "min")
    u = None if op == "copy_e" else d.floats(d.cols, d.width)
    e = None if op == "copy_u" else d.floats(d.edges, d.pick(1, d.width))
    return dict(graph=d.graph(), op=op, reduce=reduce, u=u, e=e, ties=d.pick("even", "first", "last"))


def gsddmm(d: Drawn) -> dict:
    op, lhs, rhs = d.pick("add", "mul", "dot", "copy_lhs"), d.pick("u", "v", "e"), d.pick("u", "v", "e")
    rows = {"u": d.cols, "v": d.rows, "e": d.edges}
    given = None if op == "copy_lhs" else d.floats(rows[rhs], d.width)
    return dict(graph=d.graph(), op=op, lhs=d.floats(rows[lhs], d.width), rhs=given, lhs_target=lhs, rhs_target=rhs)


def edge_softmax(d: Drawn) -> dict:
    return dict(graph=d.graph(), scores=d.floats(d.edges, *d.pick((), (d.heads,))), norm_by=d.pick("dst", "src"))


def attention(d: Drawn) -> dict:
    heads = d.pick((), (d.heads,))
    query, key = d.floats(d.rows, *heads, d.width), d.floats(d.cols, *heads, d.width)
    value, edge_weight = d.floats(d.cols, *heads, d.out), d.pick(None, d.floats(d.edges, *heads))
    return dict(graph=d.graph(), query=query, key=key, value=value, scale=d.pick(None, 0.5, 2), edge_weight=edge_weight)


def gat_attention(d: Drawn) -> dict:
    heads = d.pick((), (d.heads,))
    return dict(
        graph=d.graph(),
        dst_scores=d.floats(d.rows, *heads),
        src_scores=d.floats(d.cols, *heads),
        value=d.floats(d.cols, *heads, d.width),
        negative_slope=d.pick(0.2, 0.1),
        edge_scores=d.pick(None, d.floats(d.edges, *heads)),
        edge_weight=d.pick(None, d.floats(d.edges, *heads)),
    )


def gatv2_attention(d: Drawn) -> dict:
    heads = d.pick((), (d.heads,))
    return dict(
        graph=d.graph(),
        x_dst=d.floats(d.rows, *heads, d.width),
        x_src=d.floats(d.cols, *heads, d.width),
        att=d.floats(*heads, d.width),
        negative_slope=0.2,
        value=d.pick(None, d.floats(d.cols, *heads, d.out)),
        edge_weight=d.pick(None, d.floats(d.edges, *heads)),
    )


def segment_mm(d: Drawn) -> dict:
    lengths = d.lengths()
    seglen = d.pick(lengths, lengths.int(), lengths.numpy(), gsb.Segments.from_lengths(lengths))
    return dict(a=d.floats(d.edges, d.width), b=d.floats(lengths.numel(), d.width, d.out), seglen=seglen)


def gather_mm(d: Drawn) -> dict:
    index = d.integers(d.relations, d.edges)
    at = None if d.cols == 0 else d.pick(None, d.integers(d.cols, d.edges))
    a = d.floats(d.edges if at is None else d.cols, d.width)
    idx_b = d.pick(index, index.int(), gsb.Segments.from_index(index, d.relations))
    return dict(a=a, b=d.floats(d.relations, d.width, d.out), idx_b=idx_b, idx_a=at)


def segment_reduce(d: Drawn) -> dict:
    lengths = d.lengths()
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    given = d.pick(dict(lengths=lengths), dict(offsets=offsets), dict(lengths=gsb.Segments.from_lengths(lengths)))
    reduce, ties = d.pick("sum", "mean", "max", "min"), d.pick("even", "first", "last")
    return dict(x=d.floats(d.edges, *d.pick((), (d.width,))), **given, reduce=reduce, ties=ties)


def rgms(d: Drawn) -> dict:
    plain = d.floats(d.relations, d.width, d.out)
    bases = (d.floats(d.relations, 2), d.floats(2, d.width, d.out))
    weight, width = d.pick((plain, d.width), (bases, d.width), (d.floats(d.relations, 2, d.width, d.out), 2 * d.width))
    edge_weight = d.pick(None, d.floats(d.edges), d.floats(d.edges, 1))
    return dict(
        rel_graph=d.rel_graph(),
        x=d.floats(d.cols, width),
        weight=weight,
        edge_weight=edge_weight,
        reduce=d.pick("sum", "mean"),
    )


def _parts(d: Drawn) -> gsb.formats.Decomposition:
    return gsb.formats.decompose(d.graph(), d.pick(["csr"], ["bsr(2)", "csr"], ["dbsr(2, 1)"], ["dia"]))


def composed_spmm(d: Drawn) -> dict:
    parts = _parts(d)
    return dict(parts=parts, values=d.floats(d.edges), x=d.floats(d.cols, d.width))


def composed_linear(d: Drawn) -> dict:
    parts = _parts(d)
    given = dict(parts=parts, values=d.floats(d.edges), x=d.floats(d.width, d.cols))
    return given | dict(bias=d.pick(None, d.floats(d.rows)))


def composed_sddmm(d: Drawn) -> dict:
    parts = _parts(d)
    return dict(parts=parts, u=d.floats(d.rows, d.width), v=d.floats(d.cols, d.width))


def _pairs(d: Drawn) -> dict:
    """Of two offsets: at each some rows meet some others, once."""
    count = [d.rng.randint(0, min(d.rows, d.cols)) for _ in range(2)]
    ends = [torch.cat([torch.randperm(size, generator=d.generator)[:n] for n in count]) for size in (d.cols, d.rows)]
    return dict(inputs=ends[0], outputs=ends[1], indptr=torch.tensor([0, count[0], sum(count)]), shape=(d.rows, d.cols))


def sparse_conv(d: Drawn) -> dict:
    groups = d.pick(1, 2)
    return dict(
        features=d.floats(d.cols, groups * d.width),
        weight=d.floats(2, d.width, groups * d.out),
        kernel_map=gsb.KernelMap.from_pairs(**_pairs(d)),
        bias=d.pick(None, d.floats(groups * d.out)),
        groups=groups,
    )


def from_pairs(d: Drawn) -> dict:
    return _pairs(d)


def from_coo(d: Drawn) -> dict:
    row, col = d.ends()
    return dict(row=row, col=d.pick(col, col.int()), shape=(d.rows, d.cols))


def from_csr(d: Drawn) -> dict:
    graph = d.graph()
    edge_ids = d.pick(None, torch.arange(d.edges).flip(0))
    return dict(indptr=graph.indptr.clone(), indices=graph.indices.clone(), shape=graph.shape, edge_ids=edge_ids)


def from_edge_index(d: Drawn) -> dict:
    row, col = d.ends()
    return dict(edge_index=torch.stack([col, row]), size=(d.cols, d.rows))


def from_scipy(d: Drawn) -> dict:
    from scipy import sparse

    row, col = (x.numpy() for x in d.ends())
    return dict(matrix=sparse.coo_array((np.ones(d.edges), (row, col)), shape=(d.rows, d.cols)))


def from_triples(d: Drawn) -> dict:
    row, col = d.ends()
    relation = d.integers(d.relations, d.edges)
    return dict(source=col, destination=row, relation=relation, shape=(d.rows, d.cols), num_relations=d.relations)


def from_lengths(d: Drawn) -> dict:
    return dict(lengths=d.lengths(), num_rows=d.pick(None, d.edges))


def from_offsets(d: Drawn) -> dict:
    return dict(offsets=d.graph().indptr.clone(), num_rows=d.edges)


def from_index(d: Drawn) -> dict:
    return dict(index=d.integers(d.relations, d.edges), num_segments=d.relations)


def explain(d: Drawn) -> dict:
    return dict(graph=d.graph(), op=d.pick("sum", "weighted_mean", "dot"), features=d.pick(8, 3), dtype="float32")


def tune_format(d: Drawn) -> dict:
    return dict(matrix=d.graph(), features=d.pick(8, 3), dtype=d.pick(torch.float32, "float64"), budget=0.0)


def precompile(d: Drawn) -> dict:
    given = dict(features=d.pick(3, [3]), ops=d.pick("sum", None), budget=d.pick("10ms", 0.01), dtype="float32")
    return dict(data=d.graph(), **given, backward=False, progress=False)


def _mask(d: Drawn) -> gsb.masks.Mask:
    heads = d.pick(1, d.heads)
    allowed = torch.rand(heads, d.rows, d.cols, generator=d.generator) < 0.5
    return gsb.masks.from_dense(allowed, block=4, of="heads")


def sparse_attention(d: Drawn) -> dict:
    mask, planes = _mask(d), (d.pick(1, 2), d.heads)
    given = dict(q=d.floats(*planes, d.rows, d.width), k=d.floats(*planes, d.cols, d.width))
    return given | dict(v=d.floats(*planes, d.cols, d.out), mask=mask, scale=d.pick(None, 0.5), dropout=0.0)


def masked_sddmm(d: Drawn) -> dict:
    planes = d.pick(1, 2), d.heads
    return dict(mask=_mask(d), a=d.floats(*planes, d.rows, d.width), b=d.floats(*planes, d.cols, d.width))


def masked_spmm(d: Drawn) -> dict:
    mask, batch, transposed = _mask(d), d.pick(1, 2), d.pick(False, True)
    values = d.floats(batch, d.heads // mask.heads, mask.num_blocks, 4, 4)
    b = d.floats(batch, d.heads, d.rows if transposed else d.cols, d.width)
    return dict(mask=mask, values=values, b=b, transposed=transposed)


def sample_neighbors(d: Drawn) -> dict:
    row, col = d.ends()
    edges = len(row) if d.rows else 0
    graph = gsb.Graph.from_coo(row[:edges], col[:edges] % max(d.rows, 1), (d.rows, d.rows))
    given = dict(graph=graph, seeds=d.integers(d.rows, d.rows and d.pick(0, 3)), fanouts=d.pick([2], [-1, 3], []))
    weights = d.pick(None, torch.rand(graph.num_edges, generator=d.generator))
    return given | dict(
        replace=d.pick(False, True), weights=weights, disjoint=d.pick(False, True), seed=d.pick(None, 3)
    )


OPERATORS = (
    spmm,
    spmm_linear,
    sddmm,
    aggregate,
    edge_map,
    gspmm,
    gsddmm,
    edge_softmax,
    attention,
    gat_attention,
    gatv2_attention,
    segment_mm,
    gather_mm,
    segment_reduce,
    rgms,
    sparse_conv,
    sparse_attention,
    masked_sddmm,
    masked_spmm,
    composed_spmm,
    composed_linear,
    composed_sddmm,
)
MAKERS = {
    gsb.Graph: (from_coo, from_csr, from_edge_index, from_scipy),
    gsb.RelGraph: (from_triples,),
    gsb.Segments: (from_lengths, from_offsets, from_index),
    gsb.KernelMap: (from_pairs,),
}
FUNCTIONS: dict[str, tuple[Callable, Callable, Callable | None]] = {
    **{make.__name__: (make, getattr(gsb, make.__name__), getattr(oracles, make.__name__)) for make in OPERATORS},
    **{
        f"{owner.__name__}.{make.__name__}": (make, getattr(owner, make.__name__), getattr(oracles, make.__name__))
        for owner, makes in MAKERS.items()
        for make in makes
    },
    **{f"masks.{make.__name__}": (make, getattr(gsb.masks, make.__name__), oracle) for make, oracle in masks.MAKERS},
    **parts.FUNCTIONS,
    "explain": (explain, gsb.explain, None),
    "precompile": (precompile, gsb.precompile, None),
    "sample_neighbors": (sample_neighbors, gsb.sample_neighbors, None),
    "tune_format": (tune_format, gsb.tune_format, None),
}


def right_call(rng: random.Random, name: str, dtypes=(torch.float32,)) -> Call:
    make, function, oracle = FUNCTIONS[name]
    return Call(name, function, make(Drawn(rng, dtypes)), oracle)
