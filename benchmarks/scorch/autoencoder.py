"""An autoencoder of four linear layers whose small weights are pruned over all layers together (Han et al., 2015)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential, Sigmoid
from torch.nn.functional import linear

from benchmarks.operators.work import INDEX_BYTES, VALUE_BYTES, Work
from benchmarks.scorch.library import scorch
from benchmarks.scorch.workload import OURS, Call, Workload
from gnn_sparse_backend import composed_spmm, formats
from gnn_sparse_backend.formats.composed.spec import SEPARATOR
from gnn_sparse_backend.nn import SparseLinear
from gnn_sparse_backend.planner.composed import DENSE

SIZES = {
    "small": (784, 1024, 512),
    "medium": (784, 2048, 1024),
    "large": (784, 4096, 2048),
    "xlarge": (3072, 4096, 2048),
}
"""Inputs and the two hidden layers, of Scorch's ``bench/README_sparse_autoencoder.md``."""
SPARSITIES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
BATCH = 256


class Autoencoder(Workload):
    """A network of normal weights, of which narrow layers have the larger ones, and keep more."""

    notes: ClassVar = {
        OURS: "gsb.nn.SparseLinear in the format that auto takes",
        f"{OURS} csr": 'gsb.nn.SparseLinear, format="csr"',
        f"{OURS} columns": "gsb.composed_spmm in these formats; activations are transposed once, and back at the end",
        "dense": "torch.nn.functional.linear with the zeros",
        "torch csr": "torch.sparse.mm of the weight in CSR and the transposed activations, as Scorch's benchmark does",
        "torch csr columns": "the same with activations that are transposed once, and back at the end",
        "torch coo": "as torch csr, of the weight in COO",
        "scorch": "scorch.matmul of the weight and the transposed activations, as its benchmark does",
        "scorch columns": "the same with activations that are transposed once, and back at the end",
    }

    def __init__(self, sizes: Sequence[int], sparsity: float, seed: int, batch: int = BATCH) -> None:
        generator = torch.Generator().manual_seed(seed)
        widths = [*sizes, *reversed(sizes[:-1])]
        self.weights, self.biases = [], []
        for before, after in pairwise(widths):
            self.weights.append(torch.randn(after, before, generator=generator) / before**0.5)
            self.biases.append(torch.randn(after, generator=generator) / before**0.5)
        sizes_of_weights = torch.cat([weight.abs().flatten() for weight in self.weights])
        least = sizes_of_weights.kthvalue(max(1, int(sparsity * len(sizes_of_weights)))).values
        self.weights = [weight * (weight.abs() > least) for weight in self.weights]
        self.x = torch.rand(batch, widths[0], generator=generator)
        self.activations: list[Callable[[Tensor], Tensor]] = [torch.relu, torch.relu, torch.relu, torch.sigmoid]

    def call_of(self, name: str) -> Call:
        if name in (OURS, f"{OURS} csr"):
            network = self._ours("csr" if name.endswith("csr") else "auto")
            call = lambda: network(self.x)
            call.format = ", ".join(layer.format for layer in network if isinstance(layer, SparseLinear))
            return call
        if name == "dense":
            return lambda: self._forward([lambda h, w=weight: linear(h, w) for weight in self.weights])
        products = self._by_columns() if name.startswith(OURS) else [self._product(name, w) for w in self.weights]
        if name.endswith("columns"):
            biases = [bias[:, None] for bias in self.biases]
            return lambda: self._forward(products, self.x.t().contiguous(), biases).t().contiguous()
        return lambda: self._forward([lambda h, p=product: p(h.t()).t() for product in products])

    def rest(self) -> Call:
        made = [torch.ones(len(self.x), len(bias)) for bias in self.biases]
        return lambda: [act(h + bias) for h, bias, act in zip(made, self.biases, self.activations)][-1]

    def _ours(self, words: str) -> Sequential:
        layers: list[Module] = []
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            layer = Linear(*weight.t().shape)
            with torch.no_grad():
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
            layers += [SparseLinear.from_dense(layer, format=words), Sigmoid() if number == 3 else ReLU()]
        return Sequential(*layers)

    def _by_columns(self) -> list[Callable[[Tensor], Tensor]]:
        """Our products with columns, each weight in the format that a layer takes."""
        products = []
        for weight, layer in zip(self.weights, (each for each in self._ours("auto") if isinstance(each, SparseLinear))):
            if layer.format == DENSE:
                products.append(lambda h, w=weight: w @ h)
                continue
            parts = formats.decompose(weight.to_sparse_csr(), layer.format.split(SEPARATOR))
            packed = parts.pack(parts.values_of(weight))
            products.append(lambda h, parts=parts, packed=packed: composed_spmm(parts, packed, h, packed=True))
        return products

    def _product(self, name: str, weight: Tensor) -> Callable[[Tensor], Tensor]:
        """How a peer multiplies a weight by columns."""
        if name.startswith("torch"):
            kept = weight.to_sparse() if name == "torch coo" else weight.to_sparse_csr()
            return lambda h: torch.sparse.mm(kept, h)
        library = scorch()
        tensor = library.STensor.from_csr(weight.to_sparse_csr(), "W")
        return lambda h: library.matmul(tensor, h.contiguous(), format="dd")

    def _forward(
        self, products: Sequence[Callable[[Tensor], Tensor]], h: Tensor | None = None, biases: Sequence[Tensor] = ()
    ) -> Tensor:
        h = self.x if h is None else h
        for product, bias, activation in zip(products, biases or self.biases, self.activations):
            h = activation(product(h) + bias)
        return h

    def compute_expected(self) -> Tensor:
        h = self.x.double()
        for weight, bias, activation in zip(self.weights, self.biases, self.activations):
            h = activation(linear(h, weight.double(), bias.double()))
        return h

    def work(self) -> Work:
        batch, once, again, flops = len(self.x), 0, 0, 0
        for weight in self.weights:
            kept = int(weight.count_nonzero())
            stored = kept * (VALUE_BYTES + INDEX_BYTES) + len(weight) * INDEX_BYTES
            ends = sum(weight.shape) * batch * VALUE_BYTES
            once += stored + ends
            again += stored + kept * batch * VALUE_BYTES
            flops += 2 * kept * batch
        return Work(once, again, flops)
