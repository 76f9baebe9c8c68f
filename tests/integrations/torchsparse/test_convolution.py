"""``Conv3d`` against a dictionary of coordinates in each mode of torchsparse, and against dense convolutions."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.integrations import torchsparse as ts
from gnn_sparse_backend.integrations.torchsparse import conventions
from gnn_sparse_backend.integrations.torchsparse.nn import functional as F

from .oracle import MODES, Kernel, summed

C_IN, C_OUT = 4, 8
SIDE = 5


@st.composite
def layers(draw):
    """A kernel, and cells of two batches in any order."""
    axes = lambda least, most: st.tuples(*[st.integers(least, most)] * 3)
    size = draw(axes(1, 3) | st.integers(2, 4).map(lambda k: (k,) * 3))
    stride = draw(axes(1, 3) | st.just((1, 1, 1)) | st.just(size))
    mode = draw(st.sampled_from(MODES))
    dilation = draw(st.sampled_from(((1, 1, 1), (1, 2, 1)))) if mode == MODES[0] else (1, 1, 1)
    cell = st.tuples(st.integers(0, 1), *[st.integers(0, SIDE - 1)] * 3)
    cells = draw(st.lists(cell, unique=True, min_size=1, max_size=14))
    return Kernel(size, stride, draw(axes(0, 1)), mode, dilation), cells


def follow(mode: str) -> None:
    conventions.follow("1.4" if mode == "1.4" else "2.1")
    F.set_kmap_mode("hashmap" if mode in MODES[1:3] else MODES[0])
    F.set_downsample_mode("minkowski" if mode == "minkowski" else "spconv")


def tensor(cells, stride=(1, 1, 1), width: int = C_IN, **kwargs) -> ts.SparseTensor:
    """A tensor at cells of its own grid, in the convention in force."""
    rows = torch.tensor(cells).view(-1, 4)
    coords = conventions.convention().coords(rows, stride)
    return ts.SparseTensor(torch.randn(len(cells), width).double().requires_grad_(), coords, stride, **kwargs)


def cells_of(x: ts.SparseTensor) -> list:
    return [tuple(row) for row in conventions.convention().rows(x.coords, x.stride).tolist()]


def kernel_of(conv: ts.nn.Conv3d) -> torch.Tensor:
    return conv.kernel.reshape(-1, *conv.kernel.shape[-2:])


def same_gradients(found, wanted, operands) -> None:
    cotangent = torch.randn_like(wanted)
    ours, theirs = (
        torch.autograd.grad(y, operands, cotangent, retain_graph=True, materialize_grads=True) for y in (found, wanted)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-11)


@pytest.mark.filterwarnings("ignore:Conv3d. dilation")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layers(), st.booleans())
def test_there_and_back(given_, bias):
    """A layer, and the transposed one back to where it came from, at stride 1 and from stride 2 on."""
    kernel, cells = given_
    follow(kernel.mode)
    x = tensor(cells, (2, 1, 2))
    settings_ = (kernel.size, kernel.stride, kernel.padding, kernel.dilation)
    there = ts.nn.Conv3d(C_IN, C_OUT, *settings_, bias=bias).double()
    back = ts.nn.Conv3d(C_OUT, C_IN, *settings_, transposed=True, bias=bias).double()
    kernel = dataclasses.replace(kernel, padding=there.padding)
    y = there(x)
    z = back(y)
    outputs = kernel.outputs(cells)
    assert cells_of(y) == outputs and y.stride == tuple(t * s for t, s in zip((2, 1, 2), kernel.stride))
    assert z.coords is x.coords and z.stride == x.stride
    pairs = kernel.pairs(cells, outputs)
    wanted_y = summed(pairs, x.feats, kernel_of(there), len(outputs)) + (there.bias if bias else 0)
    turned = [(k, o, i) for k, i, o in pairs]
    wanted_z = summed(turned, wanted_y, kernel_of(back), len(cells)) + (back.bias if bias else 0)
    torch.testing.assert_close(y.feats, wanted_y, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(z.feats, wanted_z, rtol=1e-12, atol=1e-12)
    same_gradients(z.feats, wanted_z, [x.feats, *there.parameters(), *back.parameters()])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layers(), st.booleans())
def test_generative_layers(given_, bounded):
    kernel, cells = given_
    follow("2.1")
    size, stride = kernel.size, kernel.stride
    x = tensor(cells, stride, spatial_range=(2, SIDE, SIDE, SIDE) if bounded else None)
    conv = ts.nn.Conv3d(C_IN, C_OUT, size, stride, bias=True, transposed=True, generative=True).double()
    y = conv(x)
    if {*size, *stride} == {1}:
        return  # a product, without a range of its own
    reached = {}
    for at, cell in enumerate(cells):
        for k, step in enumerate(kernel.offsets):
            fine = (cell[0], *(c * s + j - (n - 1) // 2 for c, s, j, n in zip(cell[1:], stride, step, size)))
            if not bounded or all(0 <= f < SIDE * s for f, s in zip(fine[1:], stride)):
                reached.setdefault(fine, []).append((len(kernel.offsets) - 1 - k, at))
    outputs = sorted(reached)
    assert cells_of(y) == outputs and y.stride == (1, 1, 1)
    pairs = [(k, at, row) for row, cell in enumerate(outputs) for k, at in reached[cell]]
    wanted = summed(pairs, x.feats, kernel_of(conv), len(outputs)) + conv.bias
    torch.testing.assert_close(y.feats, wanted, rtol=1e-12, atol=1e-12)
    same_gradients(y.feats, wanted, [x.feats, *conv.parameters()])


@pytest.mark.parametrize(
    "size, stride, padding", [(3, 2, 1), (3, 2, 0), (2, 2, 0), ((1, 3, 1), (1, 2, 1), 0), (3, 1, 0)]
)
def test_strided_layers_are_dense_ones_within_their_range(size, stride, padding):
    """``dense()`` of a result is PyTorch's convolution of ``dense()`` of the input, and so are its gradients."""
    cells = [(b, *c) for b in range(2) for c in torch.cartesian_prod(*[torch.arange(SIDE)] * 3)[::7].tolist()]
    x = tensor(cells, spatial_range=(2, SIDE, SIDE, SIDE))
    conv = ts.nn.Conv3d(C_IN, C_OUT, size, stride, padding).double()
    y = conv(x)
    weight = kernel_of(conv)
    # an odd kernel has its first axis fastest
    odd = math.prod(conv.kernel_size) % 2 == 1
    weight = weight.unflatten(0, conv.kernel_size[::-1]).permute(4, 3, 2, 1, 0) if odd else None
    weight = kernel_of(conv).unflatten(0, conv.kernel_size).permute(4, 3, 0, 1, 2) if weight is None else weight
    dense = torch.nn.functional.conv3d(x.dense().movedim(-1, 1), weight, None, stride, conv.padding)
    assert y.spatial_range == (2, *dense.shape[2:])
    wanted = dense.movedim(1, -1)
    if stride == 1:  # at the sites alone
        at = x.coords.long().unbind(1)
        torch.testing.assert_close(y.feats, wanted[at])
        same_gradients(y.feats, wanted[at], [x.feats, conv.kernel])
    else:
        torch.testing.assert_close(y.dense(), wanted)
        same_gradients(y.dense(), wanted, [x.feats, conv.kernel])


