"""Tensors, what is done with them outside of convolutions, and the names by which all of it is imported."""

from __future__ import annotations

import importlib
import pickle

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import torchsparse as ts
from gnn_sparse_backend.integrations.torchsparse import conventions
from gnn_sparse_backend.integrations.torchsparse.nn import functional as F
from gnn_sparse_backend.integrations.torchsparse.utils import tensor_cache
from gnn_sparse_backend.integrations.torchsparse.utils.collate import sparse_collate, sparse_collate_fn

COORDS = torch.tensor([[1, 0, 0, 0], [0, 3, 1, 2], [0, 0, 0, 0], [0, 2, 2, 2], [1, 1, 1, 1]]).int()


def tensor(channels: int = 4, coords=COORDS, **kwargs) -> ts.SparseTensor:
    return ts.SparseTensor(torch.randn(len(coords), channels).double().requires_grad_(), coords, **kwargs)


def test_names_of_published_code():
    names = {
        "torchsparse": "SparseTensor PointTensor cat backends backend nn tune __version__",
        "torchsparse.tensor": "SparseTensor PointTensor set_allow_negative_coordinates",
        "torchsparse.operators": "cat generative_add",
        "torchsparse.nn": "Conv3d BatchNorm GroupNorm InstanceNorm ReLU LeakyReLU SiLU GlobalAvgPool functional utils",
        "torchsparse.nn.functional": "conv3d relu sphash sphashquery spcount spvoxelize spdevoxelize conv_config",
        "torchsparse.nn.functional.devoxelize": "calc_ti_weights spdevoxelize",
        "torchsparse.nn.modules": "Conv3d",
        "torchsparse.nn.modules.conv": "Conv3d",
        "torchsparse.nn.utils": "fapply get_kernel_offsets",
        "torchsparse.nn.utils.kernel": "get_kernel_offsets",
        "torchsparse.utils": "make_ntuple make_tensor to_dense",
        "torchsparse.utils.quantize": "sparse_quantize",
        "torchsparse.utils.collate": "sparse_collate sparse_collate_fn",
        "torchsparse.utils.tensor_cache": "TensorCache TensorCacheMode",
        "torchsparse.backbones": "SparseResNet21D SparseResUNet42",
        "torchsparse.backbones.modules": "SparseConvBlock SparseConvTransposeBlock SparseResBlock",
    }
    with gsb.enabled("torchsparse"):
        for module, wanted in names.items():
            found = importlib.import_module(module)
            assert not [name for name in wanted.split() if not hasattr(found, name)], module
        there = importlib.import_module("torchsparse")
        assert there.SparseTensor is ts.SparseTensor and there.__version__ == "2.1.0"
        for public in ts.MODULES:
            importlib.import_module(f"torchsparse.{public}")


def test_arithmetic_keeps_sites_and_caches():
    x, y = tensor(), tensor(coords=COORDS.clone())
    for found, wanted in (
        (x + y, x.F + y.F),
        (x - y, x.F - y.F),
        (x * 2, x.F * 2),
        (1 - x, 1 - x.F),
        (2 * x, 2 * x.F),
        (1 + x / 4, 1 + x.F / 4),
    ):
        torch.testing.assert_close(found.F, wanted)
        assert found.C is x.C and found.s == x.s and found._caches is x._caches
    joined = ts.cat([x, y])
    torch.testing.assert_close(joined.F, torch.cat([x.F, y.F], 1))
    other = tensor(coords=COORDS.flip(0))
    with pytest.raises(ValueError, match=r"site 0 is \[1, 0, 0, 0\] in one and \[1, 1, 1, 1\].*generative_add"):
        x + other
    with pytest.raises(ValueError, match="cat wants tensors on the same sites"):
        ts.cat([x, tensor(coords=COORDS[:2])])
    with pytest.raises(TypeError, match="cat takes a torchsparse.SparseTensor of tensors, got Tensor"):
        ts.cat([x, x.F])


