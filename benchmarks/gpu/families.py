"""A small call of each family of operators: what is loaded first, captured, watched for waiting, and profiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.support.gpu import stand_ins

Make = Callable[[torch.device, torch.dtype, int], tuple[Callable[..., Tensor], tuple[Tensor, ...]]]


@dataclass(frozen=True)
class Family:
    """make: ``(device, dtype, scale)`` to a function and its operands, leaves. shared: its kernels use shared memory
    and Tensor Cores. program: of its first kernel.
    """

    name: str
    make: Make
    program: str
    shared: bool = False

    def step(self, device: torch.device, dtype: torch.dtype, scale: int = 1) -> tuple[Callable, tuple[Tensor, ...]]:
        """A call that gives the result and the gradients, and the operands."""
        function, operands = self.make(device, dtype, scale)

        def call() -> tuple[Tensor, ...]:
            out = function(*operands)
            return out.detach(), *torch.autograd.grad(out, operands, torch.ones_like(out))

        return call, operands


def values(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    """A leaf drawn on the CPU."""
    return torch.randn(shape).to(device, dtype).requires_grad_()


def a_graph(device: torch.device, scale: int) -> gsb.Graph:
    """Rows of no edges and of many, edges in no order."""
    generator = torch.Generator().manual_seed(0)
    rows, columns, edges = 90 * scale, 120 * scale, 900 * scale
    row = torch.randint(0, rows - 1, (edges,), generator=generator)
    row[: edges // 8] = 3
    column = torch.randint(0, columns, (edges,), generator=generator)
    return gsb.Graph.from_coo(row.to(device), column.to(device), (rows, columns))


def _spmm(device, dtype, scale):
    graph = a_graph(device, scale)
    operands = values(device, dtype, graph.shape[1], 64), values(device, dtype, graph.num_edges)
    return (lambda x, w: gsb.spmm(graph, x, w)), operands


def _maximum(device, dtype, scale):
    graph = a_graph(device, scale)
    return (lambda x: gsb.spmm(graph, x, reduce="max")), (values(device, dtype, graph.shape[1], 64),)


def _sddmm(device, dtype, scale):
    graph = a_graph(device, scale)
    return (lambda u, v: gsb.sddmm(graph, u, v)), tuple(values(device, dtype, n, 64) for n in graph.shape)


def _softmax(device, dtype, scale):
    graph = a_graph(device, scale)
    return (lambda s: gsb.edge_softmax(graph, s)), (values(device, dtype, graph.num_edges, 4),)


def _attention(device, dtype, scale):
    graph = a_graph(device, scale)
    rows, columns = graph.shape
    operands = tuple(values(device, dtype, n, 4, 16) for n in (rows, columns, columns))
    return (lambda q, k, v: gsb.attention(graph, q, k, v)), operands


def _relational(device, dtype, scale):
    graph = a_graph(device, scale)
    relation = torch.arange(graph.num_edges, device=device) % 3
    relational = gsb.RelGraph.from_graph(graph, relation, 3)
    operands = values(device, dtype, graph.shape[1], 64), values(device, dtype, 3, 64, 64)
    return (lambda x, w: gsb.rgms(relational, x, w)), operands


def _grouped(device, dtype, scale):
    lengths = torch.tensor([70, 0, 300 * scale, 1, 129])
    total, on_device = int(lengths.sum()), lengths.to(device)
    operands = values(device, dtype, total, 64), values(device, dtype, 5, 64, 64)
    return (lambda a, b: gsb.segment_mm(a, b, on_device)), operands


def _convolution(device, dtype, scale):
    generator = torch.Generator().manual_seed(0)
    inputs = outputs = 200 * scale
    pairs = [torch.randperm(inputs, generator=generator)[: inputs // 2] for _ in range(2 * 9)]
    indptr = torch.arange(10) * (inputs // 2)
    given = torch.cat(pairs[::2]).int(), torch.cat(pairs[1::2]).int(), indptr.int()
    kernel_map = gsb.KernelMap.from_pairs(*given, (outputs, inputs)).to(device)
    operands = values(device, dtype, inputs, 32), values(device, dtype, 9, 32, 64)
    return (lambda x, w: gsb.sparse_conv(x, w, kernel_map)), operands


def _masked(device, dtype, scale):
    mask = gsb.masks.band(256 * scale, 32, 32).to(device)
    operands = tuple(values(device, dtype, 1, 2, 256 * scale, 64) for _ in range(3))
    return (lambda q, k, v: gsb.sparse_attention(q, k, v, mask)), operands


def _composed(device, dtype, scale):
    graph = a_graph(device, scale)
    parts = gsb.formats.decompose(graph, ["bsr(4)", "csr"])
    operands = values(device, dtype, graph.num_edges), values(device, dtype, graph.shape[1], 64)
    return (lambda a, x: gsb.composed_spmm(parts, a, x)), operands


FAMILIES = {
    family.name: family
    for family in (
        Family("spmm", _spmm, "aggregate"),
        Family("spmm, maximum", _maximum, "aggregate"),
        Family("sddmm", _sddmm, "edge_map"),
        Family("edge softmax", _softmax, "edge_softmax"),
        Family("attention", _attention, "attention"),
        Family("rgms", _relational, "rgms_tiles", shared=True),
        Family("segment_mm", _grouped, "grouped_tiles", shared=True),
        Family("sparse convolution", _convolution, "conv_tiles", shared=True),
        Family("masked attention", _masked, "masked_forward"),
        Family("composed formats", _composed, "composed"),
    )
}


def mismatch(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], dtype: torch.dtype, tf32: bool = False) -> dict:
    """Nothing, or what is wrong: differences from float64 by the largest number of each result."""
    rounding = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    share = max(rounding, 1e-2 if tf32 else 0.0)
    for number, (y, exact) in enumerate(zip(found, expected, strict=True)):
        difference = float((y.detach().cpu().double() - exact).abs().max()) if exact.numel() else 0.0
        bound = share * (1 + float(exact.abs().max()))
        if not difference <= bound:
            return {
                "state": "wrong",
                "why": f"result {number} is off by {difference:.3g}, at most {bound:.3g} is right",
            }
    return {}


def exact(family: Family, dtype: torch.dtype, scale: int = 1) -> tuple[Tensor, ...]:
    """The result and the gradients in float64 on the CPU, of operands that are rounded to a type."""
    torch.manual_seed(0)
    with stand_ins.left():
        function, operands = family.make(torch.device("cpu"), dtype, scale)
        wide = [x.detach().double().requires_grad_() for x in operands]
        out = function(*wide)
        return out.detach(), *torch.autograd.grad(out, wide, torch.ones_like(out))
