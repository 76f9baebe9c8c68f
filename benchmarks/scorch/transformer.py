"""An encoder in the style of Longformer (Beltagy et al., 2020): windows of attention, and one global token."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

import gnn_sparse_backend as gsb
from benchmarks.operators.work import VALUE_BYTES, Work, dense_work
from benchmarks.scorch.library import scorch
from benchmarks.scorch.workload import OURS, Call, Workload

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From q, k and v, (heads, tokens, width), to (heads, tokens, width)."""


@dataclass(frozen=True)
class Sizes:
    """The network of Scorch's ``bench/README_sparse_transformer.md``."""

    vocabulary: int = 30_000
    width: int = 256
    heads: int = 8
    layers: int = 4
    inner: int = 1024
    window: int = 64
    classes: int = 2


TOKENS = (512, 1024, 2048, 4096)


class Layer:
    """Weights of one block."""

    def __init__(self, sizes: Sizes, generator: torch.Generator) -> None:
        def drawn(rows: int, columns: int) -> tuple[Tensor, Tensor]:
            weight = torch.randn(rows, columns, generator=generator) / columns**0.5
            return weight, torch.randn(rows, generator=generator) / columns**0.5

        width = sizes.width
        self.q, self.k, self.v, self.out = (drawn(width, width) for _ in range(4))
        self.first, self.second = drawn(sizes.inner, width), drawn(width, sizes.inner)


class Transformer(Workload):
    """The whole network on one sequence; contenders differ in the products of attention alone."""

    notes: ClassVar = {
        OURS: "gsb.sparse_attention on gsb.masks.band with a global token",
        "dense": "all pairs, head by head, as Scorch's benchmark does",
        "sdpa": "scaled_dot_product_attention of all heads with the mask as a bool matrix",
        "torch csr": "scores of gathered rows, softmax by scatters, torch.sparse.mm, as Scorch's benchmark does",
        "scorch": "scorch.einsum of mask, Q and K, softmax by scatters, scorch.matmul, as its benchmark does",
    }

    def __init__(self, tokens: int, seed: int, sizes: Sizes = Sizes()) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.sizes, self.tokens = sizes, tokens
        self.layers = [Layer(sizes, generator) for _ in range(sizes.layers)]
        self.embedding = torch.randn(sizes.vocabulary, sizes.width, generator=generator)
        self.head = torch.randn(sizes.classes, sizes.width, generator=generator) / sizes.width**0.5
        self.words = torch.randint(sizes.vocabulary, (tokens,), generator=generator)
        self.positions = _positions(tokens, sizes.width)
        self.mask = gsb.masks.band(tokens, sizes.window, sizes.window, global_tokens=[0])
        at = torch.arange(tokens)
        self.allowed = (at[:, None] - at).abs() <= sizes.window
        self.allowed[0], self.allowed[:, 0] = True, True
        self.pairs = int(self.allowed.sum())

    def call_of(self, name: str) -> Call:
        attend = {
            OURS: self._ours,
            "dense": self._dense,
            "sdpa": self._sdpa,
            "torch csr": self._torch_csr,
            "scorch": self._scorch,
        }[name]()
        return lambda: self._forward(attend)

    def rest(self) -> Call:
        return lambda: self._forward(lambda q, k, v: v)

    def _ours(self) -> Attend:
        return lambda q, k, v: gsb.sparse_attention(q[None], k[None], v[None], self.mask)[0]

    def _dense(self) -> Attend:
        scale, barred = self._scale, ~self.allowed

        def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return ((q @ k.t()) * scale).masked_fill(barred, -torch.inf).softmax(-1) @ v

        return _by_heads(head)

    def _sdpa(self) -> Attend:
        return lambda q, k, v: scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=self.allowed)[0]

    def _torch_csr(self) -> Attend:
        rows, columns = self.allowed.nonzero().t()
        pattern = self.allowed.float().to_sparse_csr()
        arrays, softmax = (pattern.crow_indices(), pattern.col_indices()), self._softmax()

        def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = softmax((q[rows] * k[columns]).sum(-1) * self._scale)
            return torch.sparse.mm(torch.sparse_csr_tensor(*arrays, scores, self.allowed.shape), v)

        return _by_heads(head)

    def _scorch(self) -> Attend:
        library = scorch()
        pattern = self.allowed.float().to_sparse_csr()
        arrays, softmax = (pattern.crow_indices(), pattern.col_indices()), self._softmax()
        mask, of_torch = library.STensor.from_csr(pattern, "mask"), library.STensor.from_torch

        def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = library.einsum("ij,ik,jk->ij", mask, of_torch(q, "Q"), of_torch(k, "K")).values
            weights = torch.sparse_csr_tensor(*arrays, softmax(scores * self._scale), self.allowed.shape)
            return library.matmul(library.STensor.from_csr(weights, "attn"), v, format="dd")

        return _by_heads(head)

    def _softmax(self) -> Callable[[Tensor], Tensor]:
        """The softmax of the pairs of each query, in PyTorch's scatters."""
        rows, tokens = self.allowed.nonzero()[:, 0], self.tokens

        def softmax(scores: Tensor) -> Tensor:
            largest = torch.full((tokens,), -torch.inf)
            largest.scatter_reduce_(0, rows, scores, reduce="amax", include_self=False)
            grown = torch.exp(scores - largest[rows])
            return grown / torch.zeros(tokens).scatter_add_(0, rows, grown)[rows]

        return softmax

    @property
    def _scale(self) -> float:
        return (self.sizes.width // self.sizes.heads) ** -0.5

    def _forward(self, attend: Attend, dtype: torch.dtype = torch.float32) -> Tensor:
        width, heads = self.sizes.width, self.sizes.heads
        cast = lambda pair: (pair[0].to(dtype), pair[1].to(dtype))
        x = self.embedding[self.words].to(dtype) + self.positions.to(dtype)
        for layer in self.layers:
            normed = layer_norm(x, (width,))
            qkv = (linear(normed, *cast(each)).unflatten(-1, (heads, -1)).transpose(0, 1) for each in _qkv(layer))
            x = x + linear(attend(*qkv).transpose(0, 1).flatten(1), *cast(layer.out))
            x = x + linear(gelu(linear(layer_norm(x, (width,)), *cast(layer.first))), *cast(layer.second))
        return linear(layer_norm(x, (width,))[0], self.head.to(dtype))

    def compute_expected(self) -> Tensor:
        attend = lambda q, k, v: scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=self.allowed)[0]
        return self._forward(attend, torch.float64)

    def work(self) -> Work:
        sizes, tokens = self.sizes, self.tokens
        width, inner = sizes.width, sizes.inner
        block = sum((dense_work(tokens, width, width, backward=False) for _ in range(4)), Work(0, 0, 0))
        block += dense_work(tokens, width, inner, backward=False) + dense_work(tokens, inner, width, backward=False)
        rows = 4 * tokens * width * VALUE_BYTES
        block += Work(rows, 2 * self.pairs * width * VALUE_BYTES, 4 * self.pairs * width)
        return sum((block for _ in range(sizes.layers)), Work(0, 0, 0))


def _qkv(layer: Layer) -> tuple[tuple[Tensor, Tensor], ...]:
    return layer.q, layer.k, layer.v


def _by_heads(head: Attend) -> Attend:
    return lambda q, k, v: torch.stack([head(*each) for each in zip(q, k, v)])


def _positions(tokens: int, width: int) -> Tensor:
    """(tokens, width) sines and cosines (Vaswani et al., 2017)."""
    waves = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(tokens)[:, None] * waves
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
