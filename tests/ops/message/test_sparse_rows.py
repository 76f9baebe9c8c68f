"""Linear maps of mostly zeros are PyTorch's dense ones, whichever way they go, and go by non-zeros where that pays."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message import sparse_rows
from gnn_sparse_backend.ops.message.sparse_rows import FOUND_AT, why_dense

ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.fixture(autouse=True)
def small_maps(monkeypatch):
    monkeypatch.setattr(sparse_rows, "LEAST", 0)


def words(rows: int = 150, columns: int = 90, share: float = 0.03, dtype=torch.float64) -> Tensor:
    """Bags of words, of which some are empty."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, columns, generator=generator, dtype=torch.float64)
    x = torch.where(torch.rand(rows, columns, generator=generator) < share, x, 0)
    x[::7] = 0
    return x.to(dtype)


def weights(out: int = 5, columns: int = 90, dtype=torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    made = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((out, columns), (out,)))
    matrix, bias = (x.to(dtype).requires_grad_() for x in made)
    return matrix, bias


def by_nonzeros(run) -> bool:
    """Whether a call runs one of our aggregations."""
    functional.linear(torch.ones(1, 1), torch.ones(1, 1))
    gsb.spmm(gsb.Graph.from_coo(torch.tensor([0]), torch.tensor([0]), (1, 1)), torch.ones(1, 1))
    before = str(gsb.last_run())
    run()
    return str(gsb.last_run()) != before


