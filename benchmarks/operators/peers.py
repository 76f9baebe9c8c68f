"""The contenders of the SpMM benchmark, each at equal work: the same operands in, the same results out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import scipy.sparse
import torch

from benchmarks.operators.problem import Problem
from benchmarks.operators.suite import Call, CannotDo, Contender, want_memory
from benchmarks.support.summary import OURS

DENSE_GRADIENT_LIMIT = 1 << 30
"""Bytes up to which torch CSR's weight gradient, which passes through a dense (n_dst, n_src) matrix, is run at all."""
TRANSPOSED_BYTES = 48
"""For each non-zero, while torch transposes a CSR matrix: indices of both formats, a permutation, values."""


def want_messages(problem: Problem) -> None:
    """Raises CannotDo where the messages of all edges, gathered and multiplied, do not fit; gradients keep both and
    make as many again.
    """
    x = problem.x
    want_memory(
        "its messages", x.element_size() * x.shape[1] * problem.graph.num_edges * (4 if problem.mode.backward else 2)
    )


class TorchContender(Contender):
    """A contender whose forward is differentiable by torch."""

    @abstractmethod
    def forward(self, problem: Problem) -> Callable[[], torch.Tensor]:
        """A callable giving y."""

    def bind(self, problem: Problem) -> Call:
        forward = self.forward(problem)
        if not problem.mode.backward:
            return lambda: (forward(),)

        def step():
            y = forward()
            return (y, *torch.autograd.grad(y, problem.leaves, problem.cotangent))

        return step


class Ours(TorchContender):
    name = OURS
    note = "gsb.spmm; int32 indices"

    def prepare(self, graph):
        import gnn_sparse_backend as gsb

        self._spmm = gsb.spmm
        self._graph = gsb.Graph.from_csr(torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices), graph.shape)
        # What the first training step would build: the transpose for the gradient, and the plan's statistics.
        for structure in (self._graph, self._graph.transpose()):
            _ = structure.statistics

    def forward(self, problem):
        spmm, graph, x, weight, reduce = self._spmm, self._graph, problem.x, problem.weight, problem.mode.reduce
        if reduce == "sum":
            return lambda: spmm(graph, x, weight)
        return lambda: spmm(graph, x, None, reduce)


class OursFloat32(Ours):
    """What a half type is to be compared with."""

    name = "gsb-float32"
    note = "gsb.spmm on the same values in float32"

    def bind(self, problem):
        return super().bind(problem.to(torch.float32))


class DGL(TorchContender):
    name = "dgl"
    note = "dgl.ops.copy_u_sum, u_mul_e_sum, copy_u_mean, copy_u_max; int32 indices, CSR and CSC kept"

    def prepare(self, graph):
        import dgl
        import dgl.ops

        self._ops = dgl.ops
        # one of its weighted products fails on a graph whose edges have no numbers
        structure = (
            "csc",
            (
                torch.from_numpy(graph.indptr),
                torch.from_numpy(graph.indices),
                torch.arange(graph.num_edges, dtype=torch.int32),
            ),
        )
        rows, columns = graph.shape
        self._graph = dgl.heterograph(
            {("source", "edge", "destination"): structure}, num_nodes_dict={"source": columns, "destination": rows}
        )
        self._graph.create_formats_()

    def forward(self, problem):
        ops, graph, x, weight = self._ops, self._graph, problem.x, problem.weight
        if weight is None:
            aggregate = getattr(ops, f"copy_u_{problem.mode.reduce}")
            return lambda: aggregate(graph, x)
        return lambda: ops.u_mul_e_sum(graph, x, weight.unsqueeze(1))


