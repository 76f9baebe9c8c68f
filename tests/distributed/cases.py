"""Graphs, and operators on a part that are held against the same on the whole graph."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import torch.distributed as dist

import gnn_sparse_backend as gsb
from gnn_sparse_backend.distributed import DistGraph, halo_exchange
from gnn_sparse_backend.distributed.methods import METHODS
from tests.ops.operators import HEADS, OUT, WIDTH

KINDS = ("square", "bipartite", "few", "relational", "few relational")
RELATIONS = 3


def whole(kind: str) -> gsb.Graph | gsb.RelGraph:
    """A graph with repeated edges, loops and isolated nodes; those called few have fewer nodes than parts."""
    random = torch.Generator().manual_seed(KINDS.index(kind))
    sizes = {"square": (23, 23), "bipartite": (11, 17), "relational": (19, 19)}
    rows, cols = sizes.get(kind, (2, 2))
    edges = 120 if kind in sizes else 5
    row = torch.randint(max(rows - 3, 1), (edges,), generator=random)
    col = torch.randint(max(cols - 2, 1), (edges,), generator=random)
    if "relational" not in kind:
        return gsb.Graph.from_coo(row, col, (rows, cols))
    relation = torch.randint(RELATIONS, (edges,), generator=random)
    return gsb.RelGraph.from_triples(col, row, relation, (rows, cols), RELATIONS)


def cut(kinds: Iterable[str], parts: int, folder: Path) -> dict[tuple[str, str], Path]:
    """Graphs of these kinds in so many parts, by every method that is installed; one part is the same by all."""
    here = [method for method in METHODS if method != "metis" or importlib.util.find_spec("pymetis")]
    folders = {
        (kind, method): folder / f"{kind} {method}" for kind in kinds for method in (here if parts > 1 else ["range"])
    }
    for (kind, method), each in folders.items():
        gsb.distributed.partition(whole(kind), parts, each, method, progress=False)
    return folders


def ordinary(graph: gsb.Graph, v, u, e) -> dict[str, Callable]:
    """Calls on a structure: v(...) makes operands of destinations, u of sources and e of edges."""
    message = [("u", u(HEADS, WIDTH)), ("v", v(HEADS, 1)), ("e", e(HEADS, 1))]
    calls = {
        **{f"spmm {r}": lambda r=r: gsb.spmm(graph, u(WIDTH), e(), reduce=r) for r in ("sum", "mean", "max", "prod")},
        "spmm heads": lambda: gsb.spmm(graph, u(HEADS, WIDTH), e(HEADS)),
        **{
            f"aggregate {r}": lambda r=r: gsb.aggregate(graph, "mul(sigmoid(add(x0, x1)), x2)", message, r)
            for r in ("sum", "mean", "min")
        },
        "sddmm": lambda: gsb.sddmm(graph, v(HEADS, WIDTH), u(HEADS, WIDTH)),
        "edge_softmax": lambda: gsb.edge_softmax(graph, e(HEADS)),
        "attention": lambda: gsb.attention(
            graph, v(HEADS, WIDTH), u(HEADS, WIDTH), u(HEADS, OUT), edge_weight=e(HEADS)
        ),
        "gat_attention": lambda: gsb.gat_attention(graph, v(HEADS), u(HEADS), u(HEADS, WIDTH)),
        "gatv2_attention": lambda: gsb.gatv2_attention(
            graph, v(HEADS, WIDTH), u(HEADS, WIDTH), torch.ones(HEADS, WIDTH).double()
        ),
    }
    return calls


def relational(graph: gsb.RelGraph, v, u, e, weight) -> dict[str, Callable]:
    return {f"rgms {r}": lambda r=r: gsb.rgms(graph, u(WIDTH), weight, e(), r) for r in ("sum", "mean")}


class Operands:
    """The same random operands, whole or the rows of a part, which keep their gradients."""

    def __init__(self, count: int, ids: torch.Tensor | None, seed: int) -> None:
        self.count, self.ids, self.seed, self.made = count, ids, seed, {}

    def __call__(self, *width: int) -> torch.Tensor:
        if width not in self.made:
            random = torch.Generator().manual_seed(self.seed + 7 * len(width) + sum(width))
            x = torch.rand(self.count, *width, generator=random, dtype=torch.float64) + 0.5
            self.made[width] = (x if self.ids is None else x[self.ids]).requires_grad_()
        return self.made[width]


def results(kind: str, graph, ids: tuple | None, shape: tuple[int, int], edges: int, cut: Callable) -> dict:
    """Outputs and gradients of every call, by name; ``cut(x, name)`` takes the cotangent's rows."""
    of_rows, of_cols, of_edges = ids or (None, None, None)
    found = {}
    names = list(calls_of(kind, graph, *(Operands(n, None, 0) for n in (*shape, edges)), None))
    for name in names:
        v, u, e = Operands(shape[0], of_rows, 1), Operands(shape[1], of_cols, 2), Operands(edges, of_edges, 3)
        random = torch.Generator().manual_seed(9)
        weight = torch.rand(RELATIONS, WIDTH, OUT, generator=random, dtype=torch.float64).requires_grad_()
        out = calls_of(kind, graph, v, u, e, weight)[name]()
        of_edge = name in ("sddmm", "edge_softmax")
        cotangent = torch.rand(edges if of_edge else shape[0], *out.shape[1:], generator=random, dtype=torch.float64)
        out.backward(cut(cotangent, of_edge))
        found[name] = {"out": (out.detach(), "edge" if of_edge else "row")}
        for side, operands in (("row", v), ("col", u), ("edge", e)):
            for width, x in operands.made.items():
                if x.grad is not None:
                    found[name][f"{side}{width}"] = (x.grad, side)
        if weight.grad is not None:
            found[name]["weight"] = (weight.grad, "all")
    return found


