"""Random right calls of the makers of masks, and each as a formula over every pair of a query and a key."""

from __future__ import annotations

import torch

import gnn_sparse_backend as gsb


def _n(d):
    return d.pick(d.rows, (d.rows, d.cols))


def _ahead(n) -> torch.Tensor:
    """How far each key is ahead of each query."""
    queries, keys = n if isinstance(n, (tuple, list)) else (n, n)
    return torch.arange(keys)[None] - torch.arange(queries)[:, None]


def _truth(d, *shape):
    return torch.rand(shape, generator=d.generator) < 0.5


def band(d) -> dict:
    tokens = d.pick(None, [0] * min(d.rows, 1), d.integers(d.rows, min(d.rows, 2)))
    return dict(n=_n(d), left=d.pick(1, None, 0), right=d.pick(1, 0, 7), global_tokens=tokens, block=d.pick(8, 3))


def band_of(n, left, right, global_tokens=None, block=64):
    found = _ahead(n)
    allowed = torch.ones_like(found, dtype=torch.bool)
    allowed = allowed if left is None else allowed & (found >= -left)
    allowed = allowed if right is None else allowed & (found <= right)
    for token in [] if global_tokens is None else torch.as_tensor(global_tokens).long().tolist():
        allowed[token : token + 1] = True
        allowed[:, token : token + 1] = True
    return (allowed[None],)


def causal(d) -> dict:
    return dict(n=_n(d), block=d.pick(8, 3))


def causal_of(n, block=64):
    return (_ahead(n)[None] <= 0,)


def full(d) -> dict:
    return causal(d)


def full_of(n, block=64):
    return (torch.ones_like(_ahead(n), dtype=torch.bool)[None],)


def strided(d) -> dict:
    return dict(n=_n(d), stride=d.pick(1, 2), causal=d.pick(True, False), block=d.pick(8, 3))


def strided_of(n, stride, causal=True, block=64):
    found = _ahead(n)
    allowed = (found.abs() < stride) | (found % stride == 0)
    return ((allowed & (found <= 0) if causal else allowed)[None],)


def butterfly(d) -> dict:
    return dict(n=_n(d), block=d.pick(1, 2))


def butterfly_of(n, block=64):
    shape = n if isinstance(n, (tuple, list)) else (n, n)
    counts = [-(-size // block) for size in shape]
    i, j = (torch.arange(size) // block * min(counts) // max(count, 1) for size, count in zip(shape, counts))
    digits = i[:, None] ^ j
    return ((digits & (digits - 1) == 0)[None],)


def blocks(d) -> dict:
    shape = d.pick(None, (d.rows * 2 - min(d.rows, 1), d.cols * 2))
    return dict(matrix=_truth(d, *d.pick((), (d.heads,)), d.rows, d.cols), block=2, shape=shape)


def blocks_of(matrix, block=64, shape=None):
    matrix = matrix if matrix.dim() == 3 else matrix[None]
    pairs = matrix.repeat_interleave(block, 1).repeat_interleave(block, 2)
    queries, keys = pairs.shape[1:] if shape is None else shape if isinstance(shape, (tuple, list)) else (shape, shape)
    assert 0 <= pairs.shape[1] - queries < block and 0 <= pairs.shape[2] - keys < block
    return (pairs[:, :queries, :keys],)


def from_dense(d) -> dict:
    return dict(allowed=_truth(d, *d.pick((), (d.heads,)), d.rows, d.cols), block=d.pick(8, 3))


def from_dense_of(allowed, block=64):
    return (allowed if allowed.dim() == 3 else allowed[None],)


def from_graph(d) -> dict:
    return dict(graph=d.graph(), block=d.pick(8, 3))


def from_graph_of(graph, block=64):
    rows = torch.arange(graph.shape[0]).repeat_interleave(graph.indptr.diff().long())
    allowed = torch.zeros(1, *graph.shape, dtype=torch.bool)
    allowed[0, rows, graph.indices.long()] = True
    return (allowed,)


def heads(d) -> dict:
    return dict(masks=[gsb.masks.from_dense(_truth(d, d.rows, d.cols), block=4), gsb.masks.causal((d.rows, d.cols))])


def heads_of(masks):
    return (torch.cat([mask.to_dense() for mask in masks]),)


def padding(d) -> dict:
    return d.pick(
        dict(allowed=d.integers(d.cols + 1, d.rows), keys=d.cols),
        dict(allowed=_truth(d, d.rows, d.cols), keys=d.pick(None, d.cols)),
    )


def padding_of(allowed, keys=None):
    allowed = torch.as_tensor(allowed)
    return (allowed if allowed.dtype == torch.bool else torch.arange(keys) < allowed.long()[:, None],)


MAKERS = (
    (band, band_of),
    (causal, causal_of),
    (full, full_of),
    (strided, strided_of),
    (butterfly, butterfly_of),
    (blocks, blocks_of),
    (from_dense, from_dense_of),
    (from_graph, from_graph_of),
    (heads, heads_of),
    (padding, padding_of),
)
