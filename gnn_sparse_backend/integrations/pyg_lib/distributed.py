"""One layer of samples of a graph whose parts are on several machines: what PyG's distributed loaders ask for by
``torch.ops.pyg``.

A machine draws the neighbours of its nodes (`dist_neighbor_sample`); the answers of several are put in the order of
the nodes that were asked for (`merge_sampler_outputs`), and what all layers drew is numbered (`relabel_neighborhood`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ...sampling.draws import draw, stream_of
from ...sampling.layers import numbered_seeds
from ...sampling.numbers import Numbers
from ...sampling.seeds import drawn_seed
from ..core.substitutes.scripted import counted
from ..torch_sparse.relations import is_last, of_types

_counted = counted("pyg_lib")


@_counted
def dist_neighbor_sample(
    rowptr: Tensor,
    col: Tensor,
    seed: Tensor,
    num_neighbors: int,
    node_time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    edge_weight: Tensor | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
) -> tuple[Tensor, Tensor, list[int]]:
    """Return (nodes, edges, where the neighbours of each seed begin and end): the seeds, and the neighbours drawn for
    each of them, as they come. With ``disjoint`` nodes are (n, 2), the number of their seed first.
    """
    kind = ("_", "", "") if csc else ("", "", "_")  # neighbours may be of another type than seeds
    name = "__".join(kind)
    given = [{} if each is None else {name: each} for each in (edge_time, edge_weight)]
    times = {} if node_time is None else {"": node_time, "_": node_time}
    graph = of_types(["", "_"], [kind], {name: rowptr}, {name: col}, times, *given, {"": seed}, csc)
    latest = graph.latest({"": seed}, None if seed_time is None else {"": seed_time}, disjoint)
    (relation,), last = graph.relations, is_last(temporal_strategy)
    keys = seed.to(torch.int64) + (torch.arange(seed.numel()) * relation.destinations if disjoint else 0)
    drawn = draw(relation, keys, 0, num_neighbors, stream_of(drawn_seed()), replace=replace, latest=latest, last=last)
    nodes = torch.cat([seed, drawn.neighbours])
    if disjoint:
        trees = torch.arange(seed.numel())
        nodes = torch.stack([torch.cat([trees, trees.repeat_interleave(drawn.pointers.diff())]), nodes], 1)
    return nodes, drawn.positions, (drawn.pointers + seed.numel()).tolist()


@_counted
def merge_sampler_outputs(
    node_ids: Sequence[Tensor],
    edge_ids: Sequence[Tensor],
    cumsum_neighbors_per_node: Sequence[Sequence[int]],
    partition_ids: Sequence[int],
    partition_orders: Sequence[int],
    num_partitions: int,
    num_neighbors: int,
    batch: Tensor | None,
    disjoint: bool,
) -> tuple[Tensor, Tensor, Tensor | None, list[int]]:
    """Return (nodes, edges, trees, how many each node has) of what parts have drawn, as `dist_neighbor_sample` says.

    Args:
        partition_ids, partition_orders: for each node its part, and the place that it had there.
        batch: (nodes,) its tree, with ``disjoint``.
    """
    asked = list(zip(partition_ids, partition_orders))
    begins = [cumsum_neighbors_per_node[part][place] for part, place in asked]
    counts = [cumsum_neighbors_per_node[part][place + 1] - begin for (part, place), begin in zip(asked, begins)]
    of_seeds = [each[0] if each else 0 for each in cumsum_neighbors_per_node]
    first_edge = [begin - of_seeds[part] for (part, _), begin in zip(asked, begins)]
    nodes = _pieces(node_ids, partition_ids, begins, counts)
    edges = _pieces(edge_ids, partition_ids, first_edge, counts)
    trees = batch.repeat_interleave(torch.tensor(counts)) if disjoint and batch is not None else None
    return nodes, edges, trees, counts


def _pieces(given: Sequence[Tensor], parts: Sequence[int], begins: Sequence[int], counts: Sequence[int]) -> Tensor:
    """Pieces of tensors, one behind the other."""
    before = [0, *accumulate(each.numel() for each in given)]
    starts = torch.tensor([before[part] + begin for part, begin in zip(parts, begins)], dtype=torch.int64)
    many = torch.tensor(counts, dtype=torch.int64)
    shift = starts - (many.cumsum(0) - many)
    places = torch.arange(int(many.sum())) + shift.repeat_interleave(many)
    return torch.cat(list(given))[places]


@_counted
def relabel_neighborhood(
    seed: Tensor,
    sampled_nodes_with_duplicates: Tensor,
    num_sampled_neighbors_per_node: Sequence[int],
    num_nodes: int,
    batch: Tensor | None = None,
    csc: bool = False,
    disjoint: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return (rows, columns), in the other order with ``csc``, of neighbours that were drawn for nodes in their order:
    numbers of nodes, seeds first, then others as they are met.

    Raises ValueError where ``disjoint`` has no ``batch``, the tree of each neighbour.
    """
    (numbers,) = numbered_seeds({"": num_nodes}, {"": seed}, disjoint).values()
    found = _numbered(numbers, sampled_nodes_with_duplicates, batch, disjoint)
    many = torch.tensor(num_sampled_neighbors_per_node, dtype=torch.int64)
    row = torch.arange(many.numel()).repeat_interleave(many)
    return (found, row) if csc else (row, found)


