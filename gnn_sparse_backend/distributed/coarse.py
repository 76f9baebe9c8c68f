"""Graphs that are too large for METIS: groups of nodes that hang together are cut in their place.

The method is that of Meyerhenke, Sanders and Schulz, "Partitioning Complex Networks via Size-Constrained Clustering"
(SEA 2014): nodes take the label that most of their neighbours have, within a limit of what a label may hold. Labels are
groups first, which become the nodes of a smaller graph, and its parts in the end, which are improved so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse

from ..frozen import dataclass

LARGE = 1 << 24
"""Entries from which on groups are cut: METIS takes about 90 bytes for each."""
_GROUPS = 128  # of each part, at least
_ROUNDS, _REFINING = 4, 3
_BALANCE = 1.03  # METIS's own
_CHUNK = 1 << 22
_TURNS = 16  # of a round at least: nodes of one turn do not see each other's new labels


@dataclass(frozen=True)
class Undirected:
    """An undirected graph, every edge at both of its ends.

    starts, others: neighbours of node i are ``others[starts[i]:starts[i + 1]]``. weights: of each entry; None for ones.
    sizes: of each node.
    """

    starts: np.ndarray
    others: np.ndarray
    weights: np.ndarray | None
    sizes: np.ndarray


def by_groups(graph: Undirected, parts: int, seed: int, cut: Callable[[Undirected], np.ndarray], large: int = LARGE):
    """(nodes,) the part of each: that of its group, by ``cut`` of the groups, and then improved.

    Groups are grouped again while their graph is larger than ``large`` entries and becomes smaller.
    """
    if graph.others.size <= large:
        return cut(graph)
    random, total = np.random.default_rng(seed), int(graph.sizes.sum())
    nodes = graph.sizes.size
    group = propagated(graph, np.arange(nodes, dtype=np.int32), max(total // (parts * _GROUPS), 1), _ROUNDS, random)
    group = np.unique(group, return_inverse=True)[1].astype(np.int32)
    smaller = contracted(graph, group)
    if smaller.others.size == 0 or smaller.others.size > 0.9 * graph.others.size:
        return cut(graph)
    part = by_groups(smaller, parts, seed + 1, cut, large)[group]
    return propagated(graph, part, int(_BALANCE * total / parts), _REFINING, random)


def propagated(
    graph: Undirected, label: np.ndarray, limit: int, rounds: int, random: np.random.Generator
) -> np.ndarray:
    """Labels after ``rounds`` rounds of label propagation, in which each node takes the label of most of its edges.

    A node keeps its own label if that is among the best, and takes none whose nodes would exceed ``limit`` in size.
    """
    label = label.copy()
    held = np.bincount(label, graph.sizes).astype(np.int64)
    turns = max(_TURNS, -(-graph.others.size // _CHUNK))
    for _ in range(rounds):
        for turn in random.permutation(turns):
            rows = np.arange(turn, label.size, turns)
            node, near, weight = _by_label(graph, rows, label)
            size, stays = graph.sizes[node], near == label[node]
            score = weight + np.where(stays, 0.75, 0.5 * random.random(weight.size))
            score[~stays & (held[near] + size > limit)] = 0
            first = np.flatnonzero(np.diff(node, prepend=-1))
            best = np.maximum.reduceat(score, first) if first.size else score
            wins = (score == np.repeat(best, np.diff(first, append=node.size))) & ~stays & (score > 0)
            movers, to = _fitting(node[wins], near[wins], graph.sizes, held, limit)
            np.subtract.at(held, label[movers], graph.sizes[movers])
            np.add.at(held, to, graph.sizes[movers])
            label[movers] = to
    return label


def _by_label(graph: Undirected, rows: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(node, label, weight of its edges to it), one for each label among the neighbours of ``rows``, by node."""
    counts = graph.starts[rows + 1] - graph.starts[rows]
    at = np.repeat(graph.starts[rows] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    key = (np.repeat(rows.astype(np.int64), counts) << 32) | label[graph.others[at]]
    if graph.weights is None:
        key.sort()
    else:
        order = np.argsort(key)
        key, weights = key[order], graph.weights[at][order]
    begin = np.flatnonzero(np.diff(key, prepend=-1))
    if graph.weights is None:
        weight = np.diff(begin, append=key.size)
    else:
        weight = np.add.reduceat(weights, begin) if begin.size else weights
    key = key[begin]
    return key >> 32, key & (1 << 32) - 1, weight


def _fitting(
    node: np.ndarray, to: np.ndarray, sizes: np.ndarray, held: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes that their new labels have room for, and these labels."""
    order = np.argsort(to, kind="stable")
    node, to = node[order], to[order]
    size = sizes[node]
    before = np.cumsum(size) - size
    first = np.flatnonzero(np.diff(to, prepend=-1))
    before -= np.repeat(before[first], np.diff(first, append=to.size))
    fits = held[to] + before + size <= limit
    return node[fits], to[fits]


def contracted(graph: Undirected, group: np.ndarray) -> Undirected:
    """The graph of groups: edges between two of them become one of their weight, those within one are left out."""
    sizes = np.bincount(group, graph.sizes).astype(np.int64)
    total = scipy.sparse.csr_array((sizes.size, sizes.size), dtype=np.int32)
    for first, last in _chunks(graph.starts):
        some = slice(graph.starts[first], graph.starts[last])
        row = np.repeat(group[first:last], np.diff(graph.starts[first : last + 1]))
        col = group[graph.others[some]]
        between = row != col
        weights = np.ones(between.sum(), np.int32) if graph.weights is None else graph.weights[some][between]
        total = total + scipy.sparse.coo_array((weights, (row[between], col[between])), total.shape).tocsr()
    return Undirected(total.indptr, total.indices, total.data, sizes)


def _chunks(starts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of nodes with about as many entries each."""
    wanted = np.arange(4 * _CHUNK, int(starts[-1]), 4 * _CHUNK)
    bounds = np.unique([0, *np.searchsorted(starts, wanted), starts.size - 1]).tolist()
    return itertools.pairwise(bounds)
