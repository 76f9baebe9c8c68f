"""The contenders of SpMM and SDDMM on a GPU, each at equal work: the same operands in, the same result out.

What a library can keep of a structure between calls it makes beforehand, untimed: formats, and cuSPARSE's analysis
where it takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.operators import cusparse, sddmm_problem
from benchmarks.operators import problem as sums
from benchmarks.operators.suite import CannotDo
from benchmarks.support.graphs import BenchmarkGraph
from gnn_sparse_backend import Graph
from gnn_sparse_backend.formats import BsrFormat

OURS = "gnn_sparse_backend"
# Rows and columns of a block of PyTorch's Triton kernels, and stored elements for each non-zero beyond which they do
# not apply.
BLOCK, MOST_STORED = 16, 32

Call = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Problem:
    """What all contenders get, on one device.

    graph: the structure as loaded. mode: of an SpMM (``problem.Mode``) or an SDDMM (``sddmm_problem.Mode``). x:
    (columns, width).
    u: (rows, width), of an SDDMM. weight: (edges,), of a weighted sum. cotangent: of the result. Those that a mode has
    gradients of require them.
    """

    graph: BenchmarkGraph
    mode: sums.Mode | sddmm_problem.Mode
    x: Tensor
    u: Tensor
    weight: Tensor
    cotangent: Tensor

    @classmethod
    def of(
        cls, graph: BenchmarkGraph, mode, width: int, dtype: torch.dtype, device: torch.device, seed: int
    ) -> Problem:
        generator = torch.Generator().manual_seed(seed)
        rows, columns = graph.shape
        x, u = (torch.randn(n, width, generator=generator).to(device, dtype) for n in (columns, rows))
        weight = (torch.rand(graph.num_edges, generator=generator) + 0.5).to(device, dtype)
        op = getattr(mode, "op", None)
        shape = {None: (rows, width), "dot": (graph.num_edges,), "add": (graph.num_edges, width)}[op]
        cotangent = torch.randn(shape if mode.backward else 0, generator=generator).to(device, dtype)
        if mode.backward:
            for each in (x, u, weight):
                each.requires_grad_()
        return cls(graph, mode, x, u, weight, cotangent)

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        """The operands that the result depends on."""
        if isinstance(self.mode, sddmm_problem.Mode):
            return self.u, self.x
        return (self.x, self.weight) if self.mode.weighted else (self.x,)

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

    @property
    def values(self) -> Tensor:
        """(edges,), what a sum as a product of matrices has at its non-zeros. Raises CannotDo for maxima."""
        if self.mode.reduce == "max":
            raise CannotDo("no maxima")
        if self.mode.weighted:
            return self.weight.detach()
        ones = torch.ones_like(self.weight, requires_grad=False)
        return ones / self.ours.in_degrees.to(ones.dtype)[self.edges[1]] if self.mode.reduce == "mean" else ones

    def csr(self, values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(self.indptr, self.indices, values, size=self.graph.shape)

    @cached_property
    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """(indptr, indices, order): the CSR structure of the transpose, and the non-zeros in its order."""
        source, destination = self.edges
        order = source.argsort(stable=True)
        ends = torch.bincount(source, minlength=self.graph.shape[1]).cumsum(0)
        return (
            torch.cat([ends.new_zeros(1), ends]).to(self.indptr.dtype),
            destination[order].to(self.indices.dtype),
            order,
        )

    def csr_transposed(self, values: Tensor) -> Tensor:
        indptr, indices, order = self.transposed
        return torch.sparse_csr_tensor(indptr, indices, values[order], size=self.graph.shape[::-1])

    def exact(self) -> tuple[Tensor, ...]:
        """The result, and the gradients of ``leaves`` with ``backward``, in float64, by definition."""
        (source, destination), (rows, columns) = self.edges, self.graph.shape
        x, u, weight, g = (each.detach().double() for each in (self.x, self.u, self.weight, self.cotangent))

        def summed(at: Tensor, terms: Tensor, n: int) -> Tensor:
            return terms.new_zeros(n, *terms.shape[1:]).index_add_(0, at, terms)

        if isinstance(self.mode, sddmm_problem.Mode):
            ends = u[destination], x[source]
            y = (ends[0] * ends[1]).sum(1) if self.mode.op == "dot" else ends[0] + ends[1]
            if not self.mode.backward:
                return (y,)
            if self.mode.op == "add":
                return y, summed(destination, g, rows), summed(source, g, columns)
            return y, summed(destination, g[:, None] * ends[1], rows), summed(source, g[:, None] * ends[0], columns)
        if self.mode.reduce == "max":
            index = destination[:, None].expand(-1, x.shape[1])
            y = x.new_zeros(rows, x.shape[1]).scatter_reduce_(0, index, x[source], "amax", include_self=False)
            if not self.mode.backward:
                return (y,)
            equal = (x[source] == y[destination]).double()
            return y, summed(source, equal * (g / summed(destination, equal, rows).clamp(min=1))[destination], columns)
        values = weight if self.mode.weighted else self.values.double()
        if self.mode.reduce == "mean":
            values = 1 / self.ours.in_degrees.double()[destination]
        y = summed(destination, values[:, None] * x[source], rows)
        if not self.mode.backward:
            return (y,)
        dx = summed(source, values[:, None] * g[destination], columns)
        return (y, dx, (x[source] * g[destination]).sum(1)) if self.mode.weighted else (y, dx)


def with_gradients(problem: Problem, forward: Callable[[], Tensor]) -> Call:
    """The result of a call, and with ``backward`` what PyTorch derives from it."""
    if not problem.mode.backward:
        return lambda: (forward(),)

    def call() -> tuple[Tensor, ...]:
        y = forward()
        return (y.detach(), *torch.autograd.grad(y, problem.leaves, problem.cotangent))

    return call


def forward_alone(problem: Problem) -> None:
    if problem.mode.backward:
        raise CannotDo("forward alone")


def our_spmm(problem: Problem) -> Call:
    weight = problem.weight if problem.mode.weighted else None
    return with_gradients(problem, lambda: gsb.spmm(problem.ours, problem.x, weight, reduce=problem.mode.reduce))


def torch_csr(problem: Problem) -> Call:
    """cuSPARSE as PyTorch calls it; the transpose is made beforehand, its values at each call where these are
    weights.
    """
    values, x, g = problem.values, problem.x.detach(), problem.cotangent
    matrix = problem.csr(values)
    if not problem.mode.backward:
        return lambda: (matrix @ x,)
    fixed = None if problem.mode.weighted else problem.csr_transposed(values)
    pattern = problem.csr(torch.zeros_like(values))

    def call() -> tuple[Tensor, ...]:
        y = matrix @ x
        if fixed is not None:
            return y, fixed @ g
        return (y, problem.csr_transposed(values) @ g, torch.sparse.sampled_addmm(pattern, g, x.T, beta=0.0).values())

    return call


def cupy_csr(problem: Problem) -> Call:
    """cuSPARSE as CuPy calls it. Its dense operands stand column by column, so x does, beforehand."""
    forward_alone(problem)
    values = problem.values
    if problem.x.dtype not in (torch.float32, torch.float64):
        raise CannotDo(f"no {problem.x.dtype}")
    try:
        import cupy
        from cupyx import cusparse as calls
        from cupyx.scipy import sparse
    except ImportError:
        raise CannotDo("CuPy is not installed") from None
    parts = (cupy.from_dlpack(t.contiguous()) for t in (values, problem.indices.int(), problem.indptr.int()))
    matrix = sparse.csr_matrix(tuple(parts), shape=problem.graph.shape)
    x = cupy.asfortranarray(cupy.from_dlpack(problem.x))
    return lambda: (torch.from_dlpack(calls.spmm(matrix, x)),)


def cusparse_analysed(problem: Problem) -> Call:
    """cuSPARSE with its analysis kept between calls, the fastest of its algorithms for CSR."""
    forward_alone(problem)
    call = cusparse.product(problem.indptr, problem.indices, problem.values, problem.x, problem.graph.shape[0])
    return lambda: (call(),)


def pyg_edge_index(problem: Problem) -> Call:
    try:
        from torch_geometric import EdgeIndex
    except ImportError:
        raise CannotDo("PyG is not installed") from None
    matrix = EdgeIndex(problem.edges.flip(0), sparse_size=problem.graph.shape, sort_order="row").fill_cache_()
    weight = problem.weight if problem.mode.weighted else None
    return with_gradients(problem, lambda: matrix.matmul(problem.x, weight, reduce=problem.mode.reduce))


def gather_and_scatter(problem: Problem) -> Call:
    """What PyG's layers do without an adjacency matrix."""
    source, destination = problem.edges
    x, rows, reduce = problem.x, problem.graph.shape[0], problem.mode.reduce
    if reduce == "sum":
        return with_gradients(
            problem,
            lambda: x.new_zeros(rows, x.shape[1]).index_add(
                0, destination, problem.weight[:, None] * x[source] if problem.mode.weighted else x[source]
            ),
        )
    index = destination[:, None].expand(-1, x.shape[1])
    kind = {"mean": "mean", "max": "amax"}[reduce]
    return with_gradients(
        problem, lambda: x.new_zeros(rows, x.shape[1]).scatter_reduce(0, index, x[source], kind, include_self=False)
    )


