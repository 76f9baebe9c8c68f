"""The benchmark of sparse convolutions end to end on a tiny cloud, and its parts."""

import json

import pytest
import torch

import gnn_sparse_backend as gsb
from benchmarks import sparse_conv
from benchmarks.layers.sparse_conv import clouds, contenders, gpu, maps, network, spconv
from benchmarks.layers.sparse_conv import memory as layer_memory
from benchmarks.layers.sparse_conv.contenders import MODES, OURS, TORCH
from benchmarks.layers.sparse_conv.work import convolution_work
from benchmarks.operators.suite import CannotDo
from benchmarks.operators.work import Work
from benchmarks.support import memory
from models.point_clouds import scenes
from models.point_clouds.layers import Layer, layers_of
from models.point_clouds.network import MinkUNet

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = clouds.Place("small", 1.0)


@pytest.fixture(scope="module", autouse=True)
def thin_network():
    """A tiny scan, and a network whose layers have 8 channels: few kernels."""
    with pytest.MonkeyPatch.context() as patch:
        recipe = clouds.Recipe(lambda seed: scenes.generate(seed, 60, 16), 900, "tiny", (1.0,))
        patch.setitem(clouds.RECIPES, "small", recipe)
        patch.setattr(clouds, "network", lambda depth=18: MinkUNet(4, 20, depth, width=0.01))
        yield


@pytest.fixture(scope="module")
def layers(thin_network):
    return clouds.layers(TINY.cloud())


@pytest.mark.slow
def test_the_command_writes_a_full_report(command, tmp_path, monkeypatch, capsys):
    peaks = {OURS: 100, TORCH: 300}

    def child(function, *given):
        if function is network.first_step:
            _, place, _, depth = given
            assert place == TINY and depth == 18
            return {"first": 2.0, "second": 1.0}
        assert function is layer_memory.layer_memory
        name, place, modes, _, _ = given
        if name not in peaks:
            return [{"error": "no"}] * (len(modes) * len(clouds.layers(place.cloud())))
        return [{"step": peaks[name], "held": 1, "results": 2}] * (len(modes) * len(clouds.layers(place.cloud())))

    monkeypatch.setattr(memory, "in_child", child)
    monkeypatch.setattr(spconv, "installed", lambda: False)
    given = ("--quick", "--budget", "0.1", "--voxels", "1", "--modes", "forward", "step", "--parts")
    assert command(sparse_conv.main, *given, *sparse_conv.PARTS) == 0
    report = json.loads((tmp_path / "sparse_conv.json").read_text())
    assert (tmp_path / "sparse_conv.png").read_bytes().startswith(b"\x89PNG")
    places = [(cell["op"], cell["mode"]) for cell in report["cells"]]
    assert len(places) == len(set(places)) == 2 * len(clouds.layers(TINY.cloud())) and not report["summary"]["wrong"]
    for cell in report["cells"]:
        medians = {name: timing["median"] for name, timing in cell["timings"].items()}
        assert set(medians) == {OURS, TORCH} and cell["unable"][spconv.NAME].startswith("not measured")
        assert cell["speedup"] == pytest.approx(medians[TORCH] / medians[OURS])
        assert cell["memory_ratio"] == 3.0 and cell["roofline_compulsory"] > 0 and cell["first_call"][OURS] > 0
    # the stem, a submanifold map at each of five strides, four strided ones, and all of them
    assert len(report["maps"]) == 1 + 5 + 4 + 1 and all(
        set(each["timings"]) == {OURS, maps.UNIQUE} for each in report["maps"]
    )
    (whole,) = report["networks"]
    assert whole["wrong"] is None and 0 < whole["map_share"] < 1 and set(whole["step"]) == {OURS, TORCH}
    assert report["first_steps"]["seconds"]["cold"] == {"first": 2.0, "second": 1.0}
    assert report["graphs"][0]["voxels"] == len(TINY.cloud())
    assert report["summary"]["memory"] == pytest.approx(3.0) and report["summary"]["maps"] > 0
    printed = capsys.readouterr().out
    assert "building a map" in printed and "share of maps" in printed and "not measured: spconv" in printed

    again = ("--quick", "--budget", "0.1", "--voxels", "1", "--modes", "bfloat16", "--parts", "layers", "--append")
    assert command(sparse_conv.main, *again) == 0
    merged = json.loads((tmp_path / "sparse_conv.json").read_text())
    assert len(merged["cells"]) == 3 * len(places) // 2 and merged["maps"] == report["maps"]
    assert merged["first_steps"] == report["first_steps"]