class TorchCSR(TorchContender):
    """torch's CSR product. A sum multiplies by ones, a mean by inverse degrees: torch has no CSR matrix without
    values.
    """

    def __init__(self, index_type: torch.dtype) -> None:
        bits = torch.iinfo(index_type).bits
        self._index_type = index_type
        self.name = f"torch-i{bits}"
        self.note = f"torch.sparse_csr_tensor @ x; int{bits} indices; ones or inverse degrees as values"

    def prepare(self, graph):
        self._indptr = torch.from_numpy(graph.indptr).to(self._index_type)
        self._indices = torch.from_numpy(graph.indices if self._index_type is torch.int32 else graph.wide_indices)
        self._shape = graph.shape
        self._unweighted = {
            "sum": self._matrix(torch.from_numpy(graph.ones)),
            "mean": self._matrix(torch.from_numpy(graph.mean_weights)),
        }

    def _matrix(self, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_csr_tensor(self._indptr, self._indices, values, self._shape, check_invariants=False)

    def product(self, matrix: torch.Tensor, x: torch.Tensor, reduce: str) -> torch.Tensor:
        return matrix @ x

    def matrix(self, reduce: str) -> torch.Tensor:
        """The matrix without weights. Raises CannotDo."""
        if reduce not in self._unweighted:
            raise CannotDo(f"no {reduce}")
        return self._unweighted[reduce]

    def forward(self, problem):
        x, weight, reduce = problem.x, problem.weight, problem.mode.reduce
        if weight is not None and weight.requires_grad:
            if 4 * self._shape[0] * self._shape[1] > DENSE_GRADIENT_LIMIT:
                raise CannotDo("the weight gradient passes through a dense matrix of rows x columns")
            return lambda: self.product(self._matrix(weight), x, reduce)
        if problem.mode.backward:
            want_memory("the transpose that its gradient makes", TRANSPOSED_BYTES * problem.graph.num_edges)
        matrix = self.matrix(reduce) if weight is None else self._matrix(weight)
        return lambda: self.product(matrix, x, reduce)


class TorchReduce(TorchCSR):
    """torch's CSR product through its ``reduce`` path, another kernel with another gradient.

    In int64 alone: with int32 indices torch 2.13 gives wrong gradients on graphs with parallel edges.
    """

    def __init__(self) -> None:
        super().__init__(torch.int64)
        self.name = "torch-reduce"
        self.note = 'torch.sparse.mm(csr, x, "sum", "mean" or "amax"); int64 indices; ones as values when unweighted'

    def product(self, matrix, x, reduce):
        return torch.sparse.mm(matrix, x, "amax" if reduce == "max" else reduce)

    def forward(self, problem):
        x, reduce = problem.x, problem.mode.reduce
        if problem.weight is None and x.dtype is not torch.float32:
            ones = self._matrix(torch.ones(problem.graph.num_edges, dtype=x.dtype))
            return lambda: self.product(ones, x, reduce)
        return super().forward(problem)

    def matrix(self, reduce):
        return self._unweighted["sum"]


class PyGScatter(TorchContender):
    name = "pyg"
    note = "index_select, product, torch_geometric.utils.scatter, as MessagePassing does; int64, sorted by row"

    def prepare(self, graph):
        from torch_geometric.utils import scatter

        self._scatter = scatter
        self._columns, self._rows = torch.from_numpy(graph.edge_index)
        self._num_rows = graph.shape[0]

    def forward(self, problem):
        x, weight = problem.x, problem.weight
        scatter, rows, columns, num_rows = self._scatter, self._rows, self._columns, self._num_rows
        reduce = problem.mode.reduce
        want_messages(problem)

        def aggregate():
            messages = x.index_select(0, columns)
            if weight is not None:
                messages = weight.view(-1, 1) * messages
            return scatter(messages, rows, dim=0, dim_size=num_rows, reduce=reduce)

        return aggregate


class PyGEdgeIndex(TorchContender):
    name = "edge-index"
    note = "torch_geometric.EdgeIndex.matmul, sorted by row, caches filled; int64"

    def prepare(self, graph):
        from torch_geometric import EdgeIndex

        sources, destinations = torch.from_numpy(graph.edge_index)
        self._matrix = EdgeIndex(
            torch.stack((destinations, sources)), sparse_size=graph.shape, sort_order="row"
        ).fill_cache_()

    def forward(self, problem):
        matrix, x, weight, reduce = self._matrix, problem.x, problem.weight, problem.mode.reduce
        if weight is None and x.dtype is not torch.float32:
            raise CannotDo(f"its ones are float32, which it does not multiply by {x.dtype}")
        if problem.mode.backward and (weight is not None or reduce == "max"):
            want_messages(problem)  # it gathers and scatters then
        return lambda: matrix.matmul(x, weight, reduce=reduce)


class SciPy(Contender):
    name = "scipy"
    note = "csr_matrix @ x; one thread only; no gradients; ones or inverse degrees as values"

    def prepare(self, graph):
        self._matrix = scipy.sparse.csr_matrix((graph.ones, graph.indices, graph.indptr), shape=graph.shape, copy=True)
        self._mean = scipy.sparse.csr_matrix(
            (graph.mean_weights, self._matrix.indices, self._matrix.indptr), shape=graph.shape
        )

    def bind(self, problem):
        if problem.mode.backward:
            raise CannotDo("no gradients")
        if problem.mode.reduce == "max":
            raise CannotDo("no max")
        matrix, x = self._mean if problem.mode.reduce == "mean" else self._matrix, problem.x.numpy()
        if problem.weight is not None:
            matrix = scipy.sparse.csr_matrix(
                (problem.weight.numpy(), matrix.indices, matrix.indptr), shape=matrix.shape
            )
        return lambda: (matrix @ x,)


def half_contenders() -> list[Contender]:
    """Contenders in bfloat16, ours first, and ours in float32. torch's plain CSR product and SciPy have none."""
    return [Ours(), OursFloat32(), DGL(), TorchReduce(), PyGScatter(), PyGEdgeIndex()]


def contenders() -> list[Contender]:
    """All contenders in float32, ours first."""
    return [
        Ours(),
        DGL(),
        TorchCSR(torch.int32),
        TorchCSR(torch.int64),
        TorchReduce(),
        PyGScatter(),
        PyGEdgeIndex(),
        SciPy(),
    ]