def test_negative_coordinates():
    x = tensor([(0, -3, 1, 1), (0, 2, 1, 1)])
    conv = ts.nn.Conv3d(C_IN, C_OUT, 3, 2, 1).double()
    with pytest.raises(ValueError, match=r"coords\[0\] = \[0, -3, 1, 1\] is negative; .*set_allow_negative"):
        conv(x)
    ts.tensor.set_allow_negative_coordinates(True)
    kernel, cells = Kernel((3,) * 3, (2,) * 3, (1,) * 3, MODES[0]), cells_of(x)
    outputs = [(0, -1, 0, 0), (0, -1, 0, 1), (0, -1, 1, 0), (0, -1, 1, 1), (0, 1, 0, 0)]
    y = conv(x)
    assert set(cells_of(y)) >= set(outputs[:1])
    wanted = summed(kernel.pairs(cells, cells_of(y)), x.feats, kernel_of(conv), len(y.coords))
    torch.testing.assert_close(y.feats, wanted)


def test_maps_are_shared_and_layers_counted():
    reset_status()
    x = tensor([(0, i, j, 1) for i in range(4) for j in range(4)])
    stem = ts.nn.Conv3d(C_IN, C_IN, 3).double()
    down, up = (ts.nn.Conv3d(C_IN, C_IN, 2, 2, transposed=t).double() for t in (False, True))
    one = ts.nn.Conv3d(C_IN, 2, 1).double()
    y = down(stem(stem(x)))
    again = down(x)
    assert again.coords is y.coords
    z = one(up(y))
    assert z.coords is x.coords and z._caches is x._caches and z.cmaps.keys() == {(1, 1, 1), (2, 2, 2)}
    calls = gsb.status().to_dict()["calls"]["torchsparse"]
    assert {name: row["ours"] for name, row in calls.items()} == {"Conv3d": 4, "Conv3d transposed": 1}