def test_sums_on_all_sites_of_both():
    x, y = tensor(), tensor(coords=torch.cat([COORDS[1:3], COORDS[:1] + 4]))
    found = ts.generative_add(y, x)
    wanted: dict = {}
    for each in (x, y):
        for row, feats in zip(each.C.tolist(), each.F):
            wanted[tuple(row)] = wanted.get(tuple(row), 0) + feats
    assert [tuple(row) for row in found.C.tolist()] == sorted(wanted) and found._caches is x._caches
    stacked = torch.stack([wanted[cell] for cell in sorted(wanted)])
    torch.testing.assert_close(found.F, stacked)
    cotangent = torch.randn_like(stacked)
    ours, theirs = (torch.autograd.grad(z, [x.F, y.F], cotangent) for z in (found.F, stacked))
    torch.testing.assert_close(ours, theirs)


def test_dense():
    x = tensor(spatial_range=(2, 4, 3, 3))
    dense = x.dense()
    assert dense.shape == (2, 4, 3, 3, 4)
    torch.testing.assert_close(dense[COORDS.long().unbind(1)], x.F)
    assert dense.detach().abs().sum() == x.F.detach().abs().sum()
    with pytest.raises(ValueError, match=r"coords\[1\] = \[0, 3, 1, 2\] is outside of the range \(2, 3, 3, 3\)"):
        ts.utils.to_dense(x.F, x.C, (2, 3, 3, 3))
    with pytest.raises(ValueError, match="wants a tensor with a spatial_range"):
        tensor().dense()
    conventions.follow("1.4")
    assert torch.equal(ts.utils.to_dense(x.F, COORDS[:, [1, 2, 3, 0]], (2, 4, 3, 3)), dense)


def test_conversions_are_in_place():
    x = tensor()
    coords = x.C
    assert x.to("cpu") is x and x.cpu() is x and x.C is coords
    assert x.half() is x and x.feats.dtype is torch.float16
    assert x.detach() is x and not x.F.requires_grad
    x.F, x.s = x.F.float(), 2
    assert x.stride == (2, 2, 2) and "stride (2, 2, 2)" in repr(x)
    x.cmaps, x.kmaps = {(1, 1, 1): coords}, {}
    assert x._caches.cmaps == {(1, 1, 1): coords}
    again = pickle.loads(pickle.dumps(x))
    assert torch.equal(again.C, x.C) and torch.equal(again.F, x.F)


def test_points():
    z = ts.PointTensor(torch.ones(3, 2), torch.rand(3, 4))
    z.idx_query[1] = "kept"
    both = z + z
    assert both.idx_query == {1: "kept"} and both.F.sum() == 12
    assert both.additional_features is z.additional_features and z.to("cpu").detach() is z


@pytest.mark.parametrize("version", ("2.1", "1.4"))
def test_batches(version):
    conventions.follow(version)
    samples = [{"x": ts.SparseTensor(np.ones((n, 2), np.float32), np.full((n, 3), n, np.int32)), "name": str(n),
                "label": np.array(n), "more": {"y": torch.tensor([n])}} for n in (1, 2)]  # fmt: skip
    found = sparse_collate_fn(samples)
    rows = [[0, 1, 1, 1], [1, 2, 2, 2], [1, 2, 2, 2]]
    assert found["x"].C.tolist() == (rows if version == "2.1" else [row[1:] + row[:1] for row in rows])
    assert found["x"].F.shape == (3, 2) and found["x"].C.dtype is torch.int32
    assert (
        found["name"] == ["1", "2"] and found["label"].tolist() == [1, 2] and found["more"]["y"].tolist() == [[1], [2]]
    )
    assert sparse_collate_fn([1, 2]) == [1, 2]
    with pytest.raises(ValueError, match="at least one"):
        sparse_collate([])
    with pytest.raises(ValueError, match=r"one stride, got \(1, 1, 1\) and \(2, 2, 2\)"):
        sparse_collate([tensor(), tensor(stride=2)])


