"""Networks of OpenPCDet and VoxelNeXt as they are, in float64; the reference is PyTorch's products over spconv's pairs.

Needs checkouts (tests/checkouts.py).
"""

import contextlib

import numpy as np
import pytest
import torch
from spconv.pytorch import SparseConvTensor, functional

import gnn_sparse_backend as gsb
from tests.checkouts import checkout, importing, load

from .oracle import counts, in_order

PACKAGES = ("pcdet", "pcdet.utils", "pcdet.models", "pcdet.models.backbones_3d")
NETWORKS = {
    "VoxelBackBone8x": "spconv_backbone",
    "VoxelResBackBone8x": "spconv_backbone",
    "PillarBackBone8x": "spconv_backbone_2d",
    "PillarRes18BackBone8x": "spconv_backbone_2d",
    "UNetV2": "spconv_unet",
    "VoxelResBackBone8xVoxelNeXt": "spconv_backbone_voxelnext",
    "VoxelResBackBone8xVoxelNeXt2D": "spconv_backbone_voxelnext2d",
}
GRID = np.array([48, 40, 24])  # x, y, z
VOXELS = 150


def products(features, weight, pairs, pair_num, count, *_):
    """A convolution over spconv's pairs, which PyTorch differentiates."""
    out = features.new_zeros(count, weight.shape[0])
    for offset, (sources, sites) in zip(weight.flatten(1, -2).unbind(1), zip(*pairs.long())):
        there = sources >= 0
        out = out.index_add(0, sites[there], features[sources[there]] @ offset.t())
    return out


def turned(features, weight, pairs, *others):
    return products(features, weight, pairs.flip(0), *others)


@contextlib.contextmanager
def differentiable_spconv():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "indice_subm_conv", products)
        patch.setattr(functional, "indice_conv", products)
        patch.setattr(functional, "indice_inverse_conv", turned)
        yield


def batch(kind: str, batch_size) -> dict:
    """What a backbone is given: voxels of a scene, or pillars where it has two axes."""
    torch.manual_seed(1)
    sizes = torch.tensor([2, *GRID[::-1].tolist()])
    sites = (torch.rand(3 * VOXELS, 4) ** 2 * sizes).long().unique(dim=0)
    sites = sites[torch.randperm(len(sites))[:VOXELS]]
    if kind == "pillar":
        sites = sites[:, [0, 2, 3]].unique(dim=0)
    features = torch.randn(len(sites), 4 if kind == "voxel" else 32, dtype=torch.float64, requires_grad=True)
    return {f"{kind}_features": features, f"{kind}_coords": sites, "batch_size": batch_size}


def results(found: dict) -> list[torch.Tensor]:
    """Features of every tensor that the backbone returns, those of sparse ones in the order of their sites."""
    tensors = []
    for name, value in found.items():
        if isinstance(value, SparseConvTensor):
            indices, features = in_order(value)
            tensors += [indices.double(), features]
        elif isinstance(value, dict):
            tensors += results(value)
        elif isinstance(value, torch.Tensor) and name in ("point_features", "x_conv4", "x_conv5"):
            tensors.append(value)
    return tensors


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("repository", ["OpenPCDet", "VoxelNeXt"])
def test_a_backbone_runs_unchanged(repository, network):
    root = checkout(repository)
    if not (root / f"pcdet/models/backbones_3d/{NETWORKS[network]}.py").is_file():
        pytest.skip(f"this {repository} has no {network}")
    kind = "pillar" if "Pillar" in network or network.endswith("2D") else "voxel"
    with importing(root, *PACKAGES, absent=("SharedArray",)):
        backbone = load(f"pcdet.models.backbones_3d.{NETWORKS[network]}", network)
        torch.manual_seed(0)
        model = backbone({}, 4, GRID, voxel_size=[0.1, 0.1, 0.2], point_cloud_range=[0, 0, 0, 5, 4, 5]).double()

        def run(batch_size) -> tuple[list, list]:
            given = batch(kind, batch_size)
            tensors = results(model(given.copy()))
            # weights by value alone: the sites of a tensor are in the same order in both
            loss = sum((x * torch.sin(torch.arange(x.numel(), dtype=x.dtype)).view_as(x)).sum() for x in tensors)
            return tensors, torch.autograd.grad(
                loss, [given[f"{kind}_features"], *model.parameters()], allow_unused=True
            )

        with differentiable_spconv():
            wanted = run(2)
        with gsb.enabled("spconv"):
            found = run(torch.tensor(2))
    assert sum(counts().values()) >= 9
    for ours, theirs in zip(found, wanted):
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) is (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8 * (1 + other.abs().max().item()))
