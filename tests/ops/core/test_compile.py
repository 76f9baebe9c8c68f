"""The operators under torch.compile, fake tensors and torch.library's own checks."""

import gc
import shutil
import weakref

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message import operators
from gnn_sparse_backend.ops.message import products as autograd
from gnn_sparse_backend.structures import csr as structures
from tests.ops.oracle import graph_of, random

COMPILER = shutil.which("g++") or shutil.which("clang++")
INDUCTOR = pytest.param(
    "inductor",
    (),
    marks=[pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="inductor needs a C++ compiler")],
)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layer(graph, x, weight, u):
    y = torch.relu(gsb.spmm(graph, x * 2, weight, "mean"))
    return y.sum(-1), gsb.sddmm(graph, u, x + 1) * 2


def assert_compiled_agrees(compiled, structure, width=4, heads=()):
    graph = graph_of(structure)
    rows, cols = structure[2]
    inputs = [
        random(cols, *heads, width, grad=True),
        random(structure[0].size, *heads, seed=1, grad=True),
        random(rows, *heads, width, seed=2, grad=True),
    ]
    expected, actual = layer(graph, *inputs), compiled(graph, *inputs)
    cotangents = [random(*y.shape, seed=3) for y in expected]
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, inputs, cotangents), torch.autograd.grad(expected, inputs, cotangents)
    )


@pytest.mark.short(1)
@pytest.mark.parametrize("backend, heads", [("aot_eager", ()), ("aot_eager", (3,)), INDUCTOR])
def test_no_graph_break_forward_and_backward(zoo, backend, heads):
    assert_compiled_agrees(torch.compile(layer, fullgraph=True, backend=backend), zoo["random"], heads=heads)


def test_new_graphs_of_other_sizes_do_not_recompile_each_time(zoo):
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for name in ("random", "skewed", "last_rows_empty", "duplicates", "wide", "tall", "self_loops", "long_row"):
        assert_compiled_agrees(compiled, zoo[name])
    # static sizes, dynamic sizes, and both again for graphs in CSR order, which have no edge ids
    assert counter.frame_count <= 4


@pytest.mark.slow
def test_structures_of_size_zero_and_one(zoo):
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for name in ("no_edges", "no_rows", "one_edge", "one_column", "one_row"):
        assert_compiled_agrees(compiled, zoo[name])


@pytest.mark.slow
@pytest.mark.cpu_only("PyTorch's compiler would trace what moves tensors")
def test_the_transpose_of_a_graph_in_a_compiled_function(zoo):
    graph = graph_of(zoo["random"])
    compiled = torch.compile(lambda graph, x: gsb.spmm(graph.transpose(), x), backend="aot_eager")
    x = random(33, 2)
    torch.testing.assert_close(compiled(graph, x), gsb.spmm(graph.transpose(), x))


@pytest.mark.slow
def test_a_graph_that_dies_before_a_compiled_backward(zoo):
    structure = zoo["random"]
    x, weight = random(29, 3, grad=True), random(200, seed=1, grad=True)
    compiled = torch.compile(
        lambda graph: gsb.spmm(graph, x, weight, "mean").sum(), fullgraph=True, backend="aot_eager"
    )
    graph = graph_of(structure)
    expected = torch.autograd.grad(gsb.spmm(graph, x, weight, "mean").sum(), [x, weight])
    loss = compiled(graph)
    pair = weakref.ref(graph._pair)
    del graph
    gc.collect()
    assert pair() is None
    torch.testing.assert_close(torch.autograd.grad(loss, [x, weight]), expected)


def test_a_compiled_step_finds_the_cached_transpose(zoo, calls_to):
    graph = graph_of(zoo["random"])
    built = calls_to(structures, "transpose_csr")
    compiled = torch.compile(lambda graph, x: gsb.spmm(graph, x), fullgraph=True, backend="aot_eager")
    for _ in range(3):
        compiled(graph, random(29, 3, grad=True)).sum().backward()
    assert len(built) == 1


