"""Operators on a GPU, where there is one: answers, streams, capture in a CUDA graph, memory."""
from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.target.cuda_runtime import missing_for_cuda
from tests.ops.operators import OPERATORS, step
from tests.ops.test_ops_devices import ROUNDING, some_graph

pytestmark = [
    pytest.mark.moves_by_itself,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
    pytest.mark.skipif(torch.cuda.is_available() and bool(missing_for_cuda()), reason="; ".join(missing_for_cuda())),
]


def moved(operands):
    return [x.detach().cuda().requires_grad_() for x in operands]


@pytest.mark.parametrize("dtype", ROUNDING, ids=lambda t: str(t).removeprefix("torch."))
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_and_its_gradients(name, dtype):
    torch.manual_seed(0)
    operands = OPERATORS[name].operands(some_graph(), dtype)
    exact = [x.detach().double().requires_grad_() for x in operands]
    expected = step(name, some_graph(), exact)
    for a, b in zip(step(name, some_graph().to("cuda"), moved(operands)), expected, strict=True):
        assert a.is_cuda and a.dtype == dtype
        torch.testing.assert_close(a.cpu().double(), b, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


def test_graphs_made_on_the_gpu_are_those_made_on_the_cpu():
    row, col = torch.tensor([3, 0, 3, 1, 1]), torch.tensor([1, 2, 0, 2, 2])
    there, here = (gsb.Graph.from_coo(row.to(d), col.to(d), (4, 3)) for d in ("cuda", "cpu"))
    assert there.same_structure(here) and there.transpose().same_structure(here.transpose())


def test_kernels_run_on_the_current_stream():
    """On another stream than the default one, behind work that takes longer than the launch."""
    graph = some_graph().to("cuda")
    x = torch.zeros(12, 64, device="cuda")
    gsb.spmm(graph, x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(1.0)
        out = gsb.spmm(graph, x)
    stream.synchronize()
    torch.testing.assert_close(out[:, 0], graph.in_degrees.float())


@pytest.mark.parametrize("name", ["spmm_weighted_mean", "attention", "gspmm_last_max"])
def test_a_step_is_captured_and_replayed(name):
    torch.manual_seed(0)
    graph = some_graph().to("cuda")
    operands = moved(OPERATORS[name].operands(some_graph()))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(name, graph, operands)  # plans, compiles
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        results = step(name, graph, operands)
    with torch.no_grad():
        for x in operands:
            x.mul_(0.5)
    captured.replay()
    for a, b in zip(results, step(name, graph, operands), strict=True):
        torch.testing.assert_close(a, b)


def test_the_same_bits_at_every_run():
    graph = some_graph().to("cuda")
    operands = moved(OPERATORS["gatv2_attention"].operands(some_graph()))
    first = step("gatv2_attention", graph, operands)
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, step("gatv2_attention", graph, operands)))


def test_an_operand_elsewhere_is_named():
    with pytest.raises(ValueError, match="x is on cpu but the graph is on cuda:0"):
        gsb.spmm(some_graph().to("cuda"), torch.zeros(12, 4))


def test_memory_is_pytorchs():
    graph = some_graph().to("cuda")
    x = torch.randn(12, 1 << 16, device="cuda")
    gsb.spmm(graph, x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    out = gsb.spmm(graph, x)
    assert torch.cuda.memory_allocated() - before == out.untyped_storage().nbytes()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tensor_cores_multiply(dtype):
    torch.manual_seed(0)
    a, b = torch.randn(200, 64, device="cuda", dtype=dtype), torch.randn(3, 64, 40, device="cuda", dtype=dtype)
    lengths = torch.tensor([70, 0, 130], device="cuda")
    expected = torch.cat([a[:70].double() @ b[0].double(), a[70:].double() @ b[2].double()])
    torch.testing.assert_close(gsb.segment_mm(a, b, lengths).double(), expected, rtol=2e-2, atol=5e-2)
