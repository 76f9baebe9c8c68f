"""The contenders of SpMM and SDDMM on a GPU, each at equal work: the same operands in, the same result out.

What a library can keep of a structure between calls it makes beforehand, untimed: formats, and cuSPARSE's analysis where it takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.graphs import BenchmarkGraph
from benchmarks.suite import CannotDo
from gnn_sparse_backend import Graph
from gnn_sparse_backend.formats import BsrFormat

OURS = "gnn_sparse_backend"
REDUCTIONS = ("sum", "mean", "max")
# Rows and columns of a block of PyTorch's Triton kernels, and stored elements for each non-zero beyond which they do not apply.
BLOCK, MOST_STORED = 16, 32

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Problem:
    """What all contenders get, on one device.

    graph: the structure as loaded. reduce: of an SpMM. x: (columns, width). u: (rows, width), of an SDDMM. weight: (edges,),
    of a sum; means and maxima have none.
    """

    graph: BenchmarkGraph
    reduce: str
    x: Tensor
    u: Tensor
    weight: Tensor

    @classmethod
    def of(cls, graph: BenchmarkGraph, reduce: str, width: int, dtype: torch.dtype, device: torch.device, seed: int) -> Problem:
        generator = torch.Generator().manual_seed(seed)
        rows, columns = graph.shape
        x, u = (torch.randn(n, width, generator=generator).to(device, dtype) for n in (columns, rows))
        return cls(graph, reduce, x, u, (torch.rand(graph.num_edges, generator=generator) + 0.5).to(device, dtype))

    @cached_property
    def indptr(self) -> Tensor:
        return torch.from_numpy(self.graph.indptr).to(self.x.device)

    @cached_property
    def indices(self) -> Tensor:
        return torch.from_numpy(self.graph.indices).to(self.x.device)

    @cached_property
    def edges(self) -> Tensor:
        """(2, edges), sources first, in the order of the non-zeros; int64."""
        return torch.from_numpy(self.graph.edge_index).to(self.x.device)

    @cached_property
    def ours(self) -> Graph:
        return Graph.from_csr(self.indptr, self.indices, self.graph.shape)

    def csr(self, values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(self.indptr, self.indices, values, size=self.graph.shape)

    def spmm_exact(self) -> Tensor:
        """The answer in float64."""
        source, destination = self.edges
        terms = self.x.double()[source]
        if self.reduce == "sum":
            terms *= self.weight.double()[:, None]
        out = terms.new_zeros(self.graph.shape[0], terms.shape[1])
        if self.reduce == "max":
            return out.scatter_reduce_(0, destination[:, None].expand_as(terms), terms, "amax", include_self=False)
        out.index_add_(0, destination, terms)
        return out / self.ours.in_degrees.clamp(min=1)[:, None] if self.reduce == "mean" else out

    def sddmm_exact(self) -> Tensor:
        """The answer in float64."""
        source, destination = self.edges
        return (self.u.double()[destination] * self.x.double()[source]).sum(1)


def sums_alone(problem: Problem) -> None:
    if problem.reduce != "sum":
        raise CannotDo("sums alone")


def our_spmm(problem: Problem) -> Call:
    weight = problem.weight if problem.reduce == "sum" else None
    return lambda: gsb.spmm(problem.ours, problem.x, weight, reduce=problem.reduce)


def torch_csr(problem: Problem) -> Call:
    sums_alone(problem)
    matrix = problem.csr(problem.weight)
    return lambda: matrix @ problem.x


def cupy_csr(problem: Problem) -> Call:
    """cuSPARSE as CuPy calls it. Its dense operands stand column by column, so x does, beforehand."""
    sums_alone(problem)
    if problem.x.dtype not in (torch.float32, torch.float64):
        raise CannotDo(f"no {problem.x.dtype}")
    try:
        import cupy
        from cupyx import cusparse
        from cupyx.scipy import sparse
    except ImportError:
        raise CannotDo("CuPy is not installed") from None
    parts = (cupy.from_dlpack(t.contiguous()) for t in (problem.weight, problem.indices.int(), problem.indptr.int()))
    matrix = sparse.csr_matrix(tuple(parts), shape=problem.graph.shape)
    x = cupy.asfortranarray(cupy.from_dlpack(problem.x))
    return lambda: torch.from_dlpack(cusparse.spmm(matrix, x))


def pyg_edge_index(problem: Problem) -> Call:
    try:
        from torch_geometric import EdgeIndex
    except ImportError:
        raise CannotDo("PyG is not installed") from None
    matrix = EdgeIndex(problem.edges.flip(0), sparse_size=problem.graph.shape, sort_order="row").fill_cache_()
    weight = problem.weight if problem.reduce == "sum" else None
    return lambda: matrix.matmul(problem.x, weight, reduce=problem.reduce)


def gather_and_scatter(problem: Problem) -> Call:
    """What PyG's layers do without an adjacency matrix."""
    source, destination = problem.edges
    x, weight, rows = problem.x, problem.weight, problem.graph.shape[0]
    if problem.reduce == "sum":
        return lambda: x.new_zeros(rows, x.shape[1]).index_add_(0, destination, weight[:, None] * x[source])
    index = destination[:, None].expand(-1, x.shape[1])
    reduce = {"mean": "mean", "max": "amax"}[problem.reduce]
    return lambda: x.new_zeros(rows, x.shape[1]).scatter_reduce_(0, index, x[source], reduce, include_self=False)


