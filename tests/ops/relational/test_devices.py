"""Products by relation on a GPU without one, in fragments and in full precision, against the CPU's kernels."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_rgms_and_its_gradients(blocks, reduce, request):
    def run():
        generator = torch.Generator().manual_seed(1)
        source, destination, relation = (torch.randint(0, n, (60,), generator=generator) for n in (8, 6, 5))
        rel = gsb.RelGraph.from_triples(source, destination, relation, (7, 8), 6)  # a relation and a row without edges
        shapes = [(8, 10), (6, 10, 4) if blocks == 1 else (6, 2, 5, 2), (60,)]
        operands = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]
        out = gsb.rgms(rel, operands[0], operands[1], operands[2], reduce)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), operands)]

    expected = run()
    launched = request.getfixturevalue("serial_gpu")
    found = run()
    assert {"grouped_product", "grouped_sum", "aggregate", "edge_map"} <= set(launched)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32], ids=lambda t: str(t).removeprefix("torch.")
)
def test_products_in_fragments(dtype, serial_gpu, matmul_precision):
    """What the instruction of the Tensor Cores computes, loaded and stored lane by lane as it wants it."""
    torch.manual_seed(0)
    lengths = torch.tensor([0, 3, 40, 16, 0, 1])  # none, a part of a tile, several panels, a whole tile
    a, b = torch.randn(60, 32).to(dtype).requires_grad_(), torch.randn(6, 32, 24).to(dtype).requires_grad_()
    index = torch.repeat_interleave(torch.arange(6), lengths)
    order = torch.randperm(60)
    for out, of in ((gsb.segment_mm(a, b, lengths), index), (gsb.gather_mm(a, b, index[order]), index[order])):
        expected = torch.einsum("nf,nfk->nk", a.double(), b.double()[of])
        torch.testing.assert_close(out.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
    assert set(serial_gpu) == {"grouped_tiles"}
    grads = torch.autograd.grad(gsb.segment_mm(a, b, lengths).float().sum(), (a, b))
    torch.testing.assert_close(grads[0].double(), b.double()[index].sum(2), rtol=2 * torch.finfo(dtype).eps, atol=1e-4)


def test_full_precision_stays_full_precision(serial_gpu, matmul_precision):
    torch.set_float32_matmul_precision("highest")
    gsb.segment_mm(torch.ones(4, 32), torch.ones(1, 32, 8), torch.tensor([4]))
    assert serial_gpu == ["grouped_product"]


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "dtype, reduce, blocks",
    [
        (torch.float16, "mean", 1),
        (torch.bfloat16, "mean", 3),
        (torch.float32, "sum", 1),
    ],
    ids=lambda t: str(t).removeprefix("torch."),
)
def test_rgms_in_fragments(dtype, reduce, blocks, serial_gpu, matmul_precision):
    """Sums of more pairs than a panel holds, of one, and of none, multiplied where they are gathered, and added up by
    rows; by matrices with blocks on their diagonals too."""
    generator = torch.Generator().manual_seed(3)
    relation = torch.cat([torch.zeros(150), torch.full((1,), 2.0), torch.full((60,), 3.0)]).long()
    source = torch.randperm(300, generator=generator)[:211]
    destination = torch.cat(
        [torch.arange(150) % 75, torch.tensor([80]), torch.randint(0, 90, (60,), generator=generator)]
    )
    rel = gsb.RelGraph.from_triples(source, destination, relation, (90, 300), 4)
    x, w = torch.randn(300, blocks * 16, generator=generator), torch.randn(4, blocks, 16, 24, generator=generator)
    x, w = x.to(dtype).requires_grad_(), w.to(dtype).requires_grad_()
    out = gsb.rgms(rel, x, w, reduce=reduce)
    assert "rgms_tiles" in serial_gpu and "grouped_tiles" not in serial_gpu
    exact_x, exact_w = (t.detach().double().requires_grad_() for t in (x, w))
    terms = torch.einsum("edf,edfk->edk", exact_x[source].unflatten(1, (blocks, 16)), exact_w[relation]).flatten(1)
    if reduce == "mean":
        key = relation * 90 + destination
        terms = terms / torch.bincount(key)[key][:, None]
    exact = torch.zeros(90, blocks * 24, dtype=torch.float64).index_add(0, destination, terms)
    bound = 16 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), exact, rtol=bound, atol=bound)
    for a, b in zip(
        torch.autograd.grad(out.double().sum(), (x, w)), torch.autograd.grad(exact.sum(), (exact_x, exact_w))
    ):
        torch.testing.assert_close(a.double(), b, rtol=bound, atol=bound * float(b.abs().max()))
