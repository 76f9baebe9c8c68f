"""Pooling against loops over windows, and layers of PyTorch over the features."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from gnn_sparse_backend import nn

from .test_convolution import TOLERANCE

FOLD = {
    "Max": lambda rows: rows.amax(0),
    "Avg": lambda rows: rows.mean(0),
    "Sum": lambda rows: rows.sum(0),
}


def some(dtype=torch.float64, count: int = 30, dim: int = 2) -> nn.SparseTensor:
    torch.manual_seed(dim)
    sites = torch.cat([torch.randint(0, 2, (count, 1)), torch.randint(-4, 4, (count, dim))], 1).unique(dim=0)
    sites = sites[torch.randperm(len(sites))]
    return nn.SparseTensor(torch.randn(len(sites), 3, dtype=dtype).requires_grad_(), sites, batch_size=3)


def by_hand(x: nn.SparseTensor, y: nn.SparseTensor, window, fold) -> torch.Tensor:
    numbers = {tuple(row): number for number, row in enumerate(x.coordinates.tolist())}
    results = []
    for batch, *at in y.coordinates.tolist():
        cells = (
            (
                batch,
                *(
                    o * s - b + d * k
                    for o, s, b, d, k in zip(at, window.stride, window.before, window.dilation, offset)
                ),
            )
            for offset in itertools.product(*map(range, window.kernel))
        )
        rows = [numbers[cell] for cell in cells if cell in numbers]
        results.append(fold(x.features[rows].double()))
    return torch.stack(results)


@pytest.mark.parametrize("kind", FOLD)
@pytest.mark.parametrize("dtype", (torch.float64, torch.bfloat16))
def test_windows(kind, dtype):
    x = some(dtype)
    for arguments in ((2,), (3, 2), ((3, 1), (1, 2), 2)):
        pool = getattr(nn, f"Sparse{kind}Pool")(*arguments, dim=2)
        y = pool(x)
        wanted = by_hand(x, y, pool.window, FOLD[kind])
        close = {"rtol": TOLERANCE[dtype], "atol": 8 * TOLERANCE[dtype]}
        torch.testing.assert_close(y.features.double(), wanted, **close)
        cotangent = torch.randn_like(wanted)
        ours, theirs = (torch.autograd.grad(out, x.features, cotangent.to(out.dtype)) for out in (y.features, wanted))
        torch.testing.assert_close(ours, theirs, **close)
    assert nn.SparseInverseConv(3, 3, (3, 1), dim=2).to(dtype)(y).coordinates is x.coordinates


@pytest.mark.parametrize("kind", FOLD)
def test_whole_batches(kind):
    x = some()
    pool = getattr(nn, f"Global{kind}Pool")()
    found = pool(x)
    assert found.shape == (3, 3) and not found[2].any()
    for batch in range(2):
        torch.testing.assert_close(found[batch], FOLD[kind](x.features[x.coordinates[:, 0] == batch]))
    window = getattr(nn, f"Sparse{kind}Pool")(2, dim=2)
    for function in (lambda f: pool(x.with_features(f)), lambda f: window(x.with_features(f)).features):
        assert gradcheck(function, x.features) and gradgradcheck(function, x.features, fast_mode=True)


def test_way_back_from_a_pooling():
    x = some()
    for arguments in ((2,), (3, 2), (nn.Cross(3), 2)):
        pool, back = nn.SparseSumPool(*arguments, dim=2), nn.SparsePoolTranspose(*arguments, dim=2)
        pooled = pool(x)
        y = back(pooled)
        assert y.coordinates is x.coordinates
        # a sum is a matrix, and the way back its transpose
        matrix = torch.autograd.functional.jacobian(lambda f, p=pool: p(x.with_features(f)).features[:, 0], x.features)
        wanted = matrix[:, :, 0].t() @ pooled.features
        torch.testing.assert_close(y.features, wanted)
        cotangent = torch.randn_like(wanted)
        ours, theirs = (torch.autograd.grad(z, x.features, cotangent, retain_graph=True) for z in (y.features, wanted))
        torch.testing.assert_close(ours, theirs)
        assert torch.equal(back(pooled, x).features, y.features)
        assert back(pooled, x.coordinates[:3]).coordinates.tolist() == x.coordinates[:3].tolist()
    generated = nn.SparsePoolTranspose(2, dim=2, generative=True)(nn.SparseMaxPool(2, dim=2)(x))
    assert len(generated) == 4 * len(nn.SparseMaxPool(2, dim=2)(x))


def test_layers_over_features():
    x = some(torch.float32)
    for name, arguments in (
        ("BatchNorm", (3,)),
        ("LayerNorm", (3,)),
        ("GroupNorm", (1, 3)),
        ("Linear", (3, 5)),
        ("Dropout", (0.5,)),
        ("Identity", ()),
        ("PReLU", ()),
        *((name, ()) for name in ("ReLU", "LeakyReLU", "ELU", "GELU", "SiLU", "Sigmoid", "Tanh")),
    ):
        layer = getattr(nn, name)(*arguments)
        torch_layer = getattr(torch.nn, "BatchNorm1d" if name == "BatchNorm" else name)(*arguments)
        torch_layer.load_state_dict(layer.state_dict())
        torch.manual_seed(0)
        found = layer(x)
        torch.manual_seed(0)
        assert torch.equal(found.features, torch_layer(x.features)) and found.coordinates is x.coordinates
        with pytest.raises(TypeError, match=f"{name} takes a gnn_sparse_backend.nn.SparseTensor, got Tensor"):
            layer(x.features)