def test_errors_keep_their_words(zoo):
    graph = graph_of(zoo["random"])
    compiled = torch.compile(gsb.spmm, fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match="x must have 29 rows, one per source"):
        compiled(graph, random(35, 2))
    with pytest.raises(ValueError, match="weight must have 200 rows, one per edge"):
        compiled(graph, random(29, 2), random(7))
    # of one graph PyTorch 2.8 says where this was raised, and not the words
    compiled = torch.compile(gsb.spmm, backend="aot_eager")
    with pytest.raises(TypeError, match="x must be float32, float64, bfloat16 or float16, got torch.int64"):
        compiled(graph, torch.zeros(29, 2, dtype=torch.long))


def operator_arguments(structure, transposed=False, heads=()):
    graph = graph_of(structure)
    x = random(graph.shape[0 if transposed else 1], *heads, 3, grad=True)
    weight = random(graph.num_edges, *heads, seed=1, grad=True)
    return graph, (graph.indptr, graph.indices, graph.edge_ids, graph.shape[1], x, weight)


@pytest.mark.short(2)
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("heads", [(), (2,), (1,)])
def test_opcheck_spmm(zoo, mean, transposed, heads):
    _, arguments = operator_arguments(zoo["random"], transposed, heads)
    torch.library.opcheck(torch.ops.gsb.spmm.default, (*arguments, mean, transposed))
    if not heads:
        torch.library.opcheck(torch.ops.gsb.spmm.default, (*arguments[:5], None, mean, transposed))


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("heads", [(), (2,), (1,)])
def test_opcheck_sddmm(zoo, mean, heads):
    _graph, arguments = operator_arguments(zoo["random"], heads=heads)
    u = random(33, *heads, 3, seed=2, grad=True)
    torch.library.opcheck(torch.ops.gsb.sddmm.default, (*arguments[:3], u, arguments[4], mean))


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_operators_gradgradcheck(zoo, mean, transposed):
    _graph, (indptr, indices, edge_ids, cols, x, weight) = operator_arguments(zoo["duplicates"], transposed)
    spmm = lambda x, weight: torch.ops.gsb.spmm(indptr, indices, edge_ids, cols, x, weight, mean, transposed)
    sddmm = lambda u, v: torch.ops.gsb.sddmm(indptr, indices, edge_ids, u, v, mean)
    for function, inputs in ((spmm, (x, weight)), (sddmm, (random(4, 2, grad=True), random(5, 2, grad=True)))):
        assert torch.autograd.gradcheck(function, inputs, atol=1e-9, rtol=1e-7)
        assert torch.autograd.gradgradcheck(function, inputs, atol=1e-9, rtol=1e-7)


def test_operators_check_foreign_arrays(zoo):
    _, (indptr, indices, edge_ids, cols, x, weight) = operator_arguments(zoo["random"])
    bad = indices.clone()
    bad[5] = 1000
    with pytest.raises(ValueError, match=r"indices\[5\] = 1000 is out of range"):
        torch.ops.gsb.spmm(indptr, bad, edge_ids, cols, x, weight, False, False)
    with pytest.raises(ValueError, match=r"weight \(200, 2\) .* does not go with x"):
        torch.ops.gsb.spmm(indptr, indices, edge_ids, cols, x, weight.repeat(2, 1).T, False, False)
    copies = torch.ops.gsb.spmm(indptr.clone(), indices.long(), edge_ids.clone(), cols, x, weight, False, False)
    torch.testing.assert_close(copies, torch.ops.gsb.spmm(indptr, indices, edge_ids, cols, x, weight, False, False))


def test_fake_tensors_run_no_kernel(zoo, calls_to):
    graph = graph_of(zoo["random"])
    ran = [calls_to(module, name) for module in (autograd, operators) for name in ("run_aggregate", "run_edge_map")]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        x, u = mode.from_tensor(random(29, 2, 3)), mode.from_tensor(random(33, 2, 3))
        assert gsb.spmm(graph, x).shape == (33, 2, 3)
        assert gsb.sddmm(graph, u, x).shape == (200, 2)
    assert not any(ran)


def test_tracing_records_the_operator(zoo):
    graph = graph_of(zoo["random"])
    traced = make_fx(lambda x: gsb.spmm(graph, x))(random(29, 3))
    assert "gsb.spmm" in traced.code
    x = random(29, 3, seed=5)
    torch.testing.assert_close(traced(x), gsb.spmm(graph, x))
