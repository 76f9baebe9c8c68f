"""An encoder of BERT's shape (Devlin et al., 2019), normalised before its layers, whose maps are all ``Linear``."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from models.pruning.task import SECOND, VALUES


class Layer(nn.Module):
    """Attention and two maps. Six matrices, each a layer of its own, which `gsb.nn.sparsify` may replace."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.before_attention, self.before_maps = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.before_attention(x)
        parts = [each(normed).unflatten(-1, (self.heads, -1)) for each in (self.query, self.key, self.value)]
        found = scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts))
        x = x + self.output(found.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.before_maps(x))))


class Encoder(nn.Module):
    """(batch, length) keys and seconds of tokens to (batch, length, VALUES) scores of answers."""

    def __init__(self, width: int, heads: int, inner: int, layers: int, length: int) -> None:
        super().__init__()
        self.keys, self.seconds = nn.Embedding(length // 2, width), nn.Embedding(SECOND, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads, inner) for _ in range(layers))
        self.read = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, VALUES))
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):  # of one size, as they are ranked together; 0.02 for BERT
                nn.init.trunc_normal_(module.weight, std=0.02 * math.sqrt(768 / width))
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def maps(self) -> list[nn.Linear]:
        """What is pruned: the matrices of the layers."""
        return [each for each in self.layers.modules() if isinstance(each, nn.Linear)]

    def forward(self, keys: Tensor, seconds: Tensor) -> Tensor:
        x = self.keys(keys) + self.seconds(seconds) + self.places[: keys.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.read(x)