def test_every_contender_has_the_same_answer(layers):
    kinds = {layer.kind: layer for layer in layers}
    assert len(kinds) == 3
    for layer in kinds.values():
        for mode in MODES:
            expected = contenders.expected_of(layer, mode)
            for name in contenders.CONTENDERS:
                if name == spconv.NAME or contenders.refusal(name, mode):
                    continue
                call, in_our_order = contenders.call_of(name, layer, mode)
                answer = call()
                assert contenders.mismatch(in_our_order(answer), expected) is None, (layer, mode, name)
                assert len(answer) == len(expected) == (3 if mode == "step" else 1)


def test_spconv_has_the_same_answer(layers):
    if not spconv.installed():
        pytest.skip("spconv is not installed")
    for layer in layers:
        call, in_our_order = contenders.call_of(spconv.NAME, layer, "forward")
        # on one thread: on several some of its rows are wrong
        assert contenders.mismatch(in_our_order(call()), contenders.expected_of(layer, "forward")) is None, layer


def test_what_is_out_of_the_question_is_called_once():
    calls = dict.fromkeys(("fast", "slow", "slowest"), lambda: None)
    found = sparse_conv.timed(calls, {"fast": 0.1, "slow": 0.4, "slowest": 1.2}, 0.01)
    assert found["slowest"]["samples"] == 1 and found["slowest"]["median"] == 1.2
    assert found["fast"]["samples"] > 1 and found["slow"]["samples"] > 1
    ours = sparse_conv.timed(
        {"fast": lambda: None, sparse_conv.OURS: lambda: None}, {"fast": 0.1, sparse_conv.OURS: 9.0}, 0.01
    )
    assert ours[sparse_conv.OURS]["median"] < 1, "a first call that compiles is no reason to leave it out"
    assert sparse_conv.timed({}, {}, 1.0) == {}


def test_what_spconv_cannot_do_is_said_before_it_is_tried(monkeypatch):
    monkeypatch.setattr(spconv, "installed", lambda: True)
    assert spconv.refusal("forward") is None
    assert "backward" in spconv.refusal("step") and "bfloat16" in spconv.refusal("bfloat16")


def test_wrong_answers_are_told_from_rounding(layers):
    layer = layers[0]
    for mode in MODES:
        expected = contenders.expected_of(layer, mode)
        dtype = MODES[mode][0]
        for at in range(len(expected)):
            answer = [y.to(dtype) for y in expected]
            assert contenders.mismatch(tuple(answer), expected) is None
            answer[at] = answer[at] * 1.1
            assert contenders.mismatch(tuple(answer), expected) is not None, (mode, at)


def test_maps_by_unique_are_the_same_pairs(layers):
    built = maps.maps_of(layers)
    assert [(layer.kernel, layer.stride) for layer in built[:3]] == [(5, 1), (2, 2), (3, 1)]
    for layer in built:
        inputs, outputs, counts = maps.unique_pairs(layer.sites, layer.sites_out, layer.kernel, layer.stride)
        assert torch.equal(counts, layer.kernel_map.indptr.long().diff())
        assert torch.equal(inputs, layer.kernel_map.inputs.long())
        assert torch.equal(outputs, layer.kernel_map.outputs.long())


def test_the_map_that_is_timed_is_the_layers_own(layers):
    for layer in maps.maps_of(layers):
        built = maps.builders(layer)[OURS]()
        for name in ("inputs", "outputs", "indptr"):
            assert torch.equal(getattr(built, name), getattr(layer.kernel_map, name))
    built = maps.maps_of(layers)
    for layer, kernel_map in zip(built, maps.builders_of_all(built)[OURS](), strict=True):
        assert torch.equal(kernel_map.inputs, layer.kernel_map.inputs), layer


