"""Convolutions against a dictionary of coordinates and dense ones of PyTorch, in float64, with all gradients."""

from __future__ import annotations

import pytest
import torch

from tests.nn.dense import box_of, conv, densified, sampled

from . import oracle
from .oracle import random_sites, same_gradients, sites_in

KERNELS = [
    # kernel_size, stride, dilation, tensor stride
    (3, 1, 1, 1),
    (3, 2, 1, 1),
    (2, 2, 1, 1),
    (4, 2, 1, 2),
    (5, 1, 2, 1),
    (3, 3, 2, 4),
    (1, 2, 1, 1),
    ((3, 2, 1), (1, 2, 1), (2, 1, 3), 1),
    ((1, 4, 3), (2, 1, 3), 1, 2),
]
DIMS = [pytest.param(dim, marks=pytest.mark.exhaustive if dim in (1, 4) else ()) for dim in (1, 2, 3, 4)]


def tensor(ME, dim: int, stride: int = 1, count: int = 40, width: int = 3, **options):
    rows = random_sites(count, dim, stride=stride)
    features = torch.randn(len(rows), width, dtype=torch.float64, requires_grad=True)
    return ME.SparseTensor(features, rows, tensor_stride=stride, **options)


def per_axis(value, dim: int) -> list[int]:
    return list((value * 2)[:dim]) if isinstance(value, tuple) else [value] * dim


def wanted(layer, x, y, offsets, transposed: bool = False):
    kernel = layer.kernel.unsqueeze(0) if layer.kernel.dim() == 2 else layer.kernel
    found = oracle.convolved(x.F, kernel, oracle.pairs(x.C, y.C, offsets, transposed), len(y))
    return found if layer.bias is None else found + layer.bias


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("kernel, stride, dilation, grid", KERNELS)
def test_convolution(ME, dim, kernel, stride, dilation, grid):
    size, steps, apart = (per_axis(value, dim) for value in (kernel, stride, dilation))
    x = tensor(ME, dim, grid)
    layer = ME.MinkowskiConvolution(3, 5, size, steps, apart, bias=True, dimension=dim).double()
    y = layer(x)
    assert y.tensor_stride == [grid * s for s in steps]
    assert sites_in(y.C) == oracle.strided(x.C, y.tensor_stride)
    if set(steps) == {1}:
        assert y.coordinate_map_key == x.coordinate_map_key and torch.equal(y.C, x.C)
    offsets = oracle.cube(size, apart, x.tensor_stride)
    same_gradients(y.F, wanted(layer, x, y, offsets), [x.F, *layer.parameters()])


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("kernel, stride, dilation, grid", [case for case in KERNELS if case[3] == 1])
def test_transposed_convolution_returns_to_known_sites(ME, dim, kernel, stride, dilation, grid):
    size, steps, apart = (per_axis(value, dim) for value in (kernel, stride, dilation))
    x = tensor(ME, dim)
    down = ME.MinkowskiConvolution(3, 3, 3, steps, dimension=dim).double()(x)
    layer = ME.MinkowskiConvolutionTranspose(3, 2, size, steps, apart, bias=True, dimension=dim).double()
    y = layer(down)
    assert y.coordinate_map_key == x.coordinate_map_key and torch.equal(y.C, x.C)
    offsets = oracle.cube(size, apart, y.tensor_stride)
    same_gradients(y.F, wanted(layer, down, y, offsets, True), [x.F, *layer.parameters()])


