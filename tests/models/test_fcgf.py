"""FCGF's ResUNet on the face of MinkowskiEngine: its configurations, and that its loss falls."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from models.point_clouds import kitti


@pytest.fixture
def fcgf():
    with gsb.enabled("MinkowskiEngine"):
        yield importlib.import_module("models.fcgf")
        gsb.enable("MinkowskiEngine")


@pytest.mark.slow
def test_the_loss_falls_on_scenes_and_on_a_scan_of_kitti(fcgf, capsys):
    settings = "--steps 12 --scenes 1 --width 0.125 --azimuths 90 --beams 24 --voxel 1 --every 40 --lr 0.01"
    assert fcgf.main(settings.split()) == 0
    said = capsys.readouterr().out
    assert "MinkowskiConvolutionTranspose" in said
    assert kitti.sample() is None or "step 11" in said


def test_configurations_are_the_published_ones(fcgf):
    from models.point_clouds.resunet import CONFIGURATIONS, ResUNet

    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in ResUNet("ResUNetBN2C").state_dict().items()}
    assert shapes["conv1.kernel"] == (125, 1, 32) and shapes["conv4.kernel"] == (27, 128, 256)
    assert shapes["conv4_tr.kernel"] == (27, 256, 128) and shapes["conv2_tr.kernel"] == (27, 128, 64)
    assert shapes["block3_tr.norm2.bn.weight"] == (64,) and shapes["conv1_tr.kernel"] == (96, 64)
    assert shapes["final.kernel"] == (64, 32) and shapes["final.bias"] == (1, 32)
    assert set(CONFIGURATIONS) == {"ResUNetBN2", "ResUNetBN2B", "ResUNetBN2C", "ResUNetBN2D"}


def test_pairs_are_equal_places(fcgf):
    points = np.random.default_rng(0).uniform(-3, 3, (500, 3)).astype(np.float32)
    x, y, pairs = fcgf.views(points, 0.25, np.random.default_rng(1))
    assert len(pairs) > 100 and pairs.amax(0).tolist() <= [len(x) - 1, len(y) - 1]
    # the turn is about the third axis: heights differ by the shift alone
    heights = x.C[pairs[:, 0], 3] - y.C[pairs[:, 1], 3]
    assert heights.max() - heights.min() <= 1
