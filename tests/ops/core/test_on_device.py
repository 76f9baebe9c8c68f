"""``pytest --device cuda`` where there is no GPU: PyTorch's device without memory in its place."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch

from tests import on_device

pytestmark = pytest.mark.moves_by_itself
META = torch.device("meta")


def test_what_names_no_device_is_moved():
    generator = torch.Generator().manual_seed(0)
    with on_device.tensors_on(META):
        made = [
            torch.zeros(3),
            torch.tensor([1.0, 2.0]),
            torch.randn(3, generator=generator),
            torch.arange(4),
            torch.from_numpy(np.ones(2)),
            torch.nn.Linear(2, 3).weight,
        ]
        kept = torch.ones(2, device="cpu")
        leaf = torch.randn(3, requires_grad=True)
    assert all(x.device == META for x in made) and kept.device.type == "cpu"
    assert leaf.is_leaf and leaf.requires_grad and leaf.device == META
    assert torch.zeros(3).device.type == "cpu" and torch.from_numpy(np.ones(2)).device.type == "cpu"


def test_random_numbers_are_those_of_the_cpu():
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)
    with on_device.tensors_on(torch.device("cpu")):
        assert torch.equal(torch.randn(4), expected)
        assert np.array_equal(np.asarray(expected), expected.numpy())


def test_what_the_package_makes_is_its_own():
    """Or a tensor that it leaves on the CPU by mistake would be moved, and nobody would notice."""
    module = types.ModuleType("gnn_sparse_backend.made_up")
    exec(
        "import torch\ndef make():\n    return torch.zeros(3), torch.nn.functional.one_hot(torch.tensor([1]), 2)",
        module.__dict__,
    )
    with on_device.tensors_on(META):
        assert all(x.device.type == "cpu" for x in module.make())


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_all_are_skipped_and_say_why(pytester_in_root):
    said = pytester_in_root("--device", "cuda", "tests/ops/core/test_sanitizer.py", "-rs")
    assert "no CUDA device on this machine" in said and "passed" not in said and "skipped" in said


@pytest.fixture
def pytester_in_root(request):
    """pytest's words when it is run on some files of ours, in a process of its own."""
    import subprocess
    import sys

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "pytest", "-m", "", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(command, cwd=request.config.rootpath, capture_output=True, text=True, timeout=300).stdout

    return run


@pytest.mark.parametrize(
    "names, path, marker, words",
    [
        (("serial_gpu",), "tests/ops/test_a.py", None, "stand-in"),
        ((), "tests/integrations/dgl/test_a.py", None, "DGL's wheel"),
        ((), "tests/ops/test_a.py", pytest.mark.cpu_only("threads"), "threads"),
        ((), "tests/ops/test_a.py", None, None),
    ],
)
def test_what_cannot_run_there_says_why(names, path, marker, words):
    from pathlib import Path

    item = types.SimpleNamespace(
        fixturenames=names, path=Path(path), get_closest_marker=lambda name: marker and marker.mark
    )
    found = on_device.why_skipped(item, None)
    assert words in found if words else found is None
    assert on_device.why_skipped(item, "no GPU").endswith("no GPU")