def test_a_transposed_layer_goes_back_behind_the_layer_that_its_input_came_from():
    x = tensor([(0, i, j, 2) for i in range(5) for j in range(0, 5, 2)])
    back = ts.nn.Conv3d(C_OUT, C_IN, 3, 2, transposed=True).double()
    convs = [ts.nn.Conv3d(C_IN, C_OUT, 3, 2, padding).double() for padding in (1, 0)]
    results = [conv(x) for conv in convs]
    for conv, y in zip(convs, results):
        kernel = Kernel((3,) * 3, (2,) * 3, conv.padding, MODES[0])
        pairs = [(k, o, i) for k, i, o in kernel.pairs(cells_of(x), cells_of(y))]
        torch.testing.assert_close(back(y).feats, summed(pairs, y.feats, kernel_of(back), len(x.coords)))


def test_coordinates_that_are_written_to_are_seen():
    x = tensor([(0, 0, 0, 0), (0, 1, 0, 0)])
    conv = ts.nn.Conv3d(C_IN, C_OUT, 3).double()
    first = conv(x).feats
    x.coords[1, 1] = 4
    kernel = Kernel((3,) * 3, (1,) * 3, (0,) * 3, MODES[0])
    cells = cells_of(x)
    torch.testing.assert_close(conv(x).feats, summed(kernel.pairs(cells, cells), x.feats, kernel_of(conv), 2))
    assert not torch.allclose(conv(x).feats, first)


def test_weights_have_the_shapes_of_each_version():
    shapes = lambda: [tuple(ts.nn.Conv3d(2, 3, k, s).kernel.shape) for k, s in ((3, 1), (2, 2), (1, 1), (1, 2))]
    assert shapes() == [(27, 2, 3), (8, 2, 3), (2, 3), (1, 2, 3)]
    conventions.follow("1.4")
    assert shapes() == [(27, 2, 3), (8, 2, 3), (2, 3), (2, 3)]


def test_wrong_use_is_told():
    x = tensor([(0, 0, 0, 0), (0, 1, 0, 0)])
    back = ts.nn.Conv3d(C_IN, C_OUT, 2, 2, transposed=True).double()
    with pytest.raises(ValueError, match="no finer one by"):
        back(x)
    x = tensor([(0, 0, 0, 0)], (2, 2, 2))
    with pytest.raises(ValueError, match=r"came from one of stride \(1, 1, 1\), but this one.*generative=True"):
        back(x)
    with pytest.raises(ValueError, match="give transposed=True"):
        ts.nn.Conv3d(2, 2, 2, 2, generative=True)
    with pytest.raises(TypeError, match=r"takes a torchsparse.SparseTensor of tensors, got Tensor"):
        back(x.feats)
    with pytest.warns(UserWarning, match="dilation 2 is computed here"):
        ts.nn.Conv3d(2, 2, 3, dilation=2)
    with pytest.raises(ValueError, match="are equal"):
        ts.nn.Conv3d(C_IN, 2, 3).double()(tensor([(0, 1, 2, 3)] * 2))
    with pytest.raises(ValueError, match=r"shape \(N, 4\), the batch and 3 axes, got \(1, 3\).*sparse_collate"):
        ts.nn.Conv3d(C_IN, 2, 3).double()(ts.SparseTensor(x.feats, x.coords[:, 1:]))
    with pytest.raises(NotImplementedError, match="ToBEVReduction is not there.*dense"):
        ts.nn.ToBEVReduction()
    with pytest.raises(NotImplementedError, match="build_kernel_map is not there.*kernel_map"):
        F.build_kernel_map(x.coords, 1)
    conventions.follow("1.4")
    with pytest.raises(ValueError, match=r"coords\[0\] = \[1, 0, 0, 0\] is not on a grid of stride \(2, 2, 2\)"):
        ts.nn.Conv3d(C_IN, 2, 3).double()(ts.SparseTensor(x.feats, torch.tensor([[1, 0, 0, 0]]), 2))


def test_configurations():
    config = F.conv_config.get_default_conv_config()
    assert config.dataflow is F.Dataflow.ImplicitGEMM and config.kmap_mode == "hashmap_on_the_fly"
    config.kmap_mode, config.downsample_mode = "hashmap", "minkowski"
    F.set_global_conv_config(config)
    x = tensor([(0, 4, 4, 4)])
    assert cells_of(ts.nn.Conv3d(C_IN, C_OUT, 3, 2).double()(x)) == [(0, 2, 2, 2)]
    own = config.copy()
    own.kmap_mode = "hashmap_on_the_fly"
    # the window would reach beyond the last site
    assert cells_of(ts.nn.Conv3d(C_IN, C_OUT, 3, 2, config=own).double()(x)) == [(0, 1, 1, 1)]
    own.kmap_mode = "grid"
    with pytest.raises(ValueError, match="kmap_mode must be one of .*, got 'grid'"):
        ts.nn.Conv3d(C_IN, C_OUT, 3, 2, config=own).double()(x)
