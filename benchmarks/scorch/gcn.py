"""Two layers of GCN (Kipf and Welling, 2017) over a whole graph: ``A (X W) + b`` twice, normalised symmetrically."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch.nn.functional import linear, log_softmax, relu

import gnn_sparse_backend as gsb
from benchmarks.operators.work import Pattern, Work, dense_work, spmm_work
from benchmarks.scorch.library import scorch
from benchmarks.scorch.workload import OURS, Call, Workload
from benchmarks.support import graphs
from benchmarks.support.cells import Unable

SPARSE = ", sparse X"
MOST_DENSE = 1 << 28
"""Bytes of an adjacency that is multiplied with all of its zeros."""


@dataclass(frozen=True)
class Sizes:
    """A data set's features, the hidden ones, the classes, and the share of the features that are no zeros."""

    features: int
    hidden: int
    classes: int
    density: float = 1.0


SIZES = {
    "cora": Sizes(1433, 16, 7, 0.0127),
    "citeseer": Sizes(3703, 16, 6, 0.0085),
    "pubmed": Sizes(500, 16, 3, 0.1002),
    "arxiv": Sizes(128, 256, 40),
    "reddit": Sizes(602, 256, 41),
}
"""Those of Scorch's ``bench/README_GCN.md``; what is missing is ogbn-products, whose graph is not generated here."""


