"""An encoder in the style of Longformer (Beltagy et al., 2020): windows of attention, and a token that sees all."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

import gnn_sparse_backend as gsb
from models.sequences.task import SYMBOLS


def mask_of(sizes: tuple[int, int], window: int, global_token: bool) -> gsb.masks.Mask:
    return gsb.masks.band(sizes, window, window, global_tokens=[0] if global_token else None)


class Dense(nn.Module):
    """The same attention by PyTorch's layer, which computes every pair and forgets those that the mask forbids."""

    def __init__(self, sparse: gsb.nn.SparseAttention) -> None:
        super().__init__()
        self.attention, self.mask = sparse.to_dense(), sparse.mask
        self.forbidden = torch.zeros(0, 0, dtype=torch.bool)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, None]:
        sizes = query.shape[1], key.shape[1]
        if tuple(self.forbidden.shape) != sizes:
            self.forbidden = ~self.mask(sizes).to_dense()[0]
        return self.attention(query, key, value, need_weights=False, attn_mask=self.forbidden)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, mask, dense: bool) -> None:
        super().__init__()
        sparse = gsb.nn.SparseAttention(width, heads, mask=mask, batch_first=True)
        self.attention = Dense(sparse) if dense else sparse
        self.before_attention, self.before_maps = nn.LayerNorm(width), nn.LayerNorm(width)
        self.maps = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.before_attention(x)
        x = x + self.attention(normed, normed, normed)[0]
        return x + self.maps(self.before_maps(x))


class Encoder(nn.Module):
    """(batch, length) symbols and marks to (batch, length, SYMBOLS) scores.

    window: tokens on either side that a token attends. global_token: whether the first attends and is attended by all.
    dense: by PyTorch's attention of every pair.
    """

    def __init__(
        self, width: int, heads: int, layers: int, window: int, global_token: bool = True, dense: bool = False
    ) -> None:
        super().__init__()
        mask = partial(mask_of, window=window, global_token=global_token)
        self.symbols, self.marks = nn.Embedding(SYMBOLS + 1, width), nn.Embedding(2, width)
        self.layers = nn.ModuleList(Layer(width, heads, mask, dense) for _ in range(layers))
        self.read = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, SYMBOLS))

    def forward(self, symbols: Tensor, marks: Tensor) -> Tensor:
        x = self.symbols(symbols) + self.marks(marks)
        x = x + positions(x.shape[1], x.shape[2], x)
        for layer in self.layers:
            x = layer(x)
        return self.read(x)


def positions(length: int, width: int, like: Tensor) -> Tensor:
    """(length, width) sines of each position, as of Vaswani et al. (2017)."""
    at = torch.arange(length, device=like.device)[:, None]
    rates = torch.exp(torch.arange(0, width, 2, device=like.device) * (-math.log(10_000) / width))
    return torch.stack([(at * rates).sin(), (at * rates).cos()], -1).flatten(1)[:, :width].to(like.dtype)
