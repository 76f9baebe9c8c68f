"""Operators on a GPU, where there is one: answers, streams, capture in a CUDA graph, memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen.cuda.runtime import missing_for_cuda
from tests.default_plans import cases, excess
from tests.ops.operators import OPERATORS, ROUNDING, some_graph, step

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


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_default_plans_answer_as_the_cpu(case):
    """On large graphs and in every format that is taken by itself: the same operands, and what the CPU's kernels make
    of them.
    """
    results, expected = case(torch.device("cuda")), case(torch.device("cpu"))
    for a, b in zip(results, expected, strict=True):
        assert a.is_cuda and a.dtype == b.dtype and a.shape == b.shape
        assert excess(a.cpu(), b, ROUNDING[torch.float16 if case.tf32 else b.dtype]) <= 0


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


def captured_and_replayed(call, operands):
    """What a call gives when it is captured once, and replayed on other values."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()  # plans, compiles
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        results = call()
    with torch.no_grad():
        for x in operands:
            x.mul_(0.5)
    captured.replay()
    return results


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_step_is_captured_and_replayed(name):
    torch.manual_seed(0)
    graph = some_graph().to("cuda")
    operands = moved(OPERATORS[name].operands(some_graph()))
    results = captured_and_replayed(lambda: step(name, graph, operands), operands)
    for a, b in zip(results, step(name, graph, operands), strict=True):
        torch.testing.assert_close(a, b)


def relational(dtype, blocks=1):
    """(RelGraph, x, w, a) on the GPU, with a relation that has no edges, and the exact answer of a weighted sum with
    its gradients.
    """
    generator = torch.Generator().manual_seed(3)
    source, destination = (
        torch.randint(0, 60, (500,), generator=generator),
        torch.randint(0, 40, (500,), generator=generator),
    )
    relation = torch.tensor([0, 2, 3])[torch.randint(0, 3, (500,), generator=generator)]
    x, w = torch.randn(60, 32 * blocks, generator=generator), torch.randn(4, blocks, 32, 24, generator=generator)
    a = torch.rand(500, generator=generator)
    x, w, a = (t.to(dtype).cuda().requires_grad_() for t in (x, w if blocks > 1 else w[:, 0], a))
    rel = gsb.RelGraph.from_triples(source.cuda(), destination.cuda(), relation.cuda(), (40, 60), 4)
    exact = [t.detach().cpu().double().requires_grad_() for t in (x, w, a)]
    each = torch.einsum(
        "ebf,ebfk->ebk", exact[0][source].unflatten(1, (blocks, 32)), exact[1].view(4, blocks, 32, 24)[relation]
    )
    out = torch.zeros(40, 24 * blocks, dtype=torch.float64).index_add(
        0, destination, each.flatten(1) * exact[2][:, None]
    )
    return rel, (x, w, a), [out.detach(), *torch.autograd.grad(out.sum(), exact)]


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize(
    "dtype, precision",
    [(torch.float32, "highest"), (torch.float32, "high"), (torch.float16, "highest"), (torch.bfloat16, "highest")],
    ids=["float32", "tf32", "float16", "bfloat16"],
)
def test_rgms_and_its_gradients(dtype, precision, blocks, matmul_precision):
    torch.set_float32_matmul_precision(precision)
    rel, operands, expected = relational(dtype, blocks)
    out = gsb.rgms(rel, *operands)
    rounding = 2.0**-10 if precision == "high" else torch.finfo(dtype).eps
    for found, exact in zip([out, *torch.autograd.grad(out.sum(), operands)], expected, strict=True):
        assert found.is_cuda and found.dtype == dtype
        # sums of hundreds of terms of both signs: by the size of the largest
        torch.testing.assert_close(
            found.detach().cpu().double(), exact, rtol=8 * rounding, atol=8 * rounding * float(exact.abs().max())
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_rgms_is_captured_and_replayed(dtype):
    rel, operands, _ = relational(dtype)

    def call():
        out = gsb.rgms(rel, *operands)
        return [out.detach(), *torch.autograd.grad(out.sum(), operands)]

    for a, b in zip(captured_and_replayed(call, operands), call(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "name",
    [
        "spmm_weighted_mean",
        "sddmm",
        "gatv2_attention",
        "edge_softmax",
        "segment_mm",
        "gather_mm",
        "segment_reduce_sum",
        "segment_reduce_max",
        "rgms",
    ],
)
def test_a_planned_step_does_not_wait_for_the_gpu(name):
    """PyTorch raises at any call of its own that would."""
    if name == "rgms":
        rel, operands, _ = relational(torch.float16)

        def call():
            out = gsb.rgms(rel, *operands)
            return torch.autograd.grad(out, operands, torch.ones_like(out))
    else:
        graph, operands = some_graph().to("cuda"), moved(OPERATORS[name].operands(some_graph()))

        def call():
            return step(name, graph, operands)

    call()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_wrong_lengths_are_said_by_the_gpu():
    """In a process of its own, which has no GPU left afterwards."""
    script = (
        "import torch, gnn_sparse_backend as gsb\n"
        "gsb.segment_mm(torch.ones(5, 3).cuda(), torch.ones(2, 3, 4).cuda(), torch.tensor([2, 4]).cuda())\n"
        "torch.cuda.synchronize()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and "lengths must not be negative and must sum to the number of rows 5" in done.stderr


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


def test_all_memory_is_pytorchs():
    """What the driver has given out beyond PyTorch's own does not grow from call to call, forward and backward."""

    def beyond() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    graph = some_graph().to("cuda")
    operands = {name: moved(OPERATORS[name].operands(some_graph())) for name in sorted(OPERATORS)}
    rel, relational_operands, _ = relational(torch.float16)

    def round_of_calls():
        for name, given in operands.items():
            step(name, graph, given)
        out = gsb.rgms(rel, *relational_operands)
        torch.autograd.grad(out, relational_operands, torch.ones_like(out))

    round_of_calls()
    before = beyond()
    for _ in range(3):
        round_of_calls()
    assert beyond() <= before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tensor_cores_multiply(dtype):
    torch.manual_seed(0)
    a, b = torch.randn(200, 64, device="cuda", dtype=dtype), torch.randn(3, 64, 40, device="cuda", dtype=dtype)
    lengths = torch.tensor([70, 0, 130], device="cuda")
    expected = torch.cat([a[:70].double() @ b[0].double(), a[70:].double() @ b[2].double()])
    torch.testing.assert_close(gsb.segment_mm(a, b, lengths).double(), expected, rtol=2e-2, atol=5e-2)