class GCN(Workload):
    """A network on a graph of the benchmarks: Cora's is real, others have the sizes of theirs."""

    notes: ClassVar = {
        OURS: "gsb.spmm_linear twice",
        OURS + SPARSE: "the same with gsb.spmm of the features and the first weight",
        "torch csr": "torch.sparse.mm of the adjacency in CSR and linear(x)",
        "torch csr" + SPARSE: "the same with the features in CSR, too",
        "torch coo": "torch.sparse.mm of the adjacency in COO and linear(x)",
        "dense": "the adjacency with its zeros, of small graphs",
        "scorch": "scorch.matmul of the adjacency and linear(x)",
        "scorch" + SPARSE: "the same with the features in CSR, too",
        "scorch compiled": "@scorch.compile of product, bias and ReLU",
        "pyg": "torch_geometric.nn.GCNConv with the numbers of the edges given",
        "dgl": 'dgl.nn.GraphConv with the numbers of the edges given, norm="none"',
    }

    def __init__(self, name: str, seed: int, sizes: Sizes | None = None) -> None:
        found = graphs.load(name, seed)
        self.sizes = sizes or SIZES[name]
        matrix = scipy.sparse.csr_matrix((found.ones, found.indices, found.indptr), found.shape)
        matrix = matrix + scipy.sparse.eye(found.shape[0], dtype=np.float32, format="csr")
        scale = scipy.sparse.diags(np.asarray(matrix.sum(1)).ravel() ** -0.5)
        self.matrix = scipy.sparse.csr_matrix(scale @ matrix @ scale, dtype=np.float32)
        self.matrix.sort_indices()
        self.indptr, self.indices = (torch.from_numpy(a.astype(np.int32)) for a in self._arrays)
        self.weight = torch.from_numpy(self.matrix.data)
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.rand(found.shape[0], self.sizes.features, generator=generator)
        if self.sizes.density < 1:
            kept = torch.rand(self.x.shape, generator=generator) < self.sizes.density
            self.x = self.x * kept
        shapes = (self.sizes.hidden, self.sizes.features), (self.sizes.classes, self.sizes.hidden)
        self.layers = [
            (torch.randn(shape, generator=generator) / shape[1] ** 0.5, torch.randn(shape[0], generator=generator))
            for shape in shapes
        ]

    @property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return self.matrix.indptr, self.matrix.indices

    def call_of(self, name: str) -> Call:
        if name.endswith(SPARSE) and self.sizes.density == 1:
            raise Unable("the features have no zeros")
        if name.startswith(OURS):
            return self._ours(name.endswith(SPARSE))
        if name in ("pyg", "dgl"):
            return self._pyg() if name == "pyg" else self._dgl()
        if name == "scorch compiled":
            return self._compiled()
        product, first = self._products(name)
        return lambda: self._forward(product, first)

    def rest(self) -> Call:
        (_, b1), (w2, b2) = self.layers
        h = torch.ones(len(self.x), self.sizes.hidden)
        return lambda: log_softmax(linear(relu(h + b1), w2) + b2, 1)

    def _ours(self, sparse_features: bool) -> Call:
        graph = gsb.Graph.from_csr(self.indptr, self.indices, self.matrix.shape)
        (w1, b1), (w2, b2) = self.layers
        weight, x = self.weight, self.x
        if not sparse_features:

            def forward() -> Tensor:
                h = relu(gsb.spmm_linear(graph, x, w1, b1, weight))
                return log_softmax(gsb.spmm_linear(graph, h, w2, b2, weight), 1)

            return forward
        rows, w1 = x.to_sparse_csr(), w1.t().contiguous()
        features = gsb.Graph.from_csr(rows.crow_indices().int(), rows.col_indices().int(), x.shape)
        values = rows.values()

        def forward_sparse() -> Tensor:
            h = relu(gsb.spmm(graph, gsb.spmm(features, w1, values), weight) + b1)
            return log_softmax(gsb.spmm_linear(graph, h, w2, b2, weight), 1)

        return forward_sparse

    def _products(self, name: str) -> tuple[Callable[[Tensor], Tensor], Callable[[], Tensor]]:
        """How a peer multiplies by the adjacency, and the features by the first weight."""
        rows = torch.sparse_csr_tensor(self.indptr, self.indices, self.weight, self.matrix.shape)
        w1 = self.layers[0][0]
        first = lambda: linear(self.x, w1)
        across = w1.t().contiguous()
        if name.startswith("torch csr"):
            if name.endswith(SPARSE):
                features = self.x.to_sparse_csr()
                first = lambda: torch.sparse.mm(features, across)
            return lambda h: torch.sparse.mm(rows, h), first
        if name == "torch coo":
            listed = rows.to_sparse_coo().coalesce()
            return lambda h: torch.sparse.mm(listed, h), first
        if name == "dense":
            if 4 * self.matrix.shape[0] ** 2 > MOST_DENSE:
                raise Unable("the adjacency with its zeros is too large")
            whole = rows.to_dense()
            return lambda h: whole @ h, first
        library = scorch()
        adjacency = self._adjacency()
        if name.endswith(SPARSE):
            features = library.STensor.from_csr(self.x.to_sparse_csr(), "X")
            first = lambda: library.matmul(features, across, format="dd")
        return lambda h: library.matmul(adjacency, h, format="dd"), first

    def _adjacency(self):
        """For Scorch, whose kernels take the index type of the matrix that its benchmark makes: int64."""
        rows = torch.sparse_csr_tensor(self.indptr.long(), self.indices.long(), self.weight, self.matrix.shape)
        return scorch().STensor.from_csr(rows, "A")

    def _forward(self, product: Callable[[Tensor], Tensor], first: Callable[[], Tensor]) -> Tensor:
        (_, b1), (w2, b2) = self.layers
        h = relu(product(first()) + b1)
        return log_softmax(product(linear(h, w2)) + b2, 1)

    def _compiled(self) -> Call:
        library = scorch()
        adjacency = self._adjacency()
        (w1, b1), (w2, b2) = self.layers
        fused = [library.compile(function) for function in _scorch_layers(library)]

        def forward() -> Tensor:
            h = fused[0](adjacency, linear(self.x, w1), b1)
            return log_softmax(fused[1](adjacency, linear(h, w2), b2), 1)

        return forward

    def _pyg(self) -> Call:
        from torch_geometric.nn import GCNConv

        nodes = self.matrix.shape[0]
        rows = torch.repeat_interleave(torch.arange(nodes), self.indptr.diff())
        edges = torch.stack((self.indices.long(), rows))
        convs = [
            GCNConv(*w.t().shape, normalize=False, add_self_loops=False).requires_grad_(False) for w, _ in self.layers
        ]
        for conv, (w, b) in zip(convs, self.layers):
            conv.lin.weight.copy_(w)
            conv.bias.copy_(b)

        def forward() -> Tensor:
            h = relu(convs[0](self.x, edges, self.weight))
            return log_softmax(convs[1](h, edges, self.weight), 1)

        return forward

    def _dgl(self) -> Call:
        import dgl
        from dgl.nn import GraphConv

        nodes = self.matrix.shape[0]
        structure = "csc", (self.indptr, self.indices, torch.arange(len(self.indices), dtype=torch.int32))
        graph = dgl.graph(structure, num_nodes=nodes)
        convs = [
            GraphConv(*w.t().shape, norm="none", allow_zero_in_degree=True).requires_grad_(False)
            for w, _ in self.layers
        ]
        for conv, (w, b) in zip(convs, self.layers):
            conv.weight.copy_(w.t())
            conv.bias.copy_(b)

        def forward() -> Tensor:
            h = relu(convs[0](graph, self.x, edge_weight=self.weight))
            return log_softmax(convs[1](graph, h, edge_weight=self.weight), 1)

        return forward

    def compute_expected(self) -> Tensor:
        matrix = self.matrix.astype(np.float64)
        (w1, b1), (w2, b2) = ((w.double(), b.double()) for w, b in self.layers)
        h = relu(torch.from_numpy(matrix @ linear(self.x.double(), w1).numpy()) + b1)
        return log_softmax(torch.from_numpy(matrix @ linear(h, w2).numpy()) + b2, 1)

    def work(self) -> Work:
        """Each linear map before its aggregation, which moves fewer features; zeros of the features are skipped."""
        sizes, nodes = self.sizes, self.matrix.shape[0]
        pattern = Pattern.of(*self._arrays, self.matrix.shape)
        if sizes.density < 1:
            kept = int((self.x != 0).sum())
            first = spmm_work(Pattern(nodes, sizes.features, kept, nodes, sizes.features), sizes.hidden, weighted=True)
        else:
            first = dense_work(nodes, sizes.features, sizes.hidden, backward=False)
        second = dense_work(nodes, sizes.hidden, sizes.classes, backward=False)
        products = (spmm_work(pattern, width, weighted=True) for width in (sizes.hidden, sizes.classes))
        return sum(products, first + second)


def _scorch_layers(library) -> tuple[Callable, Callable]:
    """What Scorch's benchmark compiles. It reads a function's source, in which it has to be called ``scorch``."""
    scorch = library

    def product_bias_relu(adj, x, bias):
        h = scorch.matmul(adj, x, format="dd")
        h = h + bias
        return torch.relu(h)

    def product_bias(adj, x, bias):
        h = scorch.matmul(adj, x, format="dd")
        return h + bias

    return product_bias_relu, product_bias