@_counted
def hetero_relabel_neighborhood(
    node_types: Sequence[str],
    edge_types: Sequence[tuple[str, str, str]],
    seed_dict: Mapping[str, Tensor],
    sampled_nodes_with_duplicates_dict: Mapping[str, Tensor],
    num_sampled_neighbors_per_node_dict: Mapping[str, Sequence[Sequence[int]]],
    num_nodes_dict: Mapping[str, int],
    batch_dict: Mapping[str, Tensor] | None = None,
    csc: bool = False,
    disjoint: bool = False,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return (rows, columns) by edge type, as `relabel_neighborhood` does. Counts are by layer and node; neighbours of
    a type are those of all its edge types, layer by layer.
    """
    known = numbered_seeds({kind: num_nodes_dict[kind] for kind in node_types}, seed_dict, disjoint)
    numbers = {
        kind: _numbered(known[kind], nodes, None if batch_dict is None else batch_dict[kind], disjoint)
        for kind, nodes in sampled_nodes_with_duplicates_dict.items()
    }
    names = {kind: "__".join(kind) for kind in edge_types}
    taken, begins = dict.fromkeys(node_types, 0), dict.fromkeys(node_types, 0)
    found: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in names.values()}
    for layer in range(max((len(num_sampled_neighbors_per_node_dict[name]) for name in names.values()), default=0)):
        ends = dict(begins)
        for kind, name in names.items():
            row_type, other = (kind[2], kind[0]) if csc else (kind[0], kind[2])
            many = torch.tensor(num_sampled_neighbors_per_node_dict[name][layer], dtype=torch.int64)
            rows = torch.arange(many.numel()) + begins[row_type]
            ends[row_type] = max(ends[row_type], begins[row_type] + many.numel())
            total = int(many.sum())
            columns = numbers[other][taken[other] : taken[other] + total]
            taken[other] += total
            found[name].append((rows.repeat_interleave(many), columns))
        begins = ends
    rows, columns = ({name: torch.cat([pair[at] for pair in each]) for name, each in found.items()} for at in range(2))
    return (columns, rows) if csc else (rows, columns)


def _numbered(numbers: Numbers, nodes: Tensor, batch: Tensor | None, disjoint: bool) -> Tensor:
    """Number nodes, each in its tree."""
    if not disjoint:
        return numbers.number(torch.zeros(1, dtype=torch.int64), 1, torch.tensor([0, nodes.numel()]), nodes)
    if batch is None or batch.shape != nodes.shape:
        raise ValueError(f"disjoint=True wants the tree of each of {nodes.numel()} nodes, got {batch}")
    return numbers.number(batch.contiguous(), 1, torch.arange(nodes.numel() + 1), nodes)
