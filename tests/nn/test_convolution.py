"""Sparse layers against dense convolutions of PyTorch, values and all gradients."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnn_sparse_backend import nn

from .dense import box_of, conv, conv_transpose, densified, elsewhere, in_dense_layout, sampled

WIDTH = 4
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@st.composite
def layers(draw, dtypes=(torch.float64,), dims=(1, 2, 3, 4, 5)):
    """Arguments of a layer, and those of a tensor for it."""
    dim = draw(st.sampled_from(dims))
    axes = lambda most: st.lists(st.integers(1, most), min_size=dim, max_size=dim).map(tuple)
    most = {1: 5, 2: 4, 3: 3, 4: 3, 5: 2}[dim]
    offsets = st.lists(st.tuples(*[st.integers(-2, 3)] * dim), min_size=1, max_size=5, unique=True)
    layer = {
        "kernel_size": draw(axes(most) | axes(most).map(nn.Cross) | offsets.map(nn.Offsets)),
        "stride": draw(axes(3)),
        "dilation": draw(axes(2)),
        "groups": draw(st.sampled_from((1, 2, WIDTH))),
        "bias": draw(st.booleans()),
        "dim": dim,
    }
    bounded = draw(st.booleans())
    low, side = 0 if bounded else draw(st.integers(-5, 3)), {1: 12, 2: 6, 3: 4, 4: 3, 5: 3}[dim]
    cell = st.tuples(st.integers(0, 1), *[st.integers(low, low + side - 1)] * dim)
    sites = draw(st.lists(cell, unique=True, max_size=12))  # in any order, at borders, none, or all of one batch
    coordinates = torch.tensor(sites, dtype=draw(st.sampled_from((torch.int32, torch.int64)))).view(-1, dim + 1)
    tensor = {"batch_size": 3, "spatial_shape": (side,) * dim if bounded else None, "stride": 6}
    return layer, coordinates, tensor, draw(st.sampled_from(dtypes)), draw(st.integers(0, 2**16))


def box_weight(layer) -> torch.Tensor:
    """The weight of all offsets of the box around those of the layer, in float64."""
    window, weight = layer.window, layer.weight.double()
    if window.cells is None:
        return weight
    strides = [math.prod(window.kernel[axis + 1 :]) for axis in range(len(window.kernel))]
    places = [sum(i * s for i, s in zip(cell, strides)) for cell in window.cells]
    return weight.new_zeros(math.prod(window.kernel), *weight.shape[1:]).index_copy(0, torch.tensor(places), weight)


def random_features(count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(count, WIDTH, dtype=dtype).requires_grad_()


def same(found, wanted, dtype) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found.double(), wanted.double(), rtol=tolerance, atol=tolerance * 8)


def same_gradients(found, wanted, operands, dtype) -> None:
    """A random cotangent for both, and the gradients of all operands."""
    cotangent = torch.randn_like(wanted)
    for ours, theirs in zip(
        torch.autograd.grad(found, operands, cotangent.to(found.dtype)),
        torch.autograd.grad(wanted, operands, cotangent, materialize_grads=True),
        strict=True,
    ):
        same(ours, theirs, dtype)


def dense_result(x: nn.SparseTensor, layer, sites: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """(what the dense convolution has at these sites, its result, where that begins), without the bias."""
    window = layer.window
    low, sizes = box_of(x.coordinates, x.dim)
    # the window of the first output ends where the grid begins or before, and that of the last one begins behind it
    first = [-(-(lo - r + b) // s) - 1 for lo, r, b, s in zip(low, window.reach, window.before, window.stride)]
    begin = [o * s - b for o, s, b in zip(first, window.stride, window.before)]
    total = [lo + n - o + r + s for lo, n, o, r, s in zip(low, sizes, begin, window.reach, window.stride)]
    dense = densified(x.features.double(), x.coordinates, x.batch_size, begin, total)
    weight = in_dense_layout(box_weight(layer), window.kernel, layer.groups)
    out = conv(dense, weight, window.stride, window.dilation, layer.groups)
    return sampled(out, sites, first), out, first


def transposed_result(x: nn.SparseTensor, layer, sites: torch.Tensor):
    """The same of a transposed convolution."""
    window = layer.window
    low, sizes = box_of(x.coordinates, x.dim)
    dense = densified(x.features.double(), x.coordinates, x.batch_size, low, sizes)
    weight = in_dense_layout(box_weight(layer), window.kernel, layer.groups, transposed=True)
    out = conv_transpose(dense, weight, window.stride, window.dilation, layer.groups)
    first = [lo * s - b for lo, s, b in zip(low, window.stride, window.before)]
    return sampled(out, sites, first), out, first


def check(x: nn.SparseTensor, y: nn.SparseTensor, layer, dense, dtype, complete: bool) -> None:
    """Values and gradients at the sites of y, and where it is complete, nothing at any other site."""
    wanted, grid, first = dense(x, layer, y.coordinates)
    if complete:
        assert not elsewhere(grid, y.coordinates, first, y.spatial_shape).abs().max() > 0
    bias = () if layer.bias is None else (layer.bias,)
    if bias:
        wanted = wanted + layer.bias.double()
    assert y.features.dtype == dtype and y.batch_size == x.batch_size
    same(y.features, wanted, dtype)
    same_gradients(y.features, wanted, (x.features, layer.weight, *bias), dtype)


def run_sparse_conv(case, outputs: str) -> None:
    layer, coordinates, tensor, dtype, seed = case
    x = nn.SparseTensor(random_features(len(coordinates), dtype, seed), coordinates, **tensor)
    conv = nn.SparseConv(WIDTH, WIDTH, outputs=outputs, **layer).to(dtype)
    check(x, conv(x), conv, dense_result, dtype, complete=outputs == "reached")


def run_submanifold(case) -> None:
    layer, coordinates, tensor, dtype, seed = case
    del layer["stride"]
    x = nn.SparseTensor(random_features(len(coordinates), dtype, seed), coordinates, **tensor)
    conv = nn.SubMConv(WIDTH, WIDTH, **layer).to(dtype)
    y = conv(x)
    assert y.coordinates is x.coordinates
    check(x, y, conv, dense_result, dtype, complete=False)


def run_transposed(case) -> None:
    layer, coordinates, tensor, dtype, seed = case
    x = nn.SparseTensor(random_features(len(coordinates), dtype, seed), coordinates, **tensor)
    generative = nn.SparseConvTranspose(WIDTH, WIDTH, generative=True, **layer).to(dtype)
    y = generative(x)
    check(x, y, generative, transposed_result, dtype, complete=True)
    given_sites = nn.SparseConvTranspose(WIDTH, WIDTH, **layer).to(dtype)
    some = y.coordinates[torch.randperm(len(y))[: len(y) // 2 + 1]]
    check(x, given_sites(x, some), given_sites, transposed_result, dtype, complete=False)


def run_returning(case) -> None:
    """Down and up again, by a transposed layer of another kernel and by the inverse of the first layer."""
    layer, coordinates, tensor, dtype, seed = case
    x = nn.SparseTensor(random_features(len(coordinates), dtype, seed), coordinates, **tensor)
    down = nn.SparseConv(WIDTH, WIDTH, **layer).to(dtype)
    y = down(x)
    if not y.path:
        return
    y = nn.SparseTensor._of(y.features.detach().requires_grad_(), y.sites, y.path)
    up = nn.SparseConvTranspose(WIDTH, WIDTH, **{**layer, "kernel_size": 2}).to(dtype)
    z = up(y)
    assert z.coordinates is x.coordinates
    check(y, z, up, transposed_result, dtype, complete=False)
    inverse = nn.SparseInverseConv(
        WIDTH, WIDTH, **{name: layer[name] for name in ("kernel_size", "groups", "bias", "dim")}
    ).to(dtype)
    inverse.window = down.window  # for the dense one
    z = inverse(y)
    assert z.coordinates is x.coordinates
    check(y, z, inverse, transposed_result, dtype, complete=False)


RUNS = {
    "reached": lambda case: run_sparse_conv(case, "reached"),
    "occupied": lambda case: run_sparse_conv(case, "occupied"),
    "submanifold": run_submanifold,
    "transposed": run_transposed,
    "returning": run_returning,
}
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None}


@pytest.mark.parametrize("run", RUNS)
def test_equal_dense_convolutions(run):
    settings(max_examples=15, **QUIET)(given(layers(dims=(1, 2, 3)))(RUNS[run]))()


@pytest.mark.exhaustive
@pytest.mark.parametrize("run", RUNS)
def test_equal_dense_convolutions_of_all_types(run):
    settings(max_examples=250, **QUIET)(given(layers(tuple(TOLERANCE)))(RUNS[run]))()


@pytest.mark.parametrize("dim", (3, 5))
def test_one_site_in_a_corner(dim):
    for outputs in ("reached", "occupied"):
        layer = {"kernel_size": 3, "stride": 2, "dilation": 1, "groups": 1, "bias": True, "dim": dim}
        tensor = {"batch_size": 1, "spatial_shape": (5,) * dim, "stride": 2}
        for at in (0, 4):
            run_sparse_conv((layer, torch.tensor([[0, *[at] * dim]]), tensor, torch.float64, at), outputs)


def test_kernels_that_are_no_box():
    """Their offsets, those that a submanifold map mirrors, and what is refused."""
    cross = nn.SubMConv(2, 3, nn.Cross((3, 5)), dim=2)
    assert cross.weight.shape == (7, 2, 3) and cross.window.symmetric and "kernel_size=Cross((3, 5))" in repr(cross)
    offsets = nn.Offsets(torch.tensor([[0, 0], [0, 1], [5, -2]]))
    listed = nn.SparseConv(2, 3, offsets, 2, dim=2)
    assert listed.weight.shape[0] == 3 and not listed.window.symmetric
    x = nn.SparseTensor(torch.ones(1, 2), torch.tensor([[0, 7, 0]]))
    assert listed(x).coordinates.tolist() == [[0, 1, 1]]  # 2 * (1, 1) + (5, -2)
    assert nn.SparseInverseConv(3, 2, offsets, dim=2)(listed(x)).coordinates is x.coordinates
    even = nn.SparseConv(2, 3, 2, 1, 2, padding=1, outputs="occupied", dim=2)  # which mirrors itself without a middle
    assert even(x).features.shape == (1, 3)
    for arguments, error, words in (
        (([[0, 1], [0, 1]],), ValueError, r"got \(0, 1\) twice"),
        (([0, 1],), TypeError, r"got \(2,\)"),
        (([[0.5, 1]],), TypeError, "of torch.float32"),
    ):
        with pytest.raises(error, match=words):
            nn.Offsets(*arguments)
    with pytest.raises(ValueError, match="has 2 axes, but the layer 3"):
        nn.SubMConv(2, 3, offsets)
    with pytest.raises(ValueError, match="have no padding; got padding 1"):
        nn.SparseConv(2, 3, offsets, padding=1, dim=2)
    with pytest.raises(ValueError, match=r"got kernel_size \(3, 3\)"):
        nn.SparseInverseConv(3, 2, 3, dim=2)(listed(x))
    with pytest.raises(TypeError, match=r"stride must be an int, .* got Cross\(3\)"):
        nn.SparseMaxPool(nn.Cross(3), dim=2)
