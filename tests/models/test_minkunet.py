"""MinkUNet: its shape, its training on our convolutions beside plain PyTorch, checkpoints, and the script."""

from __future__ import annotations

import json

import pytest
import torch

import gnn_sparse_backend as gsb
from models import minkunet
from models.dataset import DataError
from models.point_clouds import data
from models.point_clouds.data import FEATURES, Cloud
from models.point_clouds.layers import layers_of, prepare
from models.point_clouds.network import MinkUNet
from models.point_clouds.plain import convolutions, gather_scatter_conv
from models.point_clouds.train import LINEAR, Config, Run, disagreement, train
from tests.models.test_scripts import call

__all__ = ["call"]
pytestmark = pytest.mark.usefixtures("one_thread")
# every layer has 8 channels: few kernels
THIN = {"width": 0.01, "voxel": 1.0}
TINY = ("--scans", "1", "--val-scans", "1", "--azimuths", "40", "--beams", "16", "--epochs", "2", "--threads", "1")


@pytest.fixture(scope="module")
def scans():
    return data.load("generated", 2, 1, 0, azimuths=60, beams=16)


@pytest.fixture(scope="module")
def cloud(scans):
    return Cloud.of([scan() for scan in scans.train], 0.5)


@pytest.mark.parametrize("depth, millions", [(18, 21.7), (34, 37.9)])
def test_the_networks_have_their_published_sizes(depth, millions):
    # Tang et al. (SPVNAS, ECCV 2020) and the pages of MinkowskiEngine, of MinkUNet34C
    assert sum(p.numel() for p in MinkUNet(FEATURES, 20, depth).parameters()) / 1e6 == pytest.approx(millions, abs=0.1)


def test_layers_of_a_pass(cloud):
    model = MinkUNet(FEATURES, 20)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    found = layers_of(model, cloud.tensor())
    kinds = {kind: sum(layer.count for layer in found if layer.kind == kind) for kind in {each.kind for each in found}}
    # two in each of 16 residual blocks, and the stem
    assert kinds == {"submanifold": 33, "strided": 4, "transposed": 4}
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items()) and model.training
    assert [layer.at for layer in found if layer.kind == "strided"] == [1, 2, 4, 8]
    for layer in found:
        assert layer.kernel_map.shape == (len(layer.sites_out), len(layer.sites))
        assert layer.kernel_map.num_offsets == layer.kernel**3
    down, up = ([layer for layer in found if layer.kind == kind] for kind in ("strided", "transposed"))
    for one, other in zip(down, reversed(up)):
        assert torch.equal(one.sites, other.sites_out) and torch.equal(one.sites_out, other.sites)
    assert str(found[0]) == "submanifold 5^3, 4 to 32, at stride 1"


def test_plain_convolution_is_a_sum_over_pairs():
    inputs, outputs = torch.tensor([2, 0, 1, 2]), torch.tensor([0, 1, 0, 2])
    kernel_map = gsb.KernelMap.from_pairs(inputs, outputs, torch.tensor([0, 2, 2, 4]), (4, 3))
    x, w, bias = torch.randn(3, 5).double(), torch.randn(3, 5, 2).double(), torch.randn(2).double()
    expected = bias.repeat(4, 1)
    for pair, offset in enumerate((0, 0, 2, 2)):
        expected[outputs[pair]] += x[inputs[pair]] @ w[offset]
    torch.testing.assert_close(gather_scatter_conv(x, w, kernel_map, bias), expected)
    with pytest.raises(ValueError, match="one group only, got 5"):
        gather_scatter_conv(x, w, kernel_map, groups=5)


@pytest.mark.short(1)
@pytest.mark.parametrize("width", [0.01, 0.3])
def test_both_convolutions_give_the_same_network(cloud, width):
    torch.manual_seed(0)
    model = MinkUNet(FEATURES, 20, width=width).double()
    cotangent, results = torch.randn(len(cloud), 20).double(), {}
    x = cloud.features.double()
    for name in ("off", "on"):
        given = x.clone().requires_grad_()
        tensor = cloud.tensor().with_features(given)
        if name == "off":
            with convolutions(gather_scatter_conv):
                y = model(tensor)
                gradients = torch.autograd.grad(y, [given, *model.parameters()], cotangent)
        else:
            y = model(tensor)
            gradients = torch.autograd.grad(y, [given, *model.parameters()], cotangent)
        results[name] = [y, *gradients]
    for one, other in zip(*results.values()):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9 * (1 + other.detach().abs().max().item()))


