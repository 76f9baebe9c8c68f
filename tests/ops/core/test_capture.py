"""What capture in a CUDA graph asks of a step that is planned, without a GPU: nobody reads a value, asks for a size, or
copies numbers of the host.

That a launch itself does nothing else, and on which stream it is, `tests/compiler/codegen/test_cuda_streams.py` shows
of the driver's calls; `test_cuda.py` captures and replays where there is a GPU.
"""

from __future__ import annotations

import contextlib
import itertools
from functools import partial

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.plans import planned
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.relational import orders_cuda
from gnn_sparse_backend.planner.cuda import blocks as cuda_bsr
from gnn_sparse_backend.planner.cuda.buckets import BucketPlan
from gnn_sparse_backend.planner.cuda.chunks import ChunkPlan
from gnn_sparse_backend.planner.cuda.rows import LANES_PAY, LanePlan
from tests.ops.operators import OPERATORS, some_graph, step
from tests.ops.serial_gpu import ARCH, cut_rows_short
from tests.ops.waits import without_waiting


def planned_steps(call, launched, monkeypatch) -> None:
    """The first step plans; the second one neither waits nor differs, and launches the same kernels."""
    expected = call()
    first = list(launched)
    launched.clear()
    found = without_waiting(call, monkeypatch)
    assert first[-len(launched) :] == launched and launched
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


# Of every family, and what takes another way where rows are long.
WHOLE = (
    "attention",
    "edge_softmax",
    "gat_attention",
    "gather_mm",
    "gatv2_attention",
    "gsddmm_dot",
    "gspmm_copy_u_max",
    "gspmm_div_sum",
    "sddmm",
    "segment_mm",
    "segment_reduce_max",
    "segment_reduce_sum",
    "spmm_weighted_mean",
)
IN_PARTS = "attention", "edge_softmax", "gspmm_mul_max", "spmm_weighted_mean"


@pytest.mark.parametrize(
    "name, parts",
    [*((name, False) for name in WHOLE), *((name, True) for name in IN_PARTS)],
    ids=lambda value: {False: "whole rows", True: "rows in parts"}.get(value),
)
def test_a_step_of_an_operator(name, parts, serial_gpu, monkeypatch):
    if parts:
        cut_rows_short(monkeypatch, 8, 3)
    graph = some_graph()
    operands = OPERATORS[name].operands(graph, torch.float64)  # as others do, whose kernels these are
    cotangent = torch.ones_like(OPERATORS[name].run(graph, *operands))
    planned_steps(lambda: step(name, graph, operands, cotangent), serial_gpu, monkeypatch)


@pytest.mark.short(1)
@pytest.mark.parametrize("parts", [False, True], ids=["whole rows", "rows in parts"])
@pytest.mark.parametrize("order", ["rows", "tiles", "transform"])
def test_a_step_of_relational_products(order, parts, owned_rows, monkeypatch):
    """In every order, with matrices of their own and of bases."""
    monkeypatch.setattr(orders_cuda, "bytes_of_orders", lambda *asked: {order: 0.0})
    if parts:
        cut_rows_short(monkeypatch, 30, 8)
    generator = torch.Generator().manual_seed(0)
    source, destination, relation = (torch.randint(0, n, (400,), generator=generator) for n in (60, 40, 3))
    destination[::4] = 7
    rel = gsb.RelGraph.from_triples(source, destination, relation, (41, 60), 4)
    x, w, comp, bases, a = (
        torch.randn(shape, generator=generator).half().requires_grad_()
        for shape in ((60, 16), (4, 16, 24), (4, 2), (2, 16, 24), (400,))
    )

    def call(operands):
        leaves = [leaf for operand in operands for leaf in (operand if isinstance(operand, tuple) else [operand])]
        out = gsb.rgms(rel, *operands, "mean")
        return [out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out))]

    for operands in ([x, w, a], [x, (comp, bases), a]):
        planned_steps(partial(call, operands), owned_rows, monkeypatch)
        owned_rows.clear()


FORMATS = {
    "buckets": BucketPlan(ARCH, 4),
    "buckets of column partitions": BucketPlan(ARCH, 4, 3),
    "chunks": ChunkPlan(LanePlan(ARCH, LANES_PAY)),
    "blocks": None,
}


@pytest.mark.short(2)
@pytest.mark.parametrize("name", FORMATS)
def test_a_step_in_every_format(name, serial_gpu, monkeypatch):
    monkeypatch.setattr(cuda_bsr, "LEAST_EDGES", 1 if name == "blocks" else 1 << 40)
    # rows and columns of blocks that are full
    row, col = torch.ones(32, 32, dtype=torch.bool).triu().nonzero().T
    graph = gsb.Graph.from_coo(row, col, (32, 32))
    width, dtype = (2, torch.float32) if name == "chunks" else (32, torch.float16)
    x, weight = torch.randn(32, width).to(dtype).requires_grad_(), torch.rand(row.numel()).to(dtype).requires_grad_()
    operands = [x, weight]

    def call():
        out = gsb.spmm(graph, *operands)
        return [out.detach(), *torch.autograd.grad(out, operands, torch.ones_like(out))]

    if FORMATS[name] is None:
        planned_steps(call, serial_gpu, monkeypatch)
        assert "bsr_tiles" in serial_gpu
        return
    kinds = [message_op("mul(x0, x1)", ("column", "edge"), "sum").kind, message_op("x0", ("column",), "sum").kind]
    with contextlib.ExitStack() as stack:
        for of, kind in itertools.product((graph, graph.transpose()), dict.fromkeys(kinds)):
            stack.enter_context(planned(of, kind, width, dtype, FORMATS[name]))
        planned_steps(call, serial_gpu, monkeypatch)
    assert serial_gpu.count("aggregate") > 2  # more than a launch each way
