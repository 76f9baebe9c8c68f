"""Relational and grouped products of any widths on Tensor Cores, serialised on the CPU, against products in float64."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb

TYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


def close(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    bound = 16 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        found.double(), expected, rtol=bound, atol=bound * max(1.0, float(expected.detach().abs().max()))
    )


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "dtype, widths, blocks, reduce",
    [
        (torch.float16, (16, 4), 1, "sum"),
        (torch.bfloat16, (5, 11), 2, "mean"),
        (torch.float32, (12, 3), 1, "sum"),
    ],
    ids=lambda x: TYPES.get(x),
)
def test_rgms_of_any_widths_in_fragments(dtype, widths, blocks, reduce, serial_gpu, matmul_precision):
    """Both directions of a last layer of a few classes, and of matrices of small blocks, with a weight for each edge; a
    relation of NaN alone, and rows of NaN, which no edge names."""
    generator = torch.Generator().manual_seed(5)
    inner, outer = widths
    relation = torch.cat([torch.zeros(70), torch.full((1,), 2.0), torch.full((40,), 3.0)]).long()
    source = torch.randperm(200, generator=generator)[:111]
    destination = torch.cat(
        [torch.arange(70) % 35, torch.tensor([80]), torch.randint(0, 90, (40,), generator=generator)]
    )
    rel = gsb.RelGraph.from_triples(source, destination, relation, (90, 200), 4)
    x, w = (
        torch.randn(200, blocks * inner, generator=generator),
        torch.randn(4, blocks, inner, outer, generator=generator),
    )
    w[1] = torch.nan
    x[torch.isin(torch.arange(200), source, invert=True)] = torch.nan
    x, w, a = x.to(dtype), w.to(dtype), torch.randn(111, generator=generator).to(dtype)
    w = w[:, 0] if blocks == 1 else w
    x, w, a = (t.requires_grad_() for t in (x, w, a))
    out = gsb.rgms(rel, x, w, edge_weight=a, reduce=reduce)
    exact_x, exact_w, exact_a = (t.detach().double().requires_grad_() for t in (x, w, a))
    matrices = exact_w.view(4, blocks, inner, outer)
    terms = torch.einsum("edf,edfk->edk", exact_x[source].unflatten(1, (blocks, inner)), matrices[relation]).flatten(1)
    terms = terms * exact_a[:, None]
    if reduce == "mean":
        key = relation * 90 + destination
        terms = terms / torch.bincount(key)[key][:, None]
    exact = torch.zeros(90, blocks * outer, dtype=torch.float64).index_add(0, destination, terms)
    close(out, exact, dtype)
    assert "rgms_tiles" in serial_gpu and not {"grouped_tiles", "grouped_product"} & set(serial_gpu)
    cotangent = torch.randn(exact.shape, generator=generator, dtype=torch.float64)
    serial_gpu.clear()
    found = torch.autograd.grad(out.double(), (x, w, a), cotangent)
    for name, one, other in zip("xwa", found, torch.autograd.grad(exact, (exact_x, exact_w, exact_a), cotangent)):
        assert one.dtype == dtype and torch.isfinite(one).all(), name
        close(one, other, dtype)
    assert {"rgms_tiles", "grouped_tiles"} & set(serial_gpu) and "grouped_product" not in serial_gpu


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "dtype, widths, ordered",
    [(torch.float16, (33, 5), False), (torch.float32, (6, 13), True)],
    ids=lambda x: TYPES.get(x),
)
def test_grouped_products_of_any_widths_in_fragments(dtype, widths, ordered, serial_gpu, matmul_precision):
    torch.manual_seed(0)
    lengths = torch.tensor([0, 3, 40, 16, 0, 1])  # none, a part of a tile, several panels, a whole tile
    a, b = torch.randn(60, widths[0]).to(dtype).requires_grad_(), torch.randn(6, *widths).to(dtype)
    b[0], b[4] = torch.nan, torch.inf  # of groups without rows
    b.requires_grad_()
    group = torch.repeat_interleave(torch.arange(6), lengths)
    group = group if ordered else group[torch.randperm(60)]
    out = gsb.segment_mm(a, b, lengths) if ordered else gsb.gather_mm(a, b, group)
    exact_a, exact_b = (t.detach().double().requires_grad_() for t in (a, b))
    exact = torch.einsum("nf,nfk->nk", exact_a, exact_b[group])
    close(out, exact, dtype)
    assert set(serial_gpu) == {"grouped_tiles"}
    cotangent = torch.randn(exact.shape, dtype=torch.float64)
    expected = torch.autograd.grad(exact, (exact_a, exact_b), cotangent)
    for one, other in zip(torch.autograd.grad(out.double(), (a, b), cotangent), expected):
        close(one, other, dtype)
    assert "grouped_product" not in serial_gpu