@pytest.mark.slow
def test_training_learns_takes_turns_and_agrees(scans):
    seen = []
    off, on, linear = train(["off", "on", LINEAR], scans, Config(epochs=3, **THIN), lambda run: seen.append(run.name))
    assert seen == ["off", "on", LINEAR, LINEAR, "on", "off", "off", "on", LINEAR]
    torch.testing.assert_close(torch.tensor(on.run.losses), torch.tensor(off.run.losses), rtol=1e-2, atol=0)
    assert disagreement(off.run, on.run) is None and len(off.run.losses) == 6
    assert on.run.losses[-1] < on.run.losses[0] and linear.run.losses[-1] < linear.run.losses[0]
    assert on.run.iou.keys() == off.run.iou.keys() and 0 <= on.run.mean_iou <= 1 and on.run.inference_seconds > 0


@pytest.mark.slow
def test_a_training_goes_on_where_it_was_interrupted(scans, tmp_path):
    names, config = ["off", LINEAR], Config(epochs=3, batch=2, **THIN)
    whole = train(names, scans, config)

    class Interrupted(Exception):
        pass

    def interrupt(run):
        if len(run.seconds) == 2 and run.name == "off":
            raise Interrupted

    with pytest.raises(Interrupted):
        train(names, scans, config, interrupt, tmp_path)
    seen = []
    resumed = train(names, scans, config, lambda run: seen.append(run.name), tmp_path, resume=True)
    assert seen == ["off", LINEAR]  # the last epoch of each
    for one, other in zip(whole, resumed):
        assert one.run.losses == other.run.losses and one.run.iou == other.run.iou
        for name, x in one.model.state_dict().items():
            assert torch.equal(x, other.model.state_dict()[name]), name
    with pytest.raises(DataError, match=r"off.pt was trained with width 0.01, not 0.02"):
        train(names, scans, Config(width=0.02, voxel=1.0), checkpoints=tmp_path, resume=True)


def test_prepare_compiles_what_the_training_runs(cloud):
    x = cloud.tensor()
    model = MinkUNet(FEATURES, 20, width=0.01)
    assert prepare(model, x, "0s") == 0
    assert prepare(model, x, "10m") == len(layers_of(model, x))


def test_first_losses_apart_are_flagged():
    off = Run("off", losses=[2.0])
    assert disagreement(off, Run("on", losses=[2.0001])) is None
    assert "2 on plain PyTorch, 2.01 on" in disagreement(off, Run("on", losses=[2.01]))
    assert disagreement(off, Run("on", losses=[float("nan")]))


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"depth": 50}, r"depth must be one of \(18, 34\), got 50"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"voxel": float("nan")}, "voxel must be positive, got nan"),
        ({"precompile": "soon"}, "budget 'soon' is no time"),
    ],
)
def test_config_refuses(wrong, message):
    with pytest.raises(ValueError, match=message):
        Config(**wrong)


def test_the_script(call, tmp_path, no_data):
    options = ("--backend", "off", "--voxel", "1", "--width", "0.01", "--checkpoints", str(tmp_path / "states"))
    status, said, errors = call(minkunet.main, *TINY, *options, "--out", str(tmp_path))
    assert status == 0, errors
    assert "MinkUNet-18, width 0.01" in said and "linear, point by point" in said and "mean IoU" in said
    record = json.loads((tmp_path / "minkunet.json").read_text())
    assert [run["name"] for run in record["runs"]] == ["off", LINEAR] and len(record["runs"][0]["losses"]) == 2
    for name in ("minkunet", "minkunet-scene-1"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    status, said, _ = call(minkunet.main, *TINY, *options, "--resume", "--out", str(tmp_path))
    again = json.loads((tmp_path / "minkunet.json").read_text())
    assert status == 0 and again["runs"][0]["losses"] == record["runs"][0]["losses"]


@pytest.mark.parametrize(
    "options, message",
    [
        (("--resume",), "--resume needs --checkpoints FOLDER"),
        (("--data", "absent"), "error: absent is not a folder"),
        (("--depth", "50"), "error: depth must be one of (18, 34), got 50"),
        (("--threads", "0"), "error: --threads must be at least 1, got 0"),
    ],
)
def test_bad_input_is_refused_in_words(options, message, call, tmp_path):
    status, _, errors = call(minkunet.main, *options, "--out", str(tmp_path / "out"))
    assert status == 2 and message in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_network_learns_what_single_points_do_not_tell(call, tmp_path, no_data):
    status, said, errors = call(minkunet.main, "--quick", "--threads", "1", "--out", str(tmp_path))
    assert status == 0, errors
    assert "first losses on plain PyTorch and on our convolutions agree" in said
    off, on, linear = json.loads((tmp_path / "minkunet.json").read_text())["runs"]
    for run in (off, on):
        assert run["mean_iou"] > 1.4 * linear["mean_iou"] and run["accuracy"] > linear["accuracy"] + 0.1
