"""The small graphs that PyG's layers are walked on: fresh tensors at every call, always the same.

A compiled call is given those of the last call without a compiler, as a program of a user is given its graph.

Multigraphs all of them: four edges of each come twice. ``isolated`` has self loops, two nodes without any edge and some
without outgoing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from unittest import mock

import torch
import torch_geometric.nn as gnn
import torch_geometric.nn.conv.spline_conv as spline_conv
import torch_geometric.nn.models.dimenet as dimenet
import torch_geometric.nn.models.gnnff as gnnff
import torch_geometric.typing
import torch_geometric.utils
from torch import Tensor, nn

NODES, EDGES = 12, 40  # of `isolated`
SOURCES, TARGETS, LINKS = 9, 7, 25  # of `bipartite`
RELATIONS = 3
TYPED = {"a": 8, "b": 6}  # node types of `typed` and their numbers
TYPED_EDGES = {("a", "r", "b"): 20, ("b", "s", "b"): 15, ("b", "t", "a"): 12, ("a", "r", "a"): 5}
GRAPHS = 4  # of `batch`


def sequential(signature: str, layers: list) -> nn.Module:
    """PyG's `Sequential`, of a class of its own: PyG writes the code of one to its class, and those that come later
    have it too, where PyG cannot import what is called as the calling file is.
    """
    return type("OwnSequential", (gnn.Sequential,), {})(signature, layers)


def made_before(make: Callable) -> Callable:
    """``make``, of which no program has a part: Dynamo finds what was made of the same arguments, like an input."""
    last = {}

    @wraps(make)
    def called(*args):
        if not (torch.compiler.is_dynamo_compiling() and args in last):
            last[args] = make(*args)
        return last[args]

    return called


@made_before
def draw(high: int, number: int, seed: int) -> Tensor:
    """``number`` integers in [0, high)."""
    return torch.randint(high, (number,), generator=torch.Generator().manual_seed(seed))


@made_before
def pairs(sources: int, targets: int, edges: int, seed: int) -> Tensor:
    """A (2, edges) edge index, the last edges copies of the first ones, in no order."""
    index = torch.stack([draw(sources, edges, seed), draw(targets, edges, seed + 1)])
    twice = min(4, edges // 2)
    index[:, edges - twice :] = index[:, :twice]
    return index


@made_before
def isolated() -> Tensor:
    """Nodes 10 and 11 have no edge at all."""
    return pairs(NODES - 2, NODES - 2, EDGES, 5)


@made_before
def loopless() -> Tensor:
    """`isolated` without its self loops."""
    return torch_geometric.utils.remove_self_loops(isolated())[0]


@made_before
def square() -> Tensor:
    """`isolated` with a self loop at every node, after the other edges."""
    return torch_geometric.utils.add_self_loops(isolated(), num_nodes=NODES)[0]


@made_before
def by_target() -> Tensor:
    """`isolated`, sorted by target, as aggregations of sequences want it."""
    index = isolated()
    return index[:, index[1].argsort(stable=True)]


@made_before
def symmetric() -> Tensor:
    """`loopless` in both directions, each edge once."""
    return torch_geometric.utils.to_undirected(loopless(), num_nodes=NODES)


@made_before
def no_edges() -> Tensor:
    return torch.empty((2, 0), dtype=torch.int64)


@made_before
def bipartite() -> Tensor:
    """From `SOURCES` to `TARGETS` nodes; the last target has no edge."""
    return pairs(SOURCES, TARGETS - 1, LINKS, 7)


@made_before
def typed() -> dict[tuple[str, str, str], Tensor]:
    """Four relations on two types of nodes, two of the relations under one name; the last node of a type is bare."""
    return {
        (source, name, target): pairs(TYPED[source] - 1, TYPED[target] - 1, number, 20 + position)
        for position, ((source, name, target), number) in enumerate(TYPED_EDGES.items())
    }


METADATA = (list(TYPED), list(TYPED_EDGES))


@made_before
def edge_types(edges: int = EDGES, sort: bool = False) -> Tensor:
    """A relation for each of ``edges`` edges."""
    types = draw(RELATIONS, edges, 9)
    return types.sort().values if sort else types


@made_before
def batch() -> Tensor:
    """The graph of each node, ascending: of `GRAPHS` graphs the second is empty and the last has one node."""
    return torch.tensor([0] * 5 + [2] * 6 + [3])


@made_before
def pointers() -> Tensor:
    """`batch` as the first node of each graph."""
    return torch.tensor([0, 5, 5, 11, 12])


@made_before
def within_graphs() -> Tensor:
    """Edges between nodes of one graph of `batch`."""
    index, graph = pairs(NODES, NODES, 60, 31), batch()
    return index[:, graph[index[0]] == graph[index[1]]]


def adjacency(
    layout: str, values: Tensor | None = None, index: Tensor | None = None, shape: tuple[int, int] = (NODES, NODES)
) -> Tensor:
    """A sparse matrix with targets as rows; edges that come twice are summed. ``values``: one number per edge."""
    index = isolated() if index is None else index
    values = torch.ones(index.shape[1], dtype=torch.float64) if values is None else values
    matrix = torch.sparse_coo_tensor(index.flip(0), values, shape).coalesce()
    return {"csr": matrix.to_sparse_csr, "csc": matrix.to_sparse_csc, "coo": lambda: matrix}[layout]()


# --- what compiled packages do for some layers ---------------------------------------------------------------------


def _nearest(
    x: Tensor, y: Tensor, ptr_x: Tensor | None, ptr_y: Tensor | None, k: int, cosine: bool, workers: int
) -> Tensor:
    """The ``k`` nearest points of ``x`` for each of ``y``: (2, k * len(y)), first the points of ``y``."""
    distances = torch.cdist(y.detach().double(), x.detach().double())
    if ptr_x is not None:
        rows, columns = (
            torch.bucketize(torch.arange(len(each)), ptr[1:], right=True) for each, ptr in ((y, ptr_y), (x, ptr_x))
        )
        distances = distances.masked_fill(rows[:, None] != columns, torch.inf)
    found = distances.argsort(dim=1, stable=True)[:, :k]
    return torch.stack([torch.arange(len(y)).repeat_interleave(found.shape[1]), found.flatten()])


def _within(
    x: Tensor,
    y: Tensor,
    ptr_x: Tensor | None,
    ptr_y: Tensor | None,
    radius: float,
    most: int,
    workers: int,
    no_loops: bool,
) -> Tensor:
    """The points of ``x`` nearer than ``radius`` to each of ``y``, first the points of ``y``."""
    found = _nearest(x, y, ptr_x, ptr_y, len(x), False, workers)
    near = (x.detach()[found[1]] - y.detach()[found[0]]).norm(dim=1) < radius
    if ptr_x is not None:
        graph = [torch.bucketize(index, ptr[1:], right=True) for index, ptr in zip(found, (ptr_y, ptr_x))]
        near &= graph[0] == graph[1]
    return found[:, near & (found[0] != found[1]) if no_loops else near]


def _spline_basis(pseudo: Tensor, sizes: Tensor, is_open: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """Linear B-splines on open grids: weights and kernel numbers, (edges, 2 ** dimensions)."""
    position = pseudo * (sizes - 1)
    low = position.detach().floor().clamp(max=(sizes - 2)).long()
    high = torch.cartesian_prod(*[torch.arange(2)] * len(sizes)).reshape(-1, len(sizes))
    rest = (position - low)[:, None]
    basis = torch.where(high.bool(), rest, 1 - rest).prod(-1)
    strides = torch.cat([sizes.new_ones(1), sizes[:-1].cumprod(0)])
    return basis, ((low[:, None] + high) * strides).sum(-1)


def _spline_weighting(x: Tensor, weight: Tensor, basis: Tensor, kernels: Tensor) -> Tensor:
    return torch.einsum("ei,es,esio->eo", x, basis, weight[kernels])


def _triplets(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, ...]:
    """Pairs of edges k -> j and j -> i with k != i, as ``dimenet.triplets`` returns them."""
    source, target = edge_index
    incoming, outgoing = torch.nonzero((target[:, None] == source) & (source[:, None] != target), as_tuple=True)
    return target, source, target[outgoing], source[outgoing], source[incoming], incoming, outgoing


@contextmanager
def stand_ins() -> Iterator[None]:
    """Plain versions of what ``pyg_lib`` and ``torch_sparse`` do for layers that make their own graph, if these are
    absent: a search for neighbours, paths of two edges, splines."""
    with ExitStack() as stack:
        if not torch_geometric.typing.WITH_TORCH_SPARSE:
            for module in (dimenet, gnnff):
                stack.enter_context(mock.patch.object(module, "triplets", _triplets))
        for name, function, flag in (("knn", _nearest, "WITH_KNN"), ("radius", _within, "WITH_RADIUS")):
            if not getattr(torch_geometric.typing, flag):
                stack.enter_context(mock.patch.object(torch.ops.pyg, name, function, create=True))
                stack.enter_context(mock.patch.object(torch_geometric.typing, flag, True))
        if spline_conv.spline_basis is None:
            stack.enter_context(
                mock.patch.multiple(spline_conv, spline_basis=_spline_basis, spline_weighting=_spline_weighting)
            )
        yield


def with_stand_ins(call: Callable) -> Callable:
    def inside(*args, **kwargs):
        with stand_ins():
            return call(*args, **kwargs)

    return inside