def triton_blocks(problem: Problem) -> Call:
    """The block-sparse product in Triton that PyTorch brings, where the graph is locally dense."""
    sums_alone(problem)
    x, (rows, columns) = problem.x, problem.graph.shape
    if x.shape[1] % BLOCK or x.dtype is torch.float64:
        raise CannotDo(f"widths that {BLOCK} divides, in float32 or half types")
    try:
        from torch.sparse._triton_ops import bsr_dense_mm
    except ImportError:
        raise CannotDo("this PyTorch has no block-sparse kernels") from None
    if bsr_dense_mm is None:
        raise CannotDo("Triton is not installed")
    try:
        blocks = BsrFormat.from_csr(problem.indptr, problem.indices, problem.graph.shape, BLOCK,
                                    max_slots=MOST_STORED * problem.graph.num_edges, check=False)
    except ValueError:
        raise CannotDo(f"its blocks would store more than {MOST_STORED} elements for each non-zero") from None
    down, across = (-(-extent // BLOCK) * BLOCK for extent in (rows, columns))
    matrix = torch.sparse_bsr_tensor(blocks.indptr, blocks.indices, blocks.pad_values(problem.weight), size=(down, across))
    padded = torch.cat([x, x.new_zeros(across - columns, x.shape[1])])
    return lambda: bsr_dense_mm(matrix, padded)[:rows]


def our_sddmm(problem: Problem) -> Call:
    return lambda: gsb.sddmm(problem.ours, problem.u, problem.x)


def torch_sampled(problem: Problem) -> Call:
    pattern = problem.csr(torch.zeros_like(problem.weight))
    return lambda: torch.sparse.sampled_addmm(pattern, problem.u, problem.x.T, beta=0.0).values()


def gather_and_multiply(problem: Problem) -> Call:
    source, destination = problem.edges
    return lambda: (problem.u[destination] * problem.x[source]).sum(1)


# Our own first. Each makes the call of one pass, or raises CannotDo.
SPMM: dict[str, Callable[[Problem], Call]] = {
    OURS: our_spmm, "torch CSR": torch_csr, "CuPy": cupy_csr, "PyG EdgeIndex": pyg_edge_index,
    "gather and scatter": gather_and_scatter, "Triton blocks": triton_blocks}
SDDMM: dict[str, Callable[[Problem], Call]] = {
    OURS: our_sddmm, "torch sampled_addmm": torch_sampled, "gather and multiply": gather_and_multiply}
PEERS = {"spmm": SPMM, "sddmm": SDDMM}
