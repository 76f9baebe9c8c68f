"""Scenes, the scanner that sees them, SemanticKITTI's files, voxels, and intersection over union."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.dataset import DataError
from models.point_clouds import data, kitti, rooms, scenes
from models.point_clouds.classes import CLASS, COLOURS, IGNORED, LEARNING_MAP, NAMES
from models.point_clouds.data import Cloud
from models.point_clouds.metrics import Confusion
from models.point_clouds.scan import Scan
from models.point_clouds.scanner import ELEVATIONS, HEIGHT, Rays, Solid
from tests.pace import pace

RNG = np.random.default_rng
SOLIDS = {
    shape: Solid(shape, (6.0, -3.0, -0.4), (1.5, 0.8, 1.1), CLASS["car"], yaw=0.6)
    for shape in ("box", "ellipsoid", "cylinder")
}


def inside(solid: Solid, points: np.ndarray) -> np.ndarray:
    """Whether points, (..., 3), are in a solid."""
    x, y, z = np.moveaxis(points - np.array(solid.centre), -1, 0)
    along, across = np.cos(solid.yaw) * x + np.sin(solid.yaw) * y, np.cos(solid.yaw) * y - np.sin(solid.yaw) * x
    u, v, w = along / solid.half[0], across / solid.half[1], z / solid.half[2]
    if solid.shape == "box":
        return (abs(u) <= 1) & (abs(v) <= 1) & (abs(w) <= 1)
    return (u * u + v * v <= 1) & (abs(w) <= 1) if solid.shape == "cylinder" else u * u + v * v + w * w <= 1


@pytest.mark.parametrize("shape", SOLIDS)
def test_rays_hit_solids_where_steps_along_them_do(shape):
    solid, rays = SOLIDS[shape], Rays.of_turn(180, 32)
    rays.cast(solid, RNG(0))
    steps = np.arange(4, 10, 0.02)
    directions = np.moveaxis(rays.direction, 0, -1).astype(float)
    within = inside(solid, directions[:, :, None] * steps[:, None])
    hit = within.any(2)
    assert 20 < hit.sum() < 500
    # a step may jump over an edge, never more than that
    assert (np.isfinite(rays.distance) >= hit).all() and (np.isfinite(rays.distance) & ~hit).sum() <= 3
    first = steps[within.argmax(2)]
    assert np.abs(rays.distance - first)[hit].max() < 0.021
    assert set(rays.label[hit]) == {CLASS["car"]} and set(rays.label[~np.isfinite(rays.distance)]) == {0}


def test_the_nearest_thing_hides_what_is_behind_it():
    wall = Solid("box", (10, 0, 0), (0.1, 3, 3), CLASS["building"])
    behind = Solid("box", (20, 0, 0), (0.1, 2, 2), CLASS["fence"])
    for order in ((wall, behind), (behind, wall)):
        rays = Rays.of_turn(360)
        for solid in order:
            rays.cast(solid, RNG(0))
        assert set(np.unique(rays.label)) == {0, CLASS["building"]}


def test_rays_pass_what_is_loose_by_the_law_of_its_mean_path():
    hedge = Solid("box", (10, 0, 0), (1, 4, 4), CLASS["vegetation"], path=1.0)
    rays = Rays.of_turn(2000)
    rays.cast(hedge, RNG(0))
    x, y, z = rays.direction
    ahead = (x > 0) & (np.abs(y) < 0.1) & (np.abs(z) < 0.1)  # about two metres through it
    passed = ~np.isfinite(rays.distance[ahead])
    assert passed.mean() == pytest.approx(np.exp(-2), abs=0.02)


def test_a_solid_around_the_back_is_seen_on_both_sides_of_the_seam():
    rays = Rays.of_turn(360)
    rays.cast(Solid("box", (-10, 0, 0), (1, 2, 2), CLASS["car"]), RNG(0))
    columns = np.isfinite(rays.distance).any(0)
    assert columns[:10].all() and columns[-10:].all() and not columns[90:270].any()


def test_beams_are_those_of_the_scanner():
    degrees = np.rad2deg(ELEVATIONS)
    assert len(degrees) == 64 and degrees[0] == pytest.approx(2) and degrees[-1] == pytest.approx(-24.33)
    assert (np.diff(degrees) < 0).all()


@pytest.fixture(scope="module")
def scene():
    return scenes.generate(3, azimuths=450)


def test_a_scene_has_the_same_points_from_the_same_seed(scene):
    again, other = scenes.generate(3, azimuths=450), scenes.generate(4, azimuths=450)
    assert np.array_equal(scene.points, again.points) and np.array_equal(scene.labels, again.labels)
    assert len(other) != len(scene)
    # a quarter of the steps that give 100,000
    assert 20_000 < len(scene) < 30_000 and scene.points.dtype == np.float32
    assert 0 <= scene.remission.min() and scene.remission.max() <= 1


def test_scenes_have_ground_houses_and_things():
    counts = sum(np.bincount(scenes.generate(seed, 300, 32).labels, minlength=len(NAMES)) for seed in range(12))
    for name in (
        "car", "truck", "person", "road", "parking", "pavement", "building", "fence", "vegetation", "trunk", "terrain",
        "pole", "traffic sign",
    ):  # fmt: skip
        assert counts[CLASS[name]] > 0, name
    assert counts[IGNORED] == 0 and counts[CLASS["road"]] > counts.sum() / 5


def test_the_ground_is_where_the_street_has_it(scene):
    street = scenes.Street(RNG([3, 64]))
    places = scene.points[:, :2] @ street.turn - [0, street.offset]
    heights = scene.points[:, 2] - scene.points[:, :2] @ street.turn @ street.slope + HEIGHT
    road, pavement = (scene.labels == CLASS[name] for name in ("road", "pavement"))
    assert np.abs(places[road, 1]).max() < street.half_width + 0.1
    assert np.abs(heights[road]).max() < 0.1
    raised = heights[pavement]
    assert raised.min() > -0.1 and np.median(raised) == pytest.approx(street.kerb, abs=0.02)


@pytest.mark.exhaustive
def test_a_scene_is_made_in_a_second():
    import time

    begin = time.process_time()
    assert 90_000 < len(scenes.generate(0)) < 120_000
    assert time.process_time() - begin < 3 * pace()


def test_the_learning_map():
    assert len(NAMES) == len(COLOURS) == 20 and LEARNING_MAP.max() == 19
    for raw, name in {10: "car", 252: "car", 40: "road", 60: "road", 48: "pavement", 81: "traffic sign"}.items():
        assert NAMES[LEARNING_MAP[raw]] == name
    assert LEARNING_MAP[[0, 1, 52, 99, 12]].max() == IGNORED


def write_kitti(folder, scans: dict[str, int]) -> None:
    """Scans of three points in sequences, the number of each as its remission."""
    for sequence, count in scans.items():
        for part in ("velodyne", "labels"):
            (folder / sequence / part).mkdir(parents=True)
        for number in range(count):
            rows = np.array([[1, 2, 3, number], [4, 5, 6, 0], [7, 8, 9, 0]], np.float32)
            rows.tofile(folder / sequence / "velodyne" / f"{number:06}.bin")
            # the upper half says which car it is
            np.array([10 + (7 << 16), 252, 4711], np.uint32).tofile(folder / sequence / "labels" / f"{number:06}.label")


def test_kitti_is_read_with_sequence_08_for_validation(tmp_path):
    write_kitti(tmp_path, {"sequences/00": 4, "sequences/08": 2})
    scans = data.load(str(tmp_path), 2, 5, 0)
    assert len(scans.train) == 2 and len(scans.val) == 2 and "2 for validation" in str(scans)
    assert [scan().remission[0] for scan in scans.train] == [0, 2]
    scan = scans.val[1]()
    assert scan.points.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert scan.labels.tolist() == [CLASS["car"], CLASS["car"], IGNORED] and scan.name == "000001"


def test_one_sequence_keeps_its_last_scans_for_validation(tmp_path):
    write_kitti(tmp_path, {".": 10})
    train, val = kitti.files(tmp_path)
    assert [path.stem for path, _ in val] == ["000008", "000009"] and len(train) == 8


def test_bad_files_are_refused_in_words(tmp_path):
    write_kitti(tmp_path, {"00": 1})
    scan, labels = (tmp_path / "00" / part for part in ("velodyne/000000.bin", "labels/000000.label"))
    with pytest.raises(DataError, match="has 1 scans velodyne"):
        data.load(str(tmp_path), 1, 1, 0)
    with pytest.raises(DataError, match="nowhere is not a folder"):
        data.load(str(tmp_path / "nowhere"), 1, 1, 0)
    np.zeros(2, np.uint32).tofile(labels)
    with pytest.raises(DataError, match=r"has 2 labels, and .* 3 points"):
        kitti.read(scan, labels)
    np.zeros(7, np.float32).tofile(scan)
    with pytest.raises(DataError, match="holds 7 float32 numbers"):
        kitti.read(scan)
    np.array([0, 0, np.nan, 0], np.float32).tofile(scan)
    with pytest.raises(DataError, match=r"point 0 is \[0.0, 0.0, nan, 0.0\]"):
        kitti.read(scan)
    with pytest.raises(DataError, match=r"absent.bin cannot be read: No such file"):
        kitti.read(tmp_path / "absent.bin")
    for wrong, words in (({"train": 0}, "scans must be at least 1"), ({"beams": 65}, "beams must be from 1 to 64")):
        with pytest.raises(DataError, match=words):
            data.load("generated", **{"train": 1, "val": 1, "seed": 0} | wrong)


def test_the_real_scan(gsb_data, monkeypatch):
    if not (gsb_data / kitti.SAMPLE).exists():
        pytest.skip(f"{gsb_data} has no {kitti.SAMPLE}")
    scan = kitti.sample()
    assert len(scan) == 17_238 and not scan.labels.any() and np.isfinite(scan.points).all()
    monkeypatch.delenv("GSB_DATA")
    assert kitti.sample() is None


def test_voxels_have_the_means_and_the_most_frequent_label():
    points = np.array([[0.1, 0.1, 0.1], [0.3, 0.1, 0.1], [0.2, 0.2, 0.2], [-0.1, 0, 0], [0.1, 0.1, 0.1]], np.float32)
    scans = [
        Scan("a", points[:4], np.array([0.2, 0.4, 0.6, 1.0], np.float32), np.array([1, 9, 9, 3])),
        Scan("b", points[4:], np.ones(1, np.float32), np.array([13])),
    ]
    cloud = Cloud.of(scans, 0.5)
    assert cloud.coordinates.tolist() == [[0, -1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]] and cloud.scans == 2
    assert cloud.labels.tolist() == [3, 9, 13] and cloud.voxel_of.tolist() == [1, 1, 1, 0, 2]
    means = cloud.features * torch.tensor(data.SPREAD) + torch.tensor(data.MIDDLE)
    torch.testing.assert_close(means[1], torch.tensor([0.2, 0.4 / 3, 0.4 / 3, 0.4]))


def test_a_moved_scan_keeps_its_shape_up_to_a_scale():
    points = RNG(0).normal(size=(50, 3)).astype(np.float32)
    moved = data._moved(points, RNG(1))
    apart, moved_apart = (np.linalg.norm(each[1:] - each[:1], axis=1) for each in (points, moved))
    scale = moved_apart / apart
    assert scale.max() - scale.min() < 1e-5 and 0.95 <= scale[0] <= 1.05 and scale[0] != 1
    assert np.allclose(moved[:, 2] / points[:, 2], scale[0], atol=1e-4)


def test_intersection_over_union_by_hand():
    confusion = Confusion()
    confusion.add(torch.tensor([1, 1, 1, 9, 0]), torch.tensor([1, 1, 9, 9, 9]))
    confusion.add(torch.tensor([13]), torch.tensor([1]))
    assert confusion.iou() == {"car": 2 / 4, "road": 1 / 2, "building": 0.0}
    assert confusion.mean_iou() == pytest.approx(1 / 3) and confusion.accuracy() == pytest.approx(3 / 5)
    assert np.isnan(Confusion().mean_iou())


def test_rooms_are_drawn_from_their_seed():
    room, again, other = (rooms.generate(seed, 100) for seed in (3, 3, 4))
    assert np.array_equal(room.points, again.points) and len(room) != len(other)
    height = np.ptp(room.points[:, 2])
    assert 2.2 < height < 3.1 and len(room) > 100 * 4 * height and not room.labels.any()