@pytest.mark.parametrize("generative", [True, False])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(
    "kernel, stride, dilation", [(2, 2, 1), (3, 2, 1), (3, 1, 2), (4, 2, 1), ((3, 2, 1), (1, 2, 2), 1)]
)
def test_transposed_convolution_generates_sites(ME, generative, dim, kernel, stride, dilation):
    size, steps, apart = (per_axis(value, dim) for value in (kernel, stride, dilation))
    x = tensor(ME, dim, 4, count=12)
    kind = ME.MinkowskiGenerativeConvolutionTranspose if generative else ME.MinkowskiConvolutionTranspose
    if set(steps) == {1} and not generative:
        return  # its sites are known
    layer = kind(3, 2, size, steps, apart, bias=True, dimension=dim).double()
    y = layer(x)
    offsets = oracle.cube(size, apart, y.tensor_stride)
    reached = {oracle.moved(site, offset) for site in sites_in(x.C) for offset in offsets}
    assert sites_in(y.C) == reached and y.tensor_stride == [4 // s for s in steps]
    same_gradients(y.F, wanted(layer, x, y, offsets, True), [x.F, *layer.parameters()])
    again = layer(x)
    assert (again.coordinate_map_key == y.coordinate_map_key) is not generative


@pytest.mark.parametrize("kernel, stride", [(3, 1), (2, 1), (4, 2), (3, 2)])
def test_expanded_coordinates(ME, kernel, stride):
    x = tensor(ME, 2, count=8)
    layer = ME.MinkowskiConvolution(3, 2, kernel, stride, expand_coordinates=True, dimension=2).double()
    y = layer(x)
    offsets = oracle.cube([kernel] * 2, [1, 1], [1, 1])
    reached = {oracle.moved(site, offset) for site in sites_in(x.C) for offset in offsets}
    assert sites_in(y.C) == {site for site in reached if not any(c % stride for c in site[1:])}
    same_gradients(y.F, wanted(layer, x, y, offsets), [x.F, layer.kernel])


@pytest.mark.parametrize("given", ["key", "tensor", "integers"])
@pytest.mark.parametrize("transposed", [True, False])
def test_sites_of_the_result_are_given(ME, given, transposed):
    x = tensor(ME, 2, 2)
    finer = ME.SparseTensor(torch.zeros(30, 1), random_sites(60, 2)[:30], coordinate_manager=x.coordinate_manager)
    at = finer if transposed else ME.MinkowskiMaxPooling(2, 2, dimension=2)(x)
    kind = ME.MinkowskiConvolutionTranspose if transposed else ME.MinkowskiConvolution
    layer = kind(3, 2, 3, 2, dimension=2).double()
    y = layer(x, {"key": at.coordinate_map_key, "tensor": at, "integers": at.C}[given])
    assert torch.equal(y.C, at.C) and y.tensor_stride == at.tensor_stride
    offsets = oracle.cube([3, 3], [1, 1], (y if transposed else x).tensor_stride)
    same_gradients(y.F, wanted(layer, x, y, offsets, transposed), [x.F, layer.kernel])


def test_a_dense_convolution_has_the_axes_of_the_kernel_in_reverse(ME):
    x = tensor(ME, 3)
    layer = ME.MinkowskiConvolution(3, 4, (3, 5, 1), dimension=3).double()
    y = layer(x)
    low, sizes = box_of(x.C, 3)
    pad = [1, 2, 0]
    dense = densified(x.F, x.C, 2, [c - p for c, p in zip(low, pad)], [n + 2 * p for n, p in zip(sizes, pad)])
    weight = layer.kernel.unflatten(0, (1, 5, 3)).permute(4, 3, 2, 1, 0)
    same_gradients(y.F, sampled(conv(dense, weight, [1] * 3, [1] * 3, 1), y.C, low), [x.F, layer.kernel])


@pytest.mark.parametrize("kernel, stride, dilation", [(3, 1, 1), (2, 2, 1), ((3, 1), (1, 2), 2)])
def test_channelwise_convolution(ME, kernel, stride, dilation):
    size, steps, apart = (per_axis(value, 2) for value in (kernel, stride, dilation))
    x = tensor(ME, 2)
    layer = ME.MinkowskiChannelwiseConvolution(3, size, steps, apart, bias=True, dimension=2).double()
    y = layer(x)
    assert layer.kernel.shape == (size[0] * size[1], 3)
    found = oracle.convolved(
        x.F, torch.diag_embed(layer.kernel), oracle.pairs(x.C, y.C, oracle.cube(size, apart, [1, 1])), len(y)
    )
    same_gradients(y.F, found + layer.bias, [x.F, *layer.parameters()])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("region", ["cross", "custom"])
def test_regions(ME, region, stride, transposed):
    x = tensor(ME, 3, 2)
    given = torch.tensor([[0, 0, 0], [1, -2, 0], [0, 0, 3], [-1, 0, 0]])
    kernel = ME.KernelGenerator(
        (3, 5, 1),
        stride,
        2,
        region_type=ME.RegionType.HYPER_CROSS if region == "cross" else ME.RegionType.CUSTOM,
        region_offsets=given if region == "custom" else None,
        dimension=3,
    )
    down = ME.MinkowskiConvolution(3, 3, 3, stride, dimension=3).double()(x) if transposed else x
    kind = ME.MinkowskiConvolutionTranspose if transposed else ME.MinkowskiConvolution
    layer = kind(3, 2, kernel_generator=kernel, dimension=3).double()
    y = layer(down)
    offsets = oracle.cross((3, 5, 1), [2] * 3, [2] * 3)
    if region == "custom":
        offsets = [tuple(4 * c for c in offset) for offset in given.tolist()]
    assert kernel.kernel_volume == len(offsets) == len(layer.kernel)
    same_gradients(y.F, wanted(layer, down, y, offsets, transposed), [x.F, layer.kernel])
    assert sites_in(y.C) == (sites_in(x.C) if transposed else oracle.strided(x.C, [2 * stride] * 3))


def test_a_kernel_of_one_cell_is_a_matrix(ME):
    x = tensor(ME, 3)
    layer = ME.MinkowskiConvolution(3, 4, 1, bias=True, dimension=3).double()
    assert layer.kernel.shape == (3, 4) and layer.bias.shape == (1, 4)
    y = layer(x)
    same_gradients(y.F, x.F @ layer.kernel + layer.bias, [x.F, *layer.parameters()])
    assert ME.MinkowskiConvolution(3, 4, 1, 2, dimension=3).kernel.shape == (1, 3, 4)


@pytest.mark.parametrize("count", [0, 1])
def test_few_sites(ME, count):
    x = ME.SparseTensor(torch.ones(count, 3), torch.zeros(count, 4).int())
    layers = torch.nn.Sequential(
        ME.MinkowskiConvolution(3, 4, 3, dimension=3),
        ME.MinkowskiConvolution(4, 4, 2, 2, dimension=3),
        ME.MinkowskiConvolutionTranspose(4, 2, 2, 2, dimension=3),
        ME.MinkowskiMaxPooling(2, 2, dimension=3),
    )
    y = layers(x)
    assert y.shape == (count, 2) and y.C.shape == (count, 4)
    y.F.sum().backward()


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda ME: ME.MinkowskiConvolution(3, 4, 3), "dimension must be given"),
        (lambda ME: ME.MinkowskiConvolution(3, 4, (3, 3), dimension=3), "one for each of 3 axes"),
        (lambda ME: ME.MinkowskiConvolution(3, 4, 0, dimension=3), "kernel_size must be positive"),
        (lambda ME: ME.KernelGenerator(2, region_type=ME.RegionType.HYPER_CROSS, dimension=3), "must be odd"),
        (lambda ME: ME.KernelGenerator(3, region_type=ME.RegionType.CUSTOM, dimension=3), r"shape \(K, 3\)"),
        (lambda ME: ME.KernelGenerator(3, axis_types=[0, 1], dimension=2), "axis_types must be None"),
        (lambda ME: ME.MinkowskiConvolution(3, 4, 3, dimension=2)(tensor(ME, 3)), "for 2 axes"),
        (lambda ME: ME.MinkowskiConvolution(3, 4, 3, dimension=2)(torch.ones(3, 3)), "takes a MinkowskiEngine"),
        (lambda ME: ME.MinkowskiConvolutionTranspose(3, 4, 3, 2, dimension=2)(tensor(ME, 2)), "no finer grid"),
        (lambda ME: ME.MinkowskiConvolution(5, 4, 3, dimension=2).double()(tensor(ME, 2)), "features"),
    ],
)
def test_errors(ME, make, told):
    with pytest.raises((ValueError, TypeError), match=told):
        make(ME)