def test_work_by_hand():
    # two offsets of three; of four inputs two are met; two outputs
    pairs = torch.tensor([0, 2, 2]), torch.tensor([0, 1, 0]), torch.tensor([0, 2, 2, 3] + [3] * 5)
    kernel_map = gsb.KernelMap.from_pairs(*pairs, (2, 4))
    layer = Layer("strided", 2, 2, 1, 8, 16, kernel_map, torch.empty(4, 4), torch.empty(2, 4))
    structure, weight, flops = (2 * 3 + 9) * 4, 8 * 8 * 16 * 4, 2 * 3 * 8 * 16
    forward = Work(structure + 2 * 32 + weight + 2 * 64, structure + 3 * 32 + weight + 2 * 64, flops)
    assert convolution_work(layer, backward=False) == forward
    to_x = Work(structure + 2 * 64 + weight + 4 * 32, structure + 3 * 64 + weight + 4 * 32, flops)
    to_weight = Work(structure + 2 * 32 + 2 * 64 + weight, structure + 3 * (32 + 64) + weight, flops)
    assert convolution_work(layer, backward=True) == forward + to_x + to_weight


@pytest.mark.slow
def test_a_child_measures_memory():
    # which has the whole network, and another scan of that name
    found = memory.in_child(layer_memory.layer_memory, TORCH, clouds.Place("small", 1.0), ["forward"], 1)
    assert len(found) == len(layers_of(MinkUNet(4, 20), TINY.cloud().tensor())) and all(
        set(entry) == {"step", "held", "results"} for entry in found
    )


@pytest.mark.slow
def test_a_failure_of_one_layer_is_named(monkeypatch):
    def fails(name, layer, mode):
        if mode == "step":
            raise RuntimeError("no kernel\nat all")
        return (lambda: (torch.zeros(10),)), None

    monkeypatch.setattr(contenders, "call_of", fails)
    found = layer_memory.layer_memory(OURS, TINY, ["forward", "step"], torch.get_num_threads())
    assert found[0]["results"] == 40 and found[1] == {"error": "RuntimeError: no kernel"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_every_cell_says_so(command, tmp_path, capsys):
    options = ("--device", "cuda", "--dtype", "bfloat16", "--clouds", "small", "--voxels", "1")
    assert command(sparse_conv.main, *options) == 0
    report = json.loads((tmp_path / "sparse_conv_bfloat16_cuda.json").read_text())
    assert {cell["mode"] for cell in report["cells"]} == {"forward", "step"}
    assert all(set(cell["contenders"].values()) == {"not measured"} for cell in report["cells"])
    assert "not measured" in capsys.readouterr().out


def test_cells_on_a_gpu_compare_with_float64(layers):
    device = torch.device("cpu")
    other = next(layer for layer in layers if layer.kind != "submanifold")
    submanifold = next(layer for layer in layers if layer.kind == "submanifold")
    for mode in ("forward", "step"):
        cell = gpu.cell_on_gpu("tiny", submanifold, mode, "float32", 0)
        expected = cell.reference(device)
        assert expected[0].dtype == torch.float64
        for name in cell.names:
            answer = cell.make(name, device).call()
            assert cell.mismatch(answer, expected) is None
            assert cell.mismatch((answer[0] * 1.01, *answer[1:]), expected) is not None
    with pytest.raises(CannotDo, match="submanifold layers alone"):
        gpu.cell_on_gpu("tiny", other, "forward", "float32", 0).make(gpu.DENSE, device)


def test_options(capsys):
    options = sparse_conv.arguments([])
    assert tuple(options.clouds) == clouds.DEFAULT and options.voxels is None
    places = clouds.places(options.clouds, None, 0)
    assert len(places) == 2 + 16 and clouds.Place("room-1", 0.02) in places
    assert tuple(options.parts) == sparse_conv.PARTS and options.threads == 2
    assert "first-step" not in sparse_conv.arguments(["--quick"]).parts
    for wrong, words in (
        (["--dtype", "bfloat16"], "is measured with --device cuda alone"),
        (["--voxels", "0"], "--voxels must be positive, got [0.0]"),
    ):
        with pytest.raises(SystemExit):
            sparse_conv.arguments(wrong)
        assert words in capsys.readouterr().err


def test_a_scan_that_is_not_there_is_skipped(command, no_data, capsys):
    assert command(sparse_conv.main, "--clouds", "kitti", "--voxels", "1", "--modes", "forward") == 1
    assert "kitti, 1 m skipped: GSB_DATA names no folder with this scan" in capsys.readouterr().out
