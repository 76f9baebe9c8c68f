"""Masked attention by PyTorch, dense and in float64, and which weights dropout keeps, by NumPy."""

from __future__ import annotations

import numpy as np
import torch

NEVER = -torch.inf


def allowed(mask, batch):
    """(batch, heads or 1, queries, keys) bool."""
    found = mask.to_dense().unsqueeze(0)
    if mask.padding is not None:
        found = found & mask.padding[:, None, None, :]
    return found.expand(batch, -1, -1, -1)


def attention(q, k, v, mask, scale=None, keep=None, dropout=0.0):
    """keep: (batch, heads, queries, keys) bool, whether dropout keeps a weight."""
    q, k, v = (x.double() for x in (q, k, v))
    may = allowed(mask, q.shape[0])
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = torch.where(may, scores, NEVER)
    # a row without any key has no softmax
    most = scores.amax(3, keepdim=True).detach().nan_to_num(neginf=0.0)
    weights = torch.where(may, (scores - most).exp(), 0.0)
    weights = weights / weights.sum(3, keepdim=True).clamp(min=1e-300)
    if keep is not None:
        weights = weights * keep / (1.0 - dropout)
    return weights @ v


def keep_mask(seed, planes, queries, keys, probability):
    """(planes, queries, keys) bool: whether the weight of a pair is kept. seed: two words. planes: batch * heads."""
    mask = np.uint64(0x7FFFFFFF)

    def mixed(words):
        """The middle 31 bits of the 62 of a square, and a number added, twice."""
        for added in (0x7FEB352D, 0x6C8E9CF5):
            words = ((words * words >> np.uint64(15)) + np.uint64(added)) & mask
        return words

    plane, query, key = (np.arange(n, dtype=np.uint64) for n in (planes, queries, keys))
    first, second = seed.numpy().astype(np.uint64)
    heads = mixed((plane * np.uint64(0x05EBCA6B) + first) & mask)
    rows = mixed((heads[:, None] + query * np.uint64(0x42B2AE35)) & mask)
    columns = mixed((key * np.uint64(0x27D4EB2F) + second) & mask)
    words = mixed((rows[:, :, None] * columns >> np.uint64(15)) & mask)
    return torch.from_numpy(words >= min(round(probability * 2**31), 2**31 - 1))


def operands(mask, batch, heads, width, value_width, dtype=torch.float64, seed=0):
    """q, k, v, and a cotangent of the result."""
    generator = torch.Generator().manual_seed(seed)

    def some(length, features):
        return torch.randn(batch, heads, length, features, generator=generator, dtype=torch.float64).to(dtype)

    queries, keys = mask.shape
    return some(queries, width), some(keys, width), some(keys, value_width), some(queries, value_width)


def flex(q, k, v, mod=None, mask=None):
    """(result, logarithms): attention of PyTorch's functions of scores and of pairs."""
    shared = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(shared, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    places = [torch.arange(size).view(*(-1 if d == n else 1 for d in range(4))) for n, size in enumerate(scores.shape)]
    scores = scores if mod is None else mod(scores, *places).to(q.dtype).expand_as(scores)
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask(*places).expand_as(scores)
    scores = torch.where(allowed, scores, -torch.inf)
    some = allowed.any(-1, keepdim=True)
    weights = torch.where(some, scores, 0.0).softmax(-1)
    lse = torch.where(some, scores, 0.0).logsumexp(-1)
    return torch.where(some, weights, 0.0) @ v, torch.where(some[..., 0], lse, -torch.inf)
