"""Layers with MinkowskiEngine's attributes as native ones: outputs by a dictionary of sites, its offsets in order."""

from __future__ import annotations

import enum
import itertools
import math
import types

import pytest
import torch

from gnn_sparse_backend import nn

REGION = enum.Enum("RegionType", "HYPER_CUBE HYPER_CROSS CUSTOM")


def named(name: str, **attributes) -> torch.nn.Module:
    """A layer of a class of this name, below those that MinkowskiEngine has it below."""
    layer = type(name, (torch.nn.Module,), {})()
    for attribute, value in attributes.items():
        setattr(layer, attribute, value)
    return layer


def generator(sizes, stride=1, dilation=1, region=REGION.HYPER_CUBE, offsets=None, expand=False):
    return types.SimpleNamespace(
        kernel_size=list(sizes),
        kernel_stride=[stride] * len(sizes),
        kernel_dilation=[dilation] * len(sizes),
        region_type=region,
        region_offsets=offsets,
        expand_coordinates=expand,
    )


def offsets_of(of) -> list[tuple[int, ...]]:
    """Offsets as the engine lists them (``src/kernel_region.hpp``), times the dilation."""
    sizes, (dilation, *_) = of.kernel_size, of.kernel_dilation
    if of.region_type is REGION.CUSTOM:
        listed = of.region_offsets.tolist()
    elif of.region_type is REGION.HYPER_CROSS:
        listed = [[0] * len(sizes)]
        for axis, size in enumerate(sizes):
            for index in range(size - 1):
                step = index + 1 if index < size // 2 else index - 2 * (size // 2)
                listed.append([step if each == axis else 0 for each in range(len(sizes))])
    else:
        listed = []
        for index in range(math.prod(sizes)):
            offset = []
            for size in sizes:
                offset.append(index % size - (size // 2 if size % 2 else 0))
                index //= size
            listed.append(offset)
    return [tuple(dilation * step for step in offset) for offset in listed]


def some(seed: int = 0) -> nn.SparseTensor:
    torch.manual_seed(seed)
    sites = torch.cat([torch.randint(0, 2, (40, 1)), torch.randint(-4, 5, (40, 2))], 1).unique(dim=0)
    return nn.SparseTensor(torch.randn(len(sites), 3, dtype=torch.float64), sites)


GENERATORS = {
    "cube": generator((3, 5)),
    "strided": generator((3, 3), 2),
    "dilated": generator((3, 3), dilation=2),
    "even": generator((4, 2)),
    "even strided": generator((2, 2), 2),
    "expanded": generator((3, 3), expand=True),
    "cross": generator((3, 5), region=REGION.HYPER_CROSS),
    "listed": generator((1, 1), region=REGION.CUSTOM, offsets=torch.tensor([[0, 0], [2, -1], [0, 1]])),
    "one": generator((1, 1)),
}


@pytest.mark.parametrize("transposed", (False, True))
@pytest.mark.parametrize("channelwise", (False, True))
@pytest.mark.parametrize("which", GENERATORS)
def test_convolutions(which, channelwise, transposed):
    if channelwise and transposed:
        pytest.skip("there is no such layer")
    of, x = GENERATORS[which], some()
    count, stride = len(offsets_of(of)), of.kernel_stride[0]
    shape = (count, 3) if channelwise else (3, 4) if which == "one" else (count, 3, 4)
    kernel = torch.nn.Parameter(torch.randn(shape, dtype=torch.float64))
    bias = torch.nn.Parameter(torch.randn(1, shape[-1], dtype=torch.float64))
    name = "MinkowskiChannelwiseConvolution" if channelwise else "MinkowskiConvolution"
    theirs = named(name + "Transpose" * transposed, kernel=kernel, bias=bias, kernel_generator=of)
    ours = nn.convert.from_minkowski(torch.nn.Sequential(theirs))[0]
    if transposed and stride > 1:
        x = nn.SparseTensor(x.features, x.coordinates, stride=stride)
        y = ours(x, nn.SparseConvTranspose(3, 4, 2, stride, dim=2, generative=True).double()(x))
    elif transposed and not of.expand_coordinates:
        y = ours(x, x)
    else:
        y = ours(x)
    assert of.expand_coordinates or stride > 1 or len(y) == len(x)
    numbers = {tuple(row): number for number, row in enumerate(x.coordinates.tolist())}
    wanted = bias.detach().expand(len(y), -1).clone()
    matrices = [torch.diag(k) for k in kernel] if channelwise else list(kernel.view(count, 3, -1))
    for (out, (batch, *at)), (offset, matrix) in itertools.product(
        enumerate(y.coordinates.tolist()), zip(offsets_of(of), matrices)
    ):
        if transposed:
            ahead = [a - o for a, o in zip(at, offset)]
            site = (batch, *(a // stride for a in ahead)) if not any(a % stride for a in ahead) else None
        else:
            site = (batch, *(stride * a + o for a, o in zip(at, offset)))
        if site in numbers:
            wanted[out] += x.features[numbers[site]] @ matrix.detach()
    torch.testing.assert_close(y.features.detach(), wanted)
    assert theirs.kernel is kernel  # the model is another


def test_other_layers():
    torch.manual_seed(0)
    bn, inner = torch.nn.BatchNorm1d(3).double(), torch.nn.Linear(3, 2).double()
    relu = named("MinkowskiNonlinearityBase", module=torch.nn.LeakyReLU(0.3))
    model = torch.nn.Sequential(
        named("MinkowskiBatchNorm", bn=bn),
        relu,
        named("MinkowskiInstanceNorm", weight=torch.ones(1, 3).double(), bias=torch.zeros(1, 3).double()),
        named("MinkowskiSumPooling", kernel_generator=generator((2, 2), 2)),
        named("MinkowskiPoolingTranspose", kernel_generator=generator((2, 2), 2)),
        torch.nn.Sequential(named("MinkowskiLinear", linear=inner), relu),
        named("MinkowskiGlobalMaxPooling"),
    )
    found = nn.convert.from_minkowski(model)
    leaky = nn.LeakyReLU(0.3)
    expected = torch.nn.Sequential(
        nn.BatchNorm(3).double(),
        leaky,
        nn.InstanceNorm(3, 1e-8).double(),
        nn.SparseSumPool(2, 2, dim=2, outputs="occupied"),
        nn.SparsePoolTranspose(2, 2, dim=2),
        torch.nn.Sequential(nn.Linear(3, 2).double(), leaky),
        nn.GlobalMaxPool(sparse=True),
    )
    assert [type(m) for m in found.modules()] == [type(m) for m in expected.modules()]
    assert found[1] is found[5][1] and bn.__class__ is torch.nn.BatchNorm1d
    expected.load_state_dict(found.state_dict())
    assert torch.equal(found(some()).features, expected(some()).features)
    with pytest.raises(TypeError, match="MinkowskiQuantile.* has no layer here"):
        nn.convert.from_minkowski(named("MinkowskiQuantile"))
    with pytest.raises(TypeError, match="Softshrink is none of"):
        nn.convert.from_minkowski(named("MinkowskiNonlinearityBase", module=torch.nn.Softshrink()))