def calls_of(kind: str, graph, v, u, e, weight) -> dict[str, Callable]:
    return relational(graph, v, u, e, weight) if "relational" in kind else ordinary(graph, v, u, e)


def equal_to_one_process(rank: int, folders: dict[tuple[str, str], Path]) -> None:
    """Every operator on every partition, against the whole graph; over the loopback, too, as between machines."""
    for (kind, method), folder in folders.items():
        for shared in (True, False) if method == "range" and dist.is_initialized() else (True,):
            compare(kind, method, DistGraph.load(folder, shared_memory=shared))


def compare(kind: str, method: str, part: DistGraph) -> None:
    graph = whole(kind)
    ids = {"row": part.row_ids, "col": part.column_ids, "edge": part.edge_ids}
    sizes = graph.shape, graph.num_edges
    told = results(kind, graph, None, *sizes, lambda x, of_edge: x)
    mine = results(kind, part, tuple(ids.values()), *sizes, lambda x, of_edge: x[ids["edge" if of_edge else "row"]])
    assert mine.keys() == told.keys()
    for name, found in mine.items():
        assert found.keys() == told[name].keys(), name
        for what, (x, side) in found.items():
            wanted = told[name][what][0]
            if side != "all":
                wanted = wanted[ids[side]]
            elif part.group is not None:
                dist.all_reduce(x)
            where = f"{kind} {method} {name} {what}: "
            torch.testing.assert_close(x, wanted, rtol=1e-10, atol=1e-10, msg=where.__add__)
    x = torch.arange(graph.shape[1], dtype=torch.float64)[part.column_ids]
    assert torch.equal(halo_exchange(part, x).long(), part.halo_ids)
    counted_as_predicted(part)


def counted_as_predicted(part: DistGraph) -> None:
    """Bytes of an exchange are those of the manifest, by layer, in both directions."""
    part.traffic.clear()
    x = torch.ones(part.shape[1], 5, dtype=torch.float32, requires_grad=True)
    if part.manifest["num_relations"] is None:
        gsb.spmm(part, x).sum().backward()
    else:
        gsb.rgms(part, x, torch.ones(RELATIONS, 5, 2)).sum().backward()
    halo_exchange(part, x.detach(), "other")
    other = part.traffic.pop("other")
    (layer,) = part.traffic.values()
    assert (layer.forward, layer.backward) == part.predicted_bytes(5, torch.float32)
    assert (other.forward, other.backward) == (layer.forward, 0)
    assert part.group is None or part.manifest["report"]["halo"][part.part] * 20 == layer.backward
