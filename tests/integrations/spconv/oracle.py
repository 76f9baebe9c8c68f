"""spconv's own results as sets of sites, and dense convolutions of PyTorch for gradients, which spconv does not have on
the CPU.
"""

from __future__ import annotations

import spconv.pytorch as spconv
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from tests.nn.dense import conv, conv_transpose, densified, sampled

WIDTH = 4
SIDES = {1: 16, 2: 7, 3: 5, 4: 5}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random_tensor(dim: int, dtype=torch.float32, count: int = 20, width: int = WIDTH) -> spconv.SparseConvTensor:
    """Sites of two batches in no order, whose features want gradients."""
    shape = [SIDES[dim] - axis % 2 for axis in range(dim)]
    cells = torch.randperm(2 * torch.Size(shape).numel())[:count]
    indices = torch.stack(torch.unravel_index(cells, (2, *shape)), 1).int()
    features = torch.randn(len(cells), width, dtype=dtype).requires_grad_()
    return spconv.SparseConvTensor(features, indices, shape, 2)


def layer(name: str, dim: int, *args, dtype=torch.float32, **kwargs):
    """``SubMConv`` with 2 axes is ``SubMConv2d``."""
    return getattr(spconv, f"{name}{dim}d")(*args, **kwargs).to(dtype)


def in_order(x: spconv.SparseConvTensor) -> tuple[Tensor, Tensor]:
    """Indices in ascending order, with their features."""
    order = sorted(range(len(x.indices)), key=x.indices.tolist().__getitem__)
    return x.indices[order], x.features[order]


def same(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found.double(), wanted.double(), rtol=tolerance, atol=8 * tolerance)


def same_tensor(found: spconv.SparseConvTensor, wanted: spconv.SparseConvTensor) -> None:
    """The same sites with the same features, in any order."""
    for (name, ours), theirs in zip(zip(("indices", "features"), in_order(found)), in_order(wanted)):
        assert ours.dtype is theirs.dtype, name
        if name == "indices":
            assert torch.equal(ours, theirs)
        else:
            same(ours, theirs, ours.dtype)
    assert found.spatial_shape == wanted.spatial_shape and found.batch_size == wanted.batch_size


def dense_conv(features: Tensor, x, module, out) -> Tensor:
    """The features of ``out``, which ``module`` makes of ``x``, from ``features`` by a dense convolution."""
    pad = [d * (k // 2) for d, k in zip(module.dilation, module.kernel_size)] if module.subm else module.padding
    stride = [1] * module.ndim if module.subm else module.stride
    if module.transposed:
        made = conv_transpose(
            densified(features, x.indices, x.batch_size, [0] * module.ndim, x.spatial_shape),
            module.weight.movedim((-1, 0), (0, 1)),
            stride,
            module.dilation,
            1,
        )
        found = sampled(made, out.indices, [-p for p in pad])
    else:
        low, sizes = [-p for p in pad], [n + 2 * p for n, p in zip(x.spatial_shape, pad)]
        dense = densified(features, x.indices, x.batch_size, low, sizes)
        made = conv(dense, module.weight.movedim(-1, 1), stride, module.dilation, 1)
        found = sampled(made, out.indices, [0] * module.ndim)
    return found if module.bias is None else found + module.bias


def counts() -> dict[str, int]:
    """Calls of each operator that ran here; none fell back."""
    rows = gsb.status().to_dict()["calls"].get("spconv", {})
    assert not any(row["fallbacks"] for row in rows.values()), rows
    return {name: row["ours"] for name, row in rows.items()}
