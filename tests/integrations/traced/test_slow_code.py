"""What Inductor's code is slow at, written otherwise: the same results, and the same gradients."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.traced.slow_code import keep_row_sums, store_masks_as_numbers

ROWS = 1 << 13
aten = torch.ops.aten


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_biases_are_pytorchs_own_sums(dynamic):
    def run(x, matrix, bias):
        return torch.autograd.grad(torch.nn.functional.linear(x, matrix, bias).sum(), (matrix, bias))

    x, matrix, bias = torch.randn(1 << 13, 16), torch.randn(16, 16, requires_grad=True), torch.randn(16)
    bias.requires_grad_()
    graph = make_fx(run, tracing_mode="symbolic" if dynamic else "fake")(x, matrix, bias).graph
    keep_row_sums(graph)
    seen = [node for node in graph.nodes if node.target == torch.ops.gsb.row_sums.default]
    assert len(seen) == 1
    graph.lint()
    found = torch.fx.GraphModule(torch.nn.Module(), graph)(x, matrix, bias)
    torch.testing.assert_close(found[1], torch.full((16,), float(1 << 13)))
    torch.library.opcheck(torch.ops.gsb.row_sums.default, (x, True))


def masks(x, mask):
    less = aten.lt.Scalar(x, 0.5)
    both = aten.logical_and.default(less, mask)
    return (
        aten.where.self(less, x, aten.neg.default(x)),
        less,
        both,
        mask,  # an argument
        less,
        aten.slice.Tensor(both, 0, 1),  # a view
        aten.gt.Scalar(aten.slice.Tensor(x, 0, 0, 9), 0.0),  # small
    )


@pytest.mark.parametrize("sizes", ["fake", "symbolic"])
def test_masks_are_stored_as_numbers(sizes, monkeypatch):
    x, mask = torch.randn(ROWS, 16), torch.rand(ROWS, 16) < 0.5
    x[0, :2] = torch.tensor([torch.nan, torch.inf])
    graph = make_fx(masks, tracing_mode=sizes)(x, mask).graph
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    store_masks_as_numbers(graph)
    assert not graph.find_nodes(op="call_function", target=torch.ops.gsb.truth_values.default), (
        "where truth values are stored at once"
    )
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    store_masks_as_numbers(graph)
    graph.lint()
    _, less, both, argument, again, view, small = graph.find_nodes(op="output")[0].args[0]
    assert less is again and [node.target for node in (less, both)] == [torch.ops.gsb.truth_values.default] * 2
    assert argument.op == "placeholder" and view.target == aten.slice.Tensor and small.target == aten.gt.Scalar
    assert less.meta["val"].dtype is torch.bool and str(less.meta["val"].shape) == str(view.args[0].meta["val"].shape)
    for found, wanted in zip(torch.fx.GraphModule(torch.nn.Module(), graph)(x, mask), masks(x, mask)):
        assert found.dtype is wanted.dtype and torch.equal(found.nan_to_num(), wanted.nan_to_num())
    torch.library.opcheck(torch.ops.gsb.truth_values.default, (mask.byte(),))


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_units_beside_what_they_are_added_to(dynamic, dtype):
    """Their masks are kept for the way back, since their results are not."""

    def program(x, w):
        y = torch.relu(x @ w) + x
        return torch.nn.functional.leaky_relu(y @ w, 0.1) + y, y > 0

    found = []
    gsb.enable("pyg")
    try:
        for run in (program, torch.compile(program, dynamic=dynamic)):
            generator = torch.Generator().manual_seed(0)
            given = [torch.randn(*shape, generator=generator).to(dtype) for shape in ((ROWS, 16), (16, 16))]
            given = [x.requires_grad_() for x in given]
            result, mask = run(*given)
            found.append([result, mask, *torch.autograd.grad(result.square().mean(), given)])
    finally:
        gsb.disable("pyg")
    for ours, wanted in zip(*found[::-1]):
        torch.testing.assert_close(ours, wanted)
