"""Run a published network, which is not changed, forward and backward under the face, and compare it with itself where
every convolution is computed by the dictionary of `oracle`.

    python -m tests.integrations.minkowski.published FCGF /checkouts/FCGF
"""

from __future__ import annotations

import codecs
import importlib
import sys
import types
from pathlib import Path

import torch

import gnn_sparse_backend as gsb

from . import oracle


def fcgf(folder: Path):
    # its files are in an encoding that Python 3.6 made one with UTF-8
    codecs.register(lambda name: codecs.lookup("utf-8") if name == "future_fstrings" else None)
    return importlib.import_module("model.resunet").ResUNetBN2C(1, 16, 0.05, True, 5, D=3)


def mask3d(folder: Path):
    models = sys.modules["models"] = types.ModuleType("models")  # which imports what the backbone does not need
    models.__path__ = [str(folder / "models")]
    config = types.SimpleNamespace(bn_momentum=0.02, conv1_kernel_size=5)
    return importlib.import_module("models.res16unet").Res16UNet34C(1, 16, config, D=3)


def by_dictionary(ME):
    """The forward pass of convolutions, without our maps and kernels."""

    def forward(layer, x, coordinates=None):
        kernel = layer.kernel_generator
        key, _ = x.coordinate_manager.place(x.coordinate_map_key, kernel, coordinates, layer.is_transpose)
        y = ME.SparseTensor._of(x.F, key, x.coordinate_manager)
        fine = (y if layer.is_transpose else x).tensor_stride
        offsets = oracle.cube(kernel.kernel_size, kernel.kernel_dilation, fine)
        weight = layer.kernel.reshape(len(offsets), layer.in_channels, layer.out_channels)
        met = oracle.pairs(x.C, y.C, offsets, layer.is_transpose)
        features = oracle.convolved(x.F, weight, met, len(y.C))
        return y._like(features if layer.bias is None else features + layer.bias)

    return forward


def gradients(net, x):
    net.zero_grad()
    found = net(x).F
    (found * torch.linspace(-1, 1, found.numel()).view_as(found)).sum().backward()
    return found.detach(), {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def main(name: str, folder: str) -> None:
    sys.path.insert(0, folder)
    for module in [each for each in sys.modules if each.partition(".")[0] in ("model", "models")]:
        del sys.modules[module]
    torch.manual_seed(0)
    gsb.enable("MinkowskiEngine")
    import MinkowskiEngine as ME

    net = {"FCGF": fcgf, "Mask3D": mask3d}[name](Path(folder)).double()
    coordinates = oracle.random_sites(150, 3, side=6)
    features = torch.rand(len(coordinates), 1, dtype=torch.float64)
    found = gradients(net, ME.SparseTensor(features, coordinates))
    calls = gsb.status().to_dict()["calls"]["MinkowskiEngine"]
    assert calls["MinkowskiConvolution"]["ours"] > 10 and calls["MinkowskiConvolutionTranspose"]["ours"] > 2
    ME.MinkowskiConvolution.forward = by_dictionary(ME)
    wanted = gradients(net, ME.SparseTensor(features, coordinates))
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-8, atol=1e-8)
    assert found[1].keys() == wanted[1].keys() and len(found[1]) > 30
    for key, gradient in wanted[1].items():
        torch.testing.assert_close(found[1][key], gradient, rtol=1e-7, atol=1e-8 * gradient.abs().max().item() + 1e-9)
    print(f"{name}: {sum(each['ours'] for each in calls.values())} calls of layers, {len(found[1])} gradients")


if __name__ == "__main__":
    main(*sys.argv[1:])
