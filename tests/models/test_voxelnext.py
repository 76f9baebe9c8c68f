"""VoxelNeXt: its published size and layers, examples of scans, training on our convolutions, and the script."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from models.dataset import DataError
from models.point_clouds import data, kitti
from models.point_clouds.classes import CLASS
from models.point_clouds.scan import Scan
from tests.checkouts import checkout, importing, load
from tests.models.test_scripts import call

spconv = pytest.importorskip("spconv.pytorch", reason="spconv is not installed: it has wheels for Linux on x86-64")

from models import voxelnext  # noqa: E402
from models.detection.examples import Example, Grid  # noqa: E402
from models.detection.network import CHANNELS, OUT, VoxelNeXt, from_above  # noqa: E402
from models.detection.train import Config, focal_loss, precision, train  # noqa: E402

__all__ = ["call"]
pytestmark = pytest.mark.usefixtures("one_thread")
# every layer has 8 channels: few kernels
THIN = {"width": 0.01, "steps": 8}
COARSE = Grid(voxel=(0.8, 0.8, 0.5))


def test_the_grid_is_that_of_the_configuration_for_kitti():
    assert Grid().shape == [41, 1600, 1408] and Grid().map_shape == (200, 176)


def test_the_map_is_the_sum_of_each_column():
    shapes, tensors = [[3, 8, 8], [2, 4, 4], [1, 2, 2]], []
    torch.manual_seed(0)
    for shape in shapes:
        sites = torch.cartesian_prod(*(torch.arange(n) for n in (2, *shape)))
        sites = sites[torch.rand(len(sites)) < 0.5].int()
        tensors.append(spconv.SparseConvTensor(torch.randn(len(sites), 3), sites, shape, 2))
    wanted = torch.zeros(2, 3, 8, 8)
    for number, x in enumerate(tensors):
        wanted[:, :, :: 2**number, :: 2**number] += x.dense().sum(2)
    found = from_above(tensors)
    assert found.spatial_shape == [8, 8]
    torch.testing.assert_close(found.dense(), wanted)


def test_the_published_backbone_gives_the_same():
    """Its own code, from a checkout, with our weights in the order in which both have their layers."""
    root = checkout("VoxelNeXt")
    name = "pcdet.models.backbones_3d"
    with importing(root, "pcdet", "pcdet.utils", "pcdet.models", name):
        published = load(f"{name}.spconv_backbone_voxelnext", "VoxelResBackBone8xVoxelNeXt")
        theirs = published({}, 4, np.array([64, 64, 40])).double()
    torch.manual_seed(0)
    ours = VoxelNeXt(4).double()
    assert [x.shape for x in ours.state_dict().values()] == [x.shape for x in theirs.state_dict().values()]
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values())))
    sites = (torch.rand(200, 4) * torch.tensor([2, 40, 64, 64])).int().unique(dim=0)
    features = torch.randn(len(sites), 4, dtype=torch.float64)
    with gsb.enabled("spconv"):
        found = ours(spconv.SparseConvTensor(features, sites, [41, 64, 64], 2))
        given = {"voxel_features": features, "voxel_coords": sites, "batch_size": 2}
        wanted = theirs(given)["encoded_spconv_tensor"]
    torch.testing.assert_close(found.dense(), wanted.dense())


def test_what_is_published_of_its_size():
    layers = [x for x in VoxelNeXt(4).modules() if isinstance(x, spconv.conv.SparseConvolution)]
    assert len(layers) == 1 + 6 * 4 + 5 + 2 and (CHANNELS, OUT) == ((16, 32, 64, 128, 128), 128)
    with pytest.raises(ValueError, match=r"the last two of them equal, got \(8, 8, 8, 8, 16\)"):
        VoxelNeXt(4, (8, 8, 8, 8, 16))


def test_examples_tell_what_points_do():
    points = np.array(
        [[1.02, -39.87, -2.85], [1.22, -39.87, -0.45], [70.32, 39.93, 0.95], [1, 39.999999, 0.5], [80, 0, 0]]
    )
    labels = np.array([CLASS["road"], CLASS["car"], CLASS["person"], CLASS["pole"], CLASS["car"]])
    scan = Scan("a", points.astype(np.float32), np.full(5, 0.5, np.float32), labels)
    example = Example.of([scan, scan], Grid())
    assert example.scans == 2 and example.tensor().spatial_shape == [41, 1600, 1408]
    # of the fourth float32 has 40, which is not in the grid any more
    assert sorted(example.voxels.tolist()) == [
        [b, *at] for b in (0, 1) for at in ([1, 2, 20], [25, 2, 24], [39, 1598, 1406])
    ]
    cells = torch.tensor([[0, 0, 2], [0, 0, 3], [1, 199, 175], [1, 5, 5]], dtype=torch.int32)
    rows, there = example.found_at(cells)
    assert there.tolist() == [True, True, True, False]
    assert example.things[rows[:3]].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    torch.testing.assert_close(example.heights[rows[:3]], torch.tensor([-2.85, -0.45, 0.95]))
    unlabelled = Scan("b", scan.points, scan.remission, np.zeros(5, np.int64))
    assert Example.of([unlabelled], Grid()).things is None
    with pytest.raises(DataError, match="no point of c is in Grid"):
        Example.of([Scan("c", scan.points[4:], scan.remission[4:], labels[4:])], Grid())


def test_the_focal_loss_by_hand():
    logits, wanted = torch.tensor([[0.0, 2.0], [-1.0, 3.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    p = torch.sigmoid(logits)
    by_hand = -((1 - p) ** 2 * p.log() * wanted + p**2 * (1 - p).log() * (1 - wanted)).sum() / 2
    torch.testing.assert_close(focal_loss(logits, wanted), by_hand)


def test_a_detector_learns_generated_scenes():
    scans = data.load("generated", 2, 1, 0, azimuths=120, beams=24)
    config = Config(**THIN, lr=1e-2)
    model = config.detector()
    run = train(model, [Example.of([scan()], COARSE) for scan in scans.train], config)
    assert run.losses[-1] < 0.6 * run.losses[0] and run.things[-1] < run.things[0]
    found = precision(model, Example.of([scans.val[0]()], COARSE))
    assert "vehicle" in found and all(0 <= share <= 1 and 0 < chance < 1 for share, chance in found.values())
    calls = gsb.status().to_dict()["calls"]["spconv"]
    assert not any(row["fallbacks"] for row in calls.values())


def test_it_learns_the_heights_of_the_real_scan(gsb_data):
    if not (gsb_data / kitti.SAMPLE).exists():
        pytest.skip(f"{gsb_data} has no {kitti.SAMPLE}")
    example = Example.of([kitti.sample()], Grid(voxel=(0.4, 0.4, 0.2)))
    run = train(Config(**THIN, lr=1e-2).detector(), [example], Config(**THIN, lr=1e-2))
    assert run.things == [None] * 8 and run.heights[-1] < 0.7 * run.heights[0]


@pytest.mark.slow
def test_the_script(call, tmp_path, monkeypatch):
    monkeypatch.delenv("GSB_DATA", raising=False)
    status, said, errors = call(voxelnext.main, "--quick", "--threads", "1", "--out", str(tmp_path))
    assert status == 0, errors
    record = json.loads((tmp_path / "voxelnext.json").read_text())
    share, by_chance = record["precision"]["vehicle"]
    assert share > 4 * by_chance and "VoxelNeXt, width 0.25" in said


@pytest.mark.parametrize(
    "options, message",
    [
        (("--steps", "0"), "error: steps must be at least 1, got 0"),
        (("--voxel", "0"), "error: voxel must be positive, got 0.0"),
        (("--scans", "0"), "error: scans must be at least 1, got 0"),
        (("--threads", "0"), "error: --threads must be at least 1, got 0"),
    ],
)
def test_bad_input_is_refused_in_words(options, message, call, tmp_path):
    status, _, errors = call(voxelnext.main, *options, "--out", str(tmp_path / "out"))
    assert status == 2 and message in errors
    assert not (tmp_path / "out").exists()