def triton_blocks(problem: Problem) -> Call:
    """The block-sparse product in Triton that PyTorch brings, where the graph is locally dense."""
    forward_alone(problem)
    values, x, (rows, columns) = problem.values, problem.x, problem.graph.shape
    if x.shape[1] % BLOCK or x.dtype is torch.float64:
        raise CannotDo(f"widths that {BLOCK} divides, in float32 or half types")
    try:
        from torch.sparse._triton_ops import bsr_dense_mm
    except ImportError:
        raise CannotDo("this PyTorch has no block-sparse kernels") from None
    if bsr_dense_mm is None:
        raise CannotDo("Triton is not installed")
    try:
        blocks = BsrFormat.from_csr(
            problem.indptr,
            problem.indices,
            problem.graph.shape,
            BLOCK,
            max_slots=MOST_STORED * problem.graph.num_edges,
            check=False,
        )
    except ValueError:
        raise CannotDo(f"its blocks would store more than {MOST_STORED} elements for each non-zero") from None
    down, across = (-(-extent // BLOCK) * BLOCK for extent in (rows, columns))
    matrix = torch.sparse_bsr_tensor(blocks.indptr, blocks.indices, blocks.pad_values(values), size=(down, across))
    padded = torch.cat([x, x.new_zeros(across - columns, x.shape[1])])
    return lambda: (bsr_dense_mm(matrix, padded)[:rows],)


def triton_rows(problem: Problem) -> Call:
    """A product in Triton that is written for it (`triton_spmm`)."""
    forward_alone(problem)
    values, x = problem.values, problem.x
    if x.device.type != "cuda":
        raise CannotDo("not available: on a GPU alone")
    try:
        from benchmarks.operators import triton_spmm
    except ImportError:
        raise CannotDo("Triton is not installed") from None
    return lambda: (triton_spmm.product(problem.indptr, problem.indices, values, x),)


def dgl_spmm(problem: Problem) -> Call:
    """DGL's own product, where its build has CUDA."""
    if problem.x.device.type != "cuda":
        raise CannotDo("not available: on a GPU alone")
    try:
        import dgl
    except Exception as error:  # DGL's libraries fail in many ways beside a PyTorch that they are not for
        raise CannotDo(f"DGL cannot be imported: {type(error).__name__}") from None
    graph = dgl.graph(tuple(problem.edges), num_nodes=max(problem.graph.shape)).to(problem.x.device)
    ops, reduce = dgl.ops, problem.mode.reduce
    if problem.mode.weighted:
        return with_gradients(problem, lambda: ops.u_mul_e_sum(graph, problem.x, problem.weight[:, None]))
    return with_gradients(problem, lambda: getattr(ops, f"copy_u_{reduce}")(graph, problem.x))


def our_sddmm(problem: Problem) -> Call:
    if problem.mode.op == "add":
        return with_gradients(problem, lambda: gsb.gsddmm(problem.ours, "add", problem.u, problem.x, "v", "u"))
    return with_gradients(problem, lambda: gsb.sddmm(problem.ours, problem.u, problem.x))


def torch_sampled(problem: Problem) -> Call:
    forward_alone(problem)
    if problem.mode.op != "dot":
        raise CannotDo("dot products alone")
    pattern = problem.csr(torch.zeros_like(problem.weight))
    return lambda: (torch.sparse.sampled_addmm(pattern, problem.u, problem.x.T, beta=0.0).values(),)


def gather_at_edges(problem: Problem) -> Call:
    source, destination = problem.edges
    if problem.mode.op == "add":
        return with_gradients(problem, lambda: problem.u[destination] + problem.x[source])
    return with_gradients(problem, lambda: (problem.u[destination] * problem.x[source]).sum(1))


# Our own first. Each makes the call of one pass, or raises CannotDo.
SPMM: dict[str, Callable[[Problem], Call]] = {
    OURS: our_spmm,
    "torch CSR": torch_csr,
    "cuSPARSE, analysed": cusparse_analysed,
    "CuPy": cupy_csr,
    "PyG EdgeIndex": pyg_edge_index,
    "gather and scatter": gather_and_scatter,
    "Triton rows": triton_rows,
    "Triton blocks": triton_blocks,
    "DGL": dgl_spmm,
}
SDDMM: dict[str, Callable[[Problem], Call]] = {
    OURS: our_sddmm,
    "torch sampled_addmm": torch_sampled,
    "gather": gather_at_edges,
}
PEERS = {"spmm": SPMM, "sddmm": SDDMM}