def test_pools_and_norms_go_by_batch():
    x = tensor()
    parts = [x.F[COORDS[:, 0] == b] for b in (0, 1)]
    torch.testing.assert_close(ts.nn.GlobalAvgPool()(x), torch.stack([p.mean(0) for p in parts]))
    torch.testing.assert_close(ts.nn.GlobalMaxPool()(x), torch.stack([p.amax(0) for p in parts]))
    torch.testing.assert_close(F.global_avg_pool(x), ts.nn.GlobalAvgPool()(x))
    for ours, theirs in (
        (ts.nn.GroupNorm(2, 4), torch.nn.GroupNorm(2, 4)),
        (ts.nn.InstanceNorm(4, affine=True), torch.nn.InstanceNorm1d(4, affine=True)),
    ):
        ours, theirs = ours.double(), theirs.double()
        torch.nn.init.normal_(ours.weight)
        theirs.load_state_dict(ours.state_dict())
        found, wanted = ours(x), torch.zeros_like(x.F)
        for b, part in enumerate(parts):
            rows = (COORDS[:, 0] == b).nonzero().squeeze(1)
            wanted = wanted.index_copy(0, rows, theirs(part.t()[None])[0].t())
        torch.testing.assert_close(found.F, wanted)
        cotangent = torch.randn_like(wanted)
        for y, layer in ((found.F, ours), (wanted, theirs)):
            layer.gradients = torch.autograd.grad(y, [x.F, *layer.parameters()], cotangent, retain_graph=True)
        torch.testing.assert_close(ours.gradients, theirs.gradients)
    with pytest.raises(NotImplementedError, match="track_running_stats=True is not there"):
        ts.nn.InstanceNorm(4, track_running_stats=True)
    norm = ts.nn.BatchNorm(4).double()
    torch.testing.assert_close(norm(x).F, torch.nn.BatchNorm1d(4).double()(x.F))


def test_activations_are_those_of_pytorch():
    x = tensor().detach()
    for ours, theirs in (
        (ts.nn.ReLU(), torch.relu),
        (ts.nn.LeakyReLU(0.2), lambda y: torch.nn.functional.leaky_relu(y, 0.2)),
        (ts.nn.SiLU(), torch.nn.functional.silu),
        (lambda y: F.relu(y, inplace=False), torch.relu),
        (lambda y: F.leaky_relu(y, inplace=False), lambda y: torch.nn.functional.leaky_relu(y, 0.1)),
        (lambda y: F.silu(y, inplace=False), torch.nn.functional.silu),
    ):
        torch.testing.assert_close(ours(x).F, theirs(x.F))
    assert F.relu(x).F is x.F  # in place


def test_cropping():
    x = tensor()
    for crop in (lambda y: F.spcrop(y, (1, 1, 1), (3, 3, 3)), ts.nn.SparseCrop((1, 1, 1), (3, 3, 3))):
        assert crop(x).C.tolist() == [[0, 2, 2, 2], [1, 1, 1, 1]]
    torch.testing.assert_close(crop(x).F, x.F[3:])
    conventions.follow("1.4")
    x = tensor(coords=COORDS[:, [1, 2, 3, 0]].contiguous())
    assert F.spcrop(x, coords_max=(1, 9, 9)).C.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0]]


def test_a_global_cache():
    mode = tensor_cache.TensorCacheMode
    tensor_cache.set_tensor_cache_mode(mode.GLOBAL_TENSOR_CACHE)
    try:
        x, y = tensor(), tensor()
        assert x._caches is y._caches is tensor_cache.get_global_tensor_cache()
        tensor_cache.clear_global_tensor_cache()
        assert tensor()._caches is not x._caches
    finally:
        tensor_cache.set_tensor_cache_mode(mode.SEPARATE_TENSOR_CACHE)
        tensor_cache.clear_global_tensor_cache()
    assert tensor()._caches is not tensor()._caches
    with pytest.raises(TypeError, match="must be a TensorCacheMode, got 1"):
        tensor_cache.set_tensor_cache_mode(1)


def test_tune_runs_the_model_and_leaves_no_gradients():
    model, seen = ts.nn.Conv3d(4, 2, 3).double(), []
    model.register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled()))
    ts.tune(model, [{"input": tensor()}] * 3, n_samples=2)
    ts.tune(model, [tensor()], tune_with_bwd=True, save_dir="unused")
    assert seen == [False, False, True] and model.kernel.grad is None
