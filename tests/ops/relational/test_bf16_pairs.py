"""Operators on bfloat16 features two at a time, and on matrices in other layouts, against torch in float64."""

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache.bounded import KernelCache
from gnn_sparse_backend.ops.grouped import executables as grouped_kernels
from gnn_sparse_backend.ops.relational import executables as rgms_kernels
from gnn_sparse_backend.ops.relational import executables_cpu as rgms_cpu
from gnn_sparse_backend.ops.relational import schedules_cpu as planner
from gnn_sparse_backend.planner.cpu import relational as relational_rules
from tests.ops.message_oracle import assert_close_to, values
from tests.ops.relational.test_rgms import check, make, operands, oracle, triples


@pytest.fixture
def in_bf16_pairs(monkeypatch):
    """As on a CPU that has the instruction; here its functions are ordinary code."""
    for module in (grouped_kernels, rgms_cpu):
        monkeypatch.setattr(
            module, "takes_bf16_pairs", lambda features, dtype: dtype == "bfloat16" and features % 2 == 0
        )
    monkeypatch.setattr(rgms_cpu, "_entries", KernelCache("test"))


def test_grouped_product(in_bf16_pairs):
    features = 6, 21
    index = torch.tensor([2, 0, 2, 1, 0, 2, 2])
    exact = values(1, 7, features[0]), values(2, 4, *features)
    a, b = (x.bfloat16().requires_grad_() for x in exact)
    actual = gsb.gather_mm(a, b, index)
    plain = [x.clone().requires_grad_() for x in exact]
    expected = torch.einsum("ni,nio->no", plain[0], plain[1][index])
    assert_close_to(actual, expected, torch.einsum("ni,nio->no", exact[0].abs(), exact[1].abs()[index]))
    cotangent = values(3, *expected.shape)
    for found, right in zip(
        torch.autograd.grad(actual, (a, b), cotangent.bfloat16()), torch.autograd.grad(expected, plain, cotangent)
    ):
        torch.testing.assert_close(found.double(), right, rtol=1e-2, atol=1e-2)


def test_relational_product_by_columns(in_bf16_pairs):
    arrays = triples("mixed")
    x, w, a = operands(arrays, (8, 24, 2), "flat")
    found = rgms_kernels.run_product(make(arrays), x.bfloat16(), w.bfloat16(), a.float(), False, False, "scatter")
    assert_close_to(found, oracle(arrays, x, w, a), oracle(arrays, x.abs(), w.abs(), a.abs()))


def test_relational_product_with_gradients(in_bf16_pairs):
    """The gradient of edge weights is of products of rows as they are stored, the other two are not."""
    arrays = triples("mixed")
    check(
        arrays,
        lambda x, w, a: gsb.rgms(make(arrays), x, w, a),
        operands(arrays, (6, 22, 1), "flat"),
        torch.bfloat16,
        roundings=1,
    )


def test_tiled_matrices(monkeypatch):
    """Large ones are: here all that have more than one tile. The last tile is narrower."""
    monkeypatch.setattr(relational_rules, "WHOLE_BYTES", 0)
    monkeypatch.setattr(rgms_cpu, "_entries", KernelCache("test"))
    planner.rgms_kernel.cache_clear()
    arrays = triples("mixed")
    x, w, a = operands(arrays, (5, 150, 1), "flat")
    found = rgms_kernels.run_product(make(arrays), x, w.unsqueeze(1), a, False, False, "gather")
    planner.rgms_kernel.cache_clear()
    assert_close_to(found, oracle(arrays, x, w, a), oracle(arrays, x.abs(), w.abs(), a.abs()))
