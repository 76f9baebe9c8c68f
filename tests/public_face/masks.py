"""Random right calls of the makers of masks, and each as a formula over every pair of a query and a key."""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import create_block_mask

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


def documents(d) -> dict:
    return dict(lengths=d.pick(d.integers(6, 4), [3, 0, 2]), causal=d.pick(True, False), block=d.pick(8, 3))


def documents_of(lengths, causal=False, block=64):
    own = torch.repeat_interleave(torch.as_tensor(lengths).long())
    allowed = own[:, None] == own
    return ((allowed.tril() if causal else allowed)[None],)


def pages(d) -> dict:
    table = torch.randperm(6, generator=d.generator).view(2, 3)
    return dict(table=table, lengths=d.integers(12, 2) + 1, page=4, count=6, queries=d.pick(1, 3))


def pages_of(table, lengths, page, count, queries=1):
    allowed = torch.zeros(len(lengths), 1, queries, count * page, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        for key in range(length):
            at = int(table[b, key // page]) * page + key % page
            allowed[b, 0, max(key - length + queries, 0) :, at] = True
    return (allowed,)


def from_block_mask(d) -> dict:
    allowed = _truth(d, d.rows + 1, d.cols + 1)
    return dict(
        block_mask=create_block_mask(
            lambda b, h, query, key: allowed[query, key], None, None, *allowed.shape, device="cpu", BLOCK_SIZE=8
        )
    )


def from_block_mask_of(block_mask):
    query, key = (torch.arange(n) for n in block_mask.seq_lengths)
    none = torch.zeros((), dtype=torch.int64)
    return (block_mask.mask_mod(none, none, query[:, None], key[None])[None],)


def to_block_mask(d) -> dict:
    return dict(mask=gsb.masks.from_dense(_truth(d, d.rows + 1, d.cols + 1), block=8))


def to_block_mask_of(mask):
    return (mask.to_dense(),)


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
    (documents, documents_of),
    (pages, pages_of),
    (from_block_mask, from_block_mask_of),
    (to_block_mask, to_block_mask_of),
)
