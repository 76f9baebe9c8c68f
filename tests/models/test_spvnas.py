"""MinkUNet of spvnas over torchsparse's names: its size, its samples, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.point_clouds import data, kitti, spvnas

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def scans():
    return [scan() for scan in data.load("generated", 2, 1, 0, azimuths=60, beams=16).train]


def test_the_network_has_its_published_size():
    # of the table of Tang et al., MinkowskiNet of 21.7 million parameters, and of its half
    for ratio, millions in ((1.0, 21.7), (0.5, 5.5)):
        count = sum(p.numel() for p in spvnas.MinkUNet(ratio=ratio).parameters())
        assert count / 1e6 == pytest.approx(millions, abs=0.1)


def test_a_sample_has_a_point_for_each_voxel(scans):
    x, labels = spvnas.sample(scans, 0.5, points=100)
    assert x.C.shape == (200, 4) and x.C[:, 1:].min() == 0 and len(x.C.unique(dim=0)) == 200
    places = np.round(x.F[:, :3].numpy() / 0.5)
    for number in range(2):
        rows = (x.C[:, 0] == number).numpy()
        steps = places[rows] - x.C[rows, 1:].numpy()
        assert (steps == steps[0]).all()  # the point is in its voxel
    assert set(labels.tolist()) <= {*range(19), 255} and (labels != 255).any()


@pytest.mark.slow
def test_losses_fall_on_generated_scans_and_the_real_one_runs(scans):
    torch.manual_seed(0)
    model = spvnas.MinkUNet(ratio=0.25)
    losses = spvnas.train(model, [spvnas.sample(scans, 0.5)], 8)
    assert losses[-1] < 0.7 * losses[0], losses
    if (scan := kitti.sample()) is not None:
        logits = model(spvnas.sample([scan], 0.5).tensor)
        assert logits.isfinite().all() and logits.shape[1] == 19


def test_the_script(capsys, no_data):
    spvnas.main(["--steps", "2", "--ratio", "0.25", "--voxel", "1", "--azimuths", "60"])
    assert "step 2: loss" in capsys.readouterr().out
