"""Blocks and published networks; states in MinkowskiEngine's layout; names that are not there."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gnn_sparse_backend import nn

from .oracle import same_gradients
from .test_convolution import tensor

CHECKOUTS = os.environ.get("GSB_CHECKOUTS")
"""A folder of checkouts of published networks: FCGF and Mask3D."""


@pytest.mark.short(2)
@pytest.mark.parametrize("name", ["FCGF", "Mask3D"])
def test_published_networks_run_unchanged(name):
    folder = Path(CHECKOUTS or "", name)
    if not CHECKOUTS or not folder.is_dir():
        pytest.skip(f"GSB_CHECKOUTS names no folder with a checkout of {name}")
    program = [sys.executable, "-m", "tests.integrations.minkowski.published", name, str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0 and f"{name}: " in done.stdout, done.stderr


def test_blocks(ME):
    import MinkowskiEngine.modules.resnet_block as resnet
    import MinkowskiEngine.modules.senet_block as senet

    x = tensor(ME, 2, width=8)
    down = torch.nn.Sequential(ME.MinkowskiConvolution(8, 8, 1, 2, dimension=2), ME.MinkowskiBatchNorm(8))
    for block in (
        resnet.BasicBlock(8, 8, dimension=2),
        resnet.BasicBlock(8, 8, 2, downsample=down, dimension=2),
        resnet.Bottleneck(8, 2, dimension=2),
        senet.SEBasicBlock(8, 8, reduction=2, D=2),
        senet.SEBottleneck(8, 2, reduction=2, D=2),
    ):
        y = block.double()(x)
        assert y.shape[1] == 8 and y.F.min() == 0
        y.F.sum().backward()
        assert all(parameter.grad is not None for parameter in block.parameters())
    basic = resnet.BasicBlock(8, 8, dimension=2).double()
    same_gradients(basic(x).F, (basic.norm2(basic.conv2(basic.relu(basic.norm1(basic.conv1(x))))) + x).F.relu(), [x.F])
    assert {"conv1.kernel", "norm1.bn.weight", "norm2.bn.running_var"} <= set(basic.state_dict())


def test_a_state_in_the_layout_of_minkowski_engine_loads(ME):
    model = torch.nn.ModuleDict(
        {
            "conv": ME.MinkowskiConvolution(2, 3, 3, bias=True, dimension=3),
            "one": ME.MinkowskiConvolution(3, 4, 1, dimension=3),
            "down": ME.MinkowskiConvolution(4, 4, 1, 2, dimension=3),
            "up": ME.MinkowskiConvolutionTranspose(4, 5, 2, 2, dimension=3),
            "each": ME.MinkowskiChannelwiseConvolution(5, 3, dimension=3),
            "cross": ME.MinkowskiConvolution(
                5,
                5,
                kernel_generator=ME.KernelGenerator(3, region_type=ME.RegionType.HYPER_CROSS, dimension=3),
                dimension=3,
            ),
            "norm": ME.MinkowskiBatchNorm(5),
            "instance": ME.MinkowskiInstanceNorm(5),
            "relu": ME.MinkowskiPReLU(),
            "linear": ME.MinkowskiLinear(5, 6),
        }
    )
    shapes = {
        "conv.kernel": (27, 2, 3),
        "conv.bias": (1, 3),
        "one.kernel": (3, 4),
        "down.kernel": (1, 4, 4),
        "up.kernel": (8, 4, 5),
        "each.kernel": (27, 5),
        "cross.kernel": (7, 5, 5),
        "norm.bn.weight": (5,),
        "norm.bn.bias": (5,),
        "norm.bn.running_mean": (5,),
        "norm.bn.running_var": (5,),
        "norm.bn.num_batches_tracked": (),
        "instance.weight": (1, 5),
        "instance.bias": (1, 5),
        "relu.module.weight": (1,),
        "linear.linear.weight": (6, 5),
        "linear.linear.bias": (6,),
    }
    state = {name: torch.rand(shape) for name, shape in shapes.items()}
    assert model.load_state_dict(state).missing_keys == [] and list(model.state_dict()) == list(state)
    assert torch.equal(model["up"].kernel, state["up.kernel"])


def test_layers_become_native_ones(ME):
    cross = ME.KernelGenerator(3, region_type=ME.RegionType.HYPER_CROSS, dimension=2)
    model = torch.nn.Sequential(
        ME.MinkowskiConvolution(3, 4, (3, 5), bias=True, dimension=2),
        ME.MinkowskiBatchNorm(4),
        ME.MinkowskiReLU(),
        ME.MinkowskiConvolution(4, 5, 2, 2, dimension=2),
        ME.MinkowskiConvolution(5, 5, kernel_generator=cross, dimension=2),
        ME.MinkowskiConvolutionTranspose(5, 2, 2, 2, dimension=2),
    ).double()
    x = tensor(ME, 2)
    native = nn.convert.from_minkowski(model)
    y = native(nn.SparseTensor(x.F, x.C))
    assert torch.equal(y.coordinates, x.C)
    same_gradients(model(x).F, y.features, [x.F])


def test_whole_models_are_pickled_by_the_names_of_minkowski_engine(ME):
    layer = ME.MinkowskiConvolution(2, 3, 3, dimension=3)
    pickled = pickle.dumps(layer)
    assert b"MinkowskiEngine" in pickled and b"gnn_sparse_backend" not in pickled
    assert torch.equal(pickle.loads(pickled).kernel, layer.kernel)


def test_submodules_and_names_that_are_not_there(ME):
    from MinkowskiEngine.MinkowskiKernelGenerator import KernelGenerator
    from MinkowskiEngine.MinkowskiPooling import MinkowskiAvgPooling
    from MinkowskiEngine.MinkowskiSparseTensor import SparseTensorQuantizationMode
    from MinkowskiEngineBackend._C import ConvolutionMode
    from MinkowskiFunctional import relu

    assert ConvolutionMode is ME.ConvolutionMode and relu is ME.MinkowskiFunctional.relu
    assert KernelGenerator is ME.KernelGenerator and MinkowskiAvgPooling is ME.MinkowskiAvgPooling
    assert SparseTensorQuantizationMode is ME.SparseTensorQuantizationMode and ME.RegionType.HYPER_CUBE == 0
    assert set(ME.__all__) <= set(dir(ME)) and all(hasattr(ME, name) for name in ME.__all__)
    with pytest.raises(AttributeError, match="no attribute 'MinkowskiConvolutionFunction'.*docs/howto"):
        _ = ME.MinkowskiConvolutionFunction
    with pytest.raises(TypeError, match="abstract"):
        ME.MinkowskiNetwork(3)