def settled(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    for _ in range(FOUND_AT):
        out = gsb.linear(x, matrix, bias)
    return out


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("out", [1, 5])
def test_values_and_gradients(out, dtype):
    x, (matrix, bias) = words(dtype=dtype), weights(out, dtype=dtype)
    exact = [each.detach().double().requires_grad_() for each in (matrix, bias)]
    y, expected = settled(x, matrix, bias), functional.linear(x.double(), *exact)
    assert why_dense(x, out) == f"it is mapped by its non-zeros, {float((x != 0).double().mean()):.1%} of it"
    flows = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    tolerance = {"rtol": ROUNDING[dtype], "atol": 20 * ROUNDING[dtype]}
    torch.testing.assert_close(y.double(), expected, **tolerance)
    wanted = torch.autograd.grad(expected, exact, flows.double())
    for ours, theirs in zip(torch.autograd.grad(y, (matrix, bias), flows), wanted):
        torch.testing.assert_close(ours.double(), theirs, **tolerance)


def test_second_gradients():
    x, (matrix, bias) = words(12, 8, 0.1), weights(3, 8)
    settled(x, matrix, bias)
    run = lambda *given: gsb.linear(x, *given).square()
    assert by_nonzeros(lambda: run(matrix, bias))
    assert torch.autograd.gradcheck(run, (matrix, bias)) and torch.autograd.gradgradcheck(run, (matrix, bias))


def test_calls_before_are_dense():
    x, (matrix, bias) = words(), weights()
    ways = [by_nonzeros(lambda: gsb.linear(x, matrix, bias)) for _ in range(FOUND_AT + 1)]
    assert ways == [False] * (FOUND_AT - 1) + [True, True]


def test_writes_are_seen():
    x, (matrix, bias) = words(), weights()
    settled(x, matrix, bias)
    x[3] = 1.0
    torch.testing.assert_close(gsb.linear(x, matrix, bias), functional.linear(x, matrix, bias))
    assert "call 8" in why_dense(x, 5) or why_dense(x, 5) == "its non-zeros are not looked for yet"


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_zeros_times_infinity(value):
    x, (matrix, _) = words(), weights()
    settled(x, matrix)
    with torch.no_grad():
        matrix[2, 5] = value
    torch.testing.assert_close(gsb.linear(x, matrix), functional.linear(x, matrix), equal_nan=True)
    _, (matrix, _) = x, weights()
    flows = torch.ones(x.shape[0], 5, dtype=torch.float64)
    flows[4, 1] = value
    ours, theirs = (torch.autograd.grad(run(x, matrix), matrix, flows)[0] for run in (gsb.linear, functional.linear))
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert theirs.isnan().any()


def test_infinities_among_the_features():
    x, (matrix, _) = words(), weights()
    x[1, 1] = float("inf")
    torch.testing.assert_close(settled(x, matrix), functional.linear(x, matrix), equal_nan=True)


def test_what_stays_dense():
    matrix, bias = weights()
    dense = torch.rand(150, 90, dtype=torch.float64)
    settled(dense, matrix, bias)
    assert why_dense(dense, 5) == "about 100.0% of it are no zeros, and up to 12% pay"
    assert not by_nonzeros(lambda: gsb.linear(dense, matrix, bias))
    between = words(share=0.11)
    settled(between, matrix, bias)
    assert why_dense(between, 500).endswith("and up to 8% pay for 500 features")
    relu = torch.rand(150, 90, dtype=torch.float64).requires_grad_().relu()
    assert why_dense(relu, 5) == "it has a gradient, and is made anew for each step"
    assert not by_nonzeros(lambda: settled(relu, matrix))
    nobody = words()
    assert why_dense(nobody, 5) == "it was not mapped before; its non-zeros are looked for in call 8"


@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_sparse_tensors(layout):
    x, (matrix, bias) = words(), weights()
    given = x.to_sparse_csr() if layout == "csr" else x.to_sparse_coo()
    out = gsb.linear(given, matrix, bias)
    torch.testing.assert_close(out, functional.linear(x, matrix, bias), rtol=1e-12, atol=1e-12)
    ours, theirs = (torch.autograd.grad(y.square().sum(), matrix)[0] for y in (out, functional.linear(x, matrix, bias)))
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    with pytest.raises(TypeError, match="a sparse x has no gradient here"):
        gsb.linear(given.detach().requires_grad_(), matrix)
    with pytest.raises(ValueError, match=re.escape("got (150, 90) and (5, 80)")):
        gsb.linear(given, matrix[:, :80])


def test_spmm_linear_and_empty_features():
    graph = gsb.Graph.from_coo(torch.arange(150), torch.arange(150).flip(0), (150, 150))
    x, (matrix, bias) = words(), weights()
    expected = functional.linear(x.flip(0), matrix, bias)
    for _ in range(FOUND_AT + 1):
        torch.testing.assert_close(gsb.spmm_linear(graph, x, matrix, bias), expected)
    nothing = torch.zeros(150, 90, dtype=torch.float64)
    torch.testing.assert_close(settled(nothing, matrix, bias), functional.linear(nothing, matrix, bias))


def test_compiled_programs_and_transforms_stay_dense():
    x, (matrix, bias) = words(), weights()
    expected = settled(x, matrix, bias)
    compiled = torch.compile(lambda x, w, b: gsb.linear(x, w, b), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, matrix, bias), expected)
    jacobian = torch.func.jacrev(lambda w: gsb.linear(x, w))(matrix.detach())
    torch.testing.assert_close(jacobian[0, 0, 0], x[0])


def test_what_becomes_of_features_is_explained():
    x, (weight, _) = words(), weights()
    before = gsb.explain(x, "linear", 5)
    assert not before.by_nonzeros and "was not mapped before" in before.reason
    for _ in range(FOUND_AT):
        gsb.linear(x, weight)
    found = gsb.explain(x, "linear", 5)
    share = float((x != 0).double().mean())
    assert found.by_nonzeros and found.nonzeros == share and found.shape == tuple(x.shape)
    assert f"{share:.1%} of them no zeros, to 5: by its non-zeros\nwhy: it is mapped by" in str(found)
    for layout in (x.to_sparse_csr(), x.to_sparse_coo()):
        assert gsb.explain(layout, "linear", 5).by_nonzeros and "dense" not in str(gsb.explain(layout, "linear", 5))
    assert not gsb.explain(torch.ones(4, 4), "linear", 5).by_nonzeros
    with pytest.raises(ValueError, match="width of the result, a positive whole number, got 0"):
        gsb.explain(x, "linear", 0)
